"""Episodes from a source of either kind, taken without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

from agentgym.trajectory import EpisodeSpec

__all__ = ["Feed"]


class Feed:
    """Takes episodes one by one from a source of either kind, without waiting."""

    def __init__(self, specs: Iterable[EpisodeSpec] | AsyncIterable[EpisodeSpec]) -> None:
        self._sync: Iterator[EpisodeSpec] | None = None
        self._async: AsyncIterator[EpisodeSpec] | None = None
        self.pending: asyncio.Future[EpisodeSpec] | None = None
        if isinstance(specs, AsyncIterable):
            self._async = aiter(specs)
            self._ask()
        else:
            self._sync = iter(specs)

    def take(self) -> EpisodeSpec | None:
        """The next episode if there is one now."""
        if self._sync is not None:
            return next(self._sync, None)
        if self.pending is None or not self.pending.done():
            return None
        try:
            spec = self.pending.result()
        except StopAsyncIteration:
            self.pending = None
            return None
        self._ask()
        return spec

    def _ask(self) -> None:
        async def ask(source: AsyncIterator[EpisodeSpec]) -> EpisodeSpec:
            return await anext(source)

        assert self._async is not None
        self.pending = asyncio.ensure_future(ask(self._async))

    def stop(self) -> None:
        """Take nothing more."""
        self._sync = iter(())
        if self.pending is not None:
            self.pending.cancel()

    async def close(self) -> None:
        """Stop waiting for the source."""
        if self.pending is not None:
            self.pending.cancel()
            await asyncio.gather(self.pending, return_exceptions=True)
