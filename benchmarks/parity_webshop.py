"""Replay recordings of the original WebShop and compare every step.

    python -m benchmarks.parity_webshop --data DIR --traces FILE... --queries FILE

``DIR`` holds the original's product files, noun lists (``nouns*.json``) and, for each kind of
trace, the goals and drawn prices of the recording (``upstream_trace_goals_*.json[.gz]``). A trace
file holds one episode a line; a query file holds tokens, ranks and scores of the original's
index. Exits with 0 if nothing differs, with 1 if anything does, with 2 if a file cannot be used.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym

import agentgym  # noqa: F401 - registers the environments
from envs.webshop.analyzer import analyze
from envs.webshop.catalogue import CatalogueError
from envs.webshop.files import read_goals, read_json
from envs.webshop.shop import SEARCH_LIMIT

_MODES = ("text", "text_rich", "url")
_SHOWN = 20
# Scores were recorded with four digits.
_SCORE_UNIT = 1e4


@dataclass
class Tally:
    """What was compared, and what differed."""

    episodes: int = 0
    steps: int = 0
    purchases: int = 0
    queries: int = 0
    documents: int = 0
    mismatches: int = 0
    last_pages: int = 0
    last_page_differences: int = 0
    shown: list[str] = field(default_factory=list)

    def expect(self, where: str, what: str, expected: object, got: object) -> None:
        """Count one comparison."""
        if expected == got:
            return
        self.mismatches += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(f"{where}: {what}\n    recorded {_cut(expected, got)}")

    def fail(self, where: str, what: str) -> None:
        """Count a comparison that could not be made."""
        self.mismatches += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(f"{where}: {what}")


def _cut(expected: object, got: object) -> str:
    """Both values, from shortly before the place where they part."""
    left, right = repr(expected), repr(got)
    same = next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    start = max(0, same - 30)
    return f"...{left[start : start + 90]}\n    here     ...{right[start : start + 90]}"


class Replayer:
    """Three environments, one for each form of observation, stepped side by side.

    Args:
        arguments: Arguments of ``gym.make``.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.envs = {
            mode: gym.make("WebShop-v0", compat="upstream", observation_mode=mode, **arguments)
            for mode in _MODES
        }
        self.any: Any = self.envs["text"].unwrapped

    def reset(self, goal_index: int) -> dict[str, str]:
        """Start the goal at an index; the first page in each form."""
        options = {"task_id": self.any.shop.goals[goal_index].task_id}
        return {mode: env.reset(options=dict(options))[0] for mode, env in self.envs.items()}

    def step(self, action: str) -> tuple[dict[str, str], float, bool, Mapping[str, Any]]:
        """Act in all three; the page in each form, reward, done and info."""
        results = {mode: env.step(action) for mode, env in self.envs.items()}
        outcomes = {(r[1], r[2], r[3]) for r in results.values()}
        if len(outcomes) != 1:
            raise RuntimeError(f"the observation modes disagree after {action!r}: {outcomes}")
        _, reward, terminated, truncated, info = results["text"]
        pages = {mode: result[0] for mode, result in results.items()}
        return pages, float(reward), terminated or truncated, info

    def available(self) -> dict[str, Any]:
        """What can be done, in the original's form."""
        session = self.any.session
        return {
            "has_search_bar": session.has_search_bar(),
            "clickables": list(session.clickables()),
        }

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs.values():
            env.close()


def replay(replayer: Replayer, episode: Sequence[Any], where: str, tally: Tally) -> None:
    """Replay one recorded episode and compare each step."""
    tally.episodes += 1
    first = episode[0]
    _compare_page(first["obs"], replayer.reset(first["reset"]), replayer, f"{where} reset", tally)
    for number, recorded in enumerate(episode[1:], start=1):
        action = recorded["action"]
        here = f"{where} step {number} {action[:60]!r}"
        pages, reward, done, info = replayer.step(action)
        tally.steps += 1
        bought = recorded["done"] or "info" in recorded
        _compare_page(recorded["obs"], pages, replayer, here, tally, last=bought)
        tally.expect(here, "reward", float(recorded["reward"]), reward)
        tally.expect(here, "done", recorded["done"], done)
        details = info["details"]
        if bought:
            tally.purchases += 1
            tally.expect(here, "reward parts", recorded.get("info"), details.get("reward_parts"))
            purchase = details.get("purchase", {})
            for key in ("asin", "options"):
                if key in recorded:
                    tally.expect(here, key, recorded[key], purchase.get(key))
        elif "purchase" in details:
            tally.fail(here, "a purchase that was not recorded")


def _compare_page(
    recorded: Mapping[str, Any],
    pages: Mapping[str, str],
    replayer: Replayer,
    where: str,
    tally: Tally,
    *,
    last: bool = False,
) -> None:
    tally.expect(where, "url", recorded["url"], pages["url"])
    tally.expect(where, "available actions", recorded["avail"], replayer.available())
    if last:
        tally.last_pages += 1
        tally.last_page_differences += any(
            recorded[mode] != pages[mode] for mode in ("text", "text_rich")
        )
        return
    for mode in ("text", "text_rich"):
        tally.expect(where, mode, recorded[mode], pages[mode])


def compare_search(shop: Any, reference: Mapping[str, Any], tally: Tally) -> None:
    """Compare document tokens, query tokens, ranks and scores with a recorded index."""
    asins = [product.asin for product in shop.catalogue]
    tally.expect("queries", "product ids", sorted(reference["ids"]), sorted(asins))
    for asin, tokens in zip(reference["ids"], reference["doc_tokens"], strict=True):
        tally.documents += 1
        if asin in shop.catalogue:
            own = analyze(shop.catalogue[asin].indexed_text())
            tally.expect(f"document {asin}", "tokens", tokens, own)
    triples = zip(
        reference["queries"], reference["query_tokens"], reference["results"], strict=True
    )
    for query, tokens, results in triples:
        tally.queries += 1
        where = f"query {query[:60]!r}"
        tally.expect(where, "tokens", tokens, analyze(query))
        documents, scores = shop.index.top(query, SEARCH_LIMIT)
        ranked = [asins[document] for document in documents.tolist()]
        tally.expect(where, "ranks", [asin for asin, _ in results], ranked)
        if len(results) == len(ranked):
            for (asin, recorded), score in zip(results, scores.tolist(), strict=True):
                if round(recorded * _SCORE_UNIT) != round(score * _SCORE_UNIT):
                    tally.fail(where, f"score of {asin}: recorded {recorded}, here {score}")


def read_trace(path: Path) -> list[list[Any]]:
    """Read a trace file.

    Raises:
        CatalogueError: If it cannot be read or is no trace.
    """
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            episodes = [json.loads(line) for line in file if line.strip()]
    except (OSError, EOFError, ValueError) as error:
        raise CatalogueError(f"{path} cannot be read as a trace: {error}") from None
    for number, episode in enumerate(episodes):
        problem = _episode_problem(episode)
        if problem:
            raise CatalogueError(f"{path}: line {number + 1} is no episode: {problem}")
    if not episodes:
        raise CatalogueError(f"{path} holds no episode")
    return episodes


def _episode_problem(episode: Any) -> str | None:
    """What keeps a line of a trace from being an episode, or None."""
    if not isinstance(episode, list) or not episode:
        return "it is not a list that starts at a reset"
    if not all(isinstance(step, dict) and isinstance(step.get("obs"), dict) for step in episode):
        return "not every element is an object with an object 'obs'"
    reset = episode[0].get("reset")
    if not isinstance(reset, int) or isinstance(reset, bool):
        return f"'reset' of its first element is {reset!r}, not a goal index"
    if not all(isinstance(step.get("action"), str) for step in episode[1:]):
        return "a step has no text 'action'"
    return None


def goals_of(folder: Path, episodes: Sequence[Sequence[Any]], trace: Path) -> Path:
    """The file of recorded goals that a trace refers to: the one whose instructions it shows.

    Raises:
        CatalogueError: If there is no such file in the folder.
    """
    found = sorted(folder.glob("upstream_trace_goals_*.json*"))
    if not found:
        raise CatalogueError(f"{folder} has no upstream_trace_goals_*.json to replay {trace} with")
    # By name where no instruction fits, which the replay then reports.
    kind = trace.name.partition(".")[0].rpartition("_")[2]
    best, most = next((path for path in found if kind in path.name), found[0]), 0
    for path in found:
        goals, _ = read_goals(path)
        fitting = sum(
            0 <= episode[0]["reset"] < len(goals)
            and goals[episode[0]["reset"]]["instruction_text"] in episode[0]["obs"]["text_rich"]
            for episode in episodes
        )
        if fitting > most:
            best, most = path, fitting
    return best


def arguments_of(folder: Path) -> dict[str, Any]:
    """Arguments of ``gym.make`` for the data in a folder."""
    nouns = sorted(folder.glob("nouns*.json*"))
    return {"data": str(folder), "nouns": str(nouns[0]) if nouns else None}


def run(data: Path, traces: Sequence[Path], queries: Path | None) -> Iterator[tuple[str, Tally]]:
    """Compare everything; yields a tally for each file.

    Raises:
        CatalogueError: If a file cannot be used.
    """
    arguments = arguments_of(data)
    for path in traces:
        tally = Tally()
        episodes = read_trace(path)
        replayer = Replayer(arguments | {"goals": str(goals_of(data, episodes, path))})
        try:
            for number, episode in enumerate(episodes):
                where = f"{path.name} episode {number}"
                try:
                    replay(replayer, episode, where, tally)
                except (KeyError, IndexError, TypeError, ValueError) as error:
                    tally.fail(where, f"{type(error).__name__}: {error}")
        finally:
            replayer.close()
        yield str(path), tally
    if queries is not None:
        tally = Tally()
        reference = read_json(queries)
        env: Any = gym.make("WebShop-v0", compat="upstream", **arguments)
        try:
            compare_search(env.unwrapped.shop, reference, tally)
        except (KeyError, TypeError, ValueError) as error:
            tally.fail(str(queries), f"{type(error).__name__}: {error}")
        finally:
            env.close()
        yield str(queries), tally


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.parity_webshop", description="Compare with recorded originals."
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with the original's data")
    parser.add_argument("--traces", type=Path, nargs="+", default=[], help="recorded episodes")
    parser.add_argument("--queries", type=Path, help="recorded queries of the original's index")
    options = parser.parse_args(argv)
    if not options.traces and options.queries is None:
        parser.error("nothing to compare: give --traces, --queries or both")
    total = Tally()
    try:
        for name, tally in run(options.data, options.traces, options.queries):
            print(f"{name}: {tally.mismatches} mismatches")
            for line in tally.shown:
                print(f"  {line}")
            for key in vars(total):
                if key != "shown":
                    setattr(total, key, getattr(total, key) + getattr(tally, key))
    except CatalogueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(
        f"compared {total.episodes} episodes, {total.steps:,} steps, {total.purchases} purchases, "
        f"{total.queries:,} queries, {total.documents:,} documents"
    )
    print(
        f"pages after a purchase (not part of the verdict): {total.last_page_differences} of "
        f"{total.last_pages} differ in text"
    )
    print(f"mismatches: {total.mismatches}")
    return 1 if total.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
