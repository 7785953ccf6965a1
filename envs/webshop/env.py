"""The WebShop environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, SupportsFloat

from agentgym.env import Outcome, TextEnv
from agentgym.info import Info
from envs.webshop.catalogue import Compat
from envs.webshop.draws import EVERY_GOAL
from envs.webshop.goals import SPLITS, Goal
from envs.webshop.pages import Mode
from envs.webshop.reward import Reward
from envs.webshop.session import Session
from envs.webshop.shop import GoalSource, Shop, ShopConfig, open_shop
from envs.webshop.upstream import UpstreamSession

__all__ = ["TURN_LIMITS", "WebShopEnv"]

PathLike = str | os.PathLike[str]

#: Step limit of each difficulty.
TURN_LIMITS = {"small": 8, "full": 15}

_MODES = ("text", "text_rich", "url")
_REWARDS = ("score", "success")


class WebShopEnv(TextEnv):
    """Find a product that fits an instruction in a text web shop, choose options, and buy it.

    The shop, its search, its pages and its reward are those of WebShop (Yao et al., "WebShop:
    Towards Scalable Real-World Web Interaction with Grounded Language Agents", 2022).

    **Action.** ``search[query]`` on the search page, ``click[name]`` on whatever the page offers:
    a product id, an option value, a button. ``info["admissible_actions"]`` lists them, with the
    search as ``search[<query>]``; ``is_admissible`` decides on any text. Names are matched
    whatever their case. Any other text changes nothing and takes a turn.

    **Observation.** The page as text: ``text_rich`` (a line each, buttons marked), ``text``
    (strings joined with `` [SEP] ``) or ``url`` (the page's address).

    **Reward.** 0, and at the purchase the score in [0, 1]: the share of attributes, options and
    price bound met, times a factor for the kind of product. ``success`` is a score of exactly 1.
    With ``reward="success"`` the purchase pays 1 for a success and else 0.

    **End.** The purchase terminates. The step limit truncates: 15 turns, 8 with
    ``difficulty="small"``, none under ``compat="upstream"``.

    **Splits.** ``train``, ``validation``, ``test``. A built-in catalogue is split by product; for
    loaded data the published ranges of the goal order hold (0-499 test, 500-1499 validation, the
    rest train) unless ``split_by="product"``.

    **Details in info.** ``page`` (``index``, ``results``, ``item``, ``description``, ``features``,
    ``reviews``, ``attributes`` or ``done``), ``goal_index`` (place in the goal order),
    ``difficulty``, ``max_steps``, ``reason`` (why the action was inadmissible, or None); after the
    purchase also ``purchase`` (``asin`` and ``options``), ``first_result`` (whether it was the
    first product its search found) and ``reward_parts`` (``r_type``,
    ``r_att``, ``w_att``, ``query_match``, ``category_match``, ``title_score``, ``r_option`` and
    ``w_option`` where the goal asks for options, ``r_price``, ``w_price``).

    Args:
        data: The original's data: a folder with ``items_shuffle*.json``, ``items_ins_v2*.json``
            and, for human goals, ``items_human_ins*.json``; the products file in it; or a mapping
            ``{"products": ..., "attributes": ..., "human": ...}``. None means ``catalogue``.
        catalogue: ``"builtin:N"`` or ``"builtin:N:SEED"`` for a generated catalogue of N
            products, or a path as for ``data``. Default ``"builtin:1000"``.
        goals: ``"synthetic"`` (every combination of option values), ``"human"`` (one for each
            annotation), or recorded goals in the original's form (a list, or a JSON file).
        split: Split that ``reset`` draws from; by default ``train``. Under
            ``compat="upstream"`` the default draws from all goals, by weight.
        difficulty: ``"full"`` or ``"small"``: what a built-in catalogue is like, and the limit.
        max_steps: Step limit instead of the difficulty's.
        observation_mode: ``"text_rich"``, ``"text"`` or ``"url"``.
        compat: ``"strict"``, or ``"upstream"`` for the original's behaviour, faults included.
        expert: Put the oracle's remaining actions into ``info["reference"]``.
        reward: ``"score"`` or ``"success"``.
        nouns: Nouns of the names of loaded products, by product id (a mapping or a JSON file).
            None means the ``spacy`` extra computes them at load.
        split_by: ``"index"`` or ``"product"``.
        prices: Prices that count for loaded products, by product id, in place of the draw within
            a price range (a mapping or a JSON file).
        num_products: Read only so many rows of loaded data.
        page_size: Products on a result page. None means 10, or 5 in the small built-in catalogue.
        render_mode: ``"ansi"`` or None.

    Raises:
        CatalogueError: If data cannot be read; the message names file, place and remedy.
        ValueError: If an argument is none of those listed.
    """

    def __init__(
        self,
        *,
        data: PathLike | Mapping[str, PathLike] | None = None,
        catalogue: PathLike | None = None,
        goals: GoalSource = "synthetic",
        split: str | None = None,
        difficulty: Literal["small", "full"] = "full",
        max_steps: int | None = None,
        observation_mode: Mode = "text_rich",
        compat: Compat = "strict",
        expert: bool = False,
        reward: Literal["score", "success"] = "score",
        nouns: PathLike | Mapping[str, Sequence[str]] | None = None,
        split_by: Literal["index", "product"] | None = None,
        prices: PathLike | Mapping[str, float] | None = None,
        num_products: int | None = None,
        page_size: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        if observation_mode not in _MODES:
            raise ValueError(f"observation_mode must be one of {_MODES}, got {observation_mode!r}")
        if reward not in _REWARDS:
            raise ValueError(f"reward must be one of {_REWARDS}, got {reward!r}")
        config = ShopConfig(
            data=data,
            catalogue=catalogue,
            goals=goals,
            difficulty=difficulty,
            compat=compat,
            nouns=nouns,
            prices=prices,
            split_by=split_by,
            num_products=num_products,
            page_size=page_size,
        )
        upstream = compat == "upstream"
        known = (*SPLITS, EVERY_GOAL) if upstream else SPLITS
        if split is not None and split not in known:
            raise ValueError(f"split must be one of {known}, got {split!r}")
        if max_steps is None and not upstream:
            max_steps = TURN_LIMITS[difficulty]
        if split is None and upstream:
            split = EVERY_GOAL
        super().__init__(split=split, max_steps=max_steps, expert=expert, render_mode=render_mode)
        self.observation_mode: Mode = observation_mode
        self.compat: Compat = compat
        self.difficulty = difficulty
        self._pays_success_only = reward == "success"
        self._session_class = UpstreamSession if upstream else Session
        self._shop: Shop | None = open_shop(config)
        self._session: Session | None = None
        self.tasks = self._shop.tasks
        if split is not None and split != EVERY_GOAL and not self._shop.splits[split]:
            raise ValueError(
                f"split {split!r} is empty: there are {len(self._shop.goals)} goals and the "
                "published split gives the first 500 to test; split_by='product' divides any number"
            )

    # The world ---------------------------------------------------------------------------------

    @property
    def shop(self) -> Shop:
        """Products, search and goals, shared with other environments of the same arguments.

        Raises:
            RuntimeError: After :meth:`close`.
        """
        if self._shop is None:
            raise RuntimeError("the environment is closed; make a new one")
        return self._shop

    @property
    def session(self) -> Session:
        """The state of the current episode.

        Raises:
            RuntimeError: Before the first reset.
        """
        if self._session is None:
            raise RuntimeError("no episode yet; call reset() first")
        return self._session

    @property
    def current_goal(self) -> Goal:
        """What the current episode asks for, hidden facts included."""
        return self.session.goal

    def purchase_score(self) -> Reward:
        """What buying the open product with the selected options would be worth now.

        Raises:
            RuntimeError: If no product is open.
        """
        return self.session.score()

    def option_action(self, group: str, value: str) -> str:
        """The click that selects a value on the open item page.

        Raises:
            KeyError: If the open product has no such option.
            RuntimeError: If no product is open.
        """
        view = self.session.view
        if view is None:
            raise RuntimeError(f"no product is open on the {self.session.page} page")
        for name, label in view.label_of.items():
            if (label.group, label.value) == (group, value):
                return f"click[{name}]"
        raise KeyError(f"product {view.asin} has no option {group!r}: {value!r}")

    # TextEnv -----------------------------------------------------------------------------------

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, Info]:  # type: ignore[override]
        """Apply ``action``; under the original's rules a purchase ends nothing."""
        if self.compat == "upstream" and self._last is not None and self._last.terminated:
            self._over = False
        return super().step(action)

    def close(self) -> None:
        """Let go of the shop; its memory is freed with the last environment that uses it."""
        self._shop = None
        self._session = None
        self._over = True

    def _begin(self, task_id: str) -> Outcome:
        shop = self.shop
        self._task_split = self.tasks.split_of(task_id)
        self._session = self._session_class(shop, shop.goals[task_id], self._draw)
        return Outcome(self._session.observe(self.observation_mode), details=self._details(None))

    def _act(self, action: str) -> Outcome:
        session = self._session
        assert session is not None
        before = session.purchase
        reason = session.act(action)
        outcome = Outcome(
            session.observe(self.observation_mode),
            action_valid=reason is None,
            details=self._details(reason),
        )
        bought = session.purchase
        if bought is not before and bought is not None:
            total = bought.reward.total
            outcome.terminated = True
            outcome.score = total
            outcome.success = total == 1.0
            outcome.reward = float(outcome.success) if self._pays_success_only else total
            outcome.details["purchase"] = {"asin": bought.asin, "options": dict(bought.options)}
            found = session.results
            outcome.details["first_result"] = bool(found) and found[0].asin == bought.asin
            outcome.details["reward_parts"] = bought.reward.parts()
        return outcome

    def _details(self, reason: str | None) -> dict[str, Any]:
        session = self._session
        assert session is not None
        page = session.page
        return {
            "page": session.sub_page.lower() if page == "sub" else page,
            "goal_index": session.goal.index,
            "difficulty": self.difficulty,
            "max_steps": self.max_steps,
            "reason": reason,
        }

    def _draw(self) -> int:
        return int(self.np_random.integers(1 << 62))

    def admissible_actions(self) -> tuple[str, ...] | None:
        """Every action accepted now; a search stands as ``search[<query>]``."""
        return None if self._session is None else self._session.actions()

    def is_admissible(self, action: str) -> bool:
        """Whether the environment would accept ``action`` now."""
        return self._session is not None and not self._over and self._session.is_admissible(action)

    def goal(self) -> str:
        """The instruction."""
        return self.session.goal.instruction

    def task_type(self) -> str:
        """Department of the product the goal was made from."""
        return self.session.goal.category

    def reference(self) -> tuple[str, ...]:
        """The oracle's remaining actions from the current page."""
        from envs.webshop.oracle import plan

        return tuple(plan(self.session))
