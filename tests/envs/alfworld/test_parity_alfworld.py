"""Both engines side by side; and the comparison itself, on engines that were tampered with."""

from __future__ import annotations

import random
import re

import pytest
from alfworld_room import RoomSource

from benchmarks import parity_alfworld
from envs.alfworld.simulator import Sim


class Stand:
    """The native engine in the place of the original, with a fault on request."""

    fault = ""
    rooms = RoomSource()

    def __init__(self, style):
        self.style = style
        self.closed = False

    def reset(self, game):
        self.sim = Sim(self.rooms.world(game["task_id"]), self.style)
        return self._said(self.sim.reset())

    def step(self, command):
        if self.fault == "crash" and self.sim.moves > 3:
            raise RuntimeError("Traceback\nKeyError: 'x'")
        return self._said(self.sim.step(command))

    def _said(self, text):
        return text.replace("arrive", "come") if self.fault == "observation" else text

    def admissible(self):
        listed = self.sim.admissible()
        if self.fault == "order" and self.sim.moves > 2:
            return listed[1:2] + listed[:1] + listed[2:]
        return listed

    @property
    def won(self):
        return self.sim.won != (self.fault == "won" and self.sim.moves > 4)

    @property
    def accepted(self):
        return self.sim.accepted

    @property
    def moves(self):
        return self.sim.moves

    def close(self):
        self.closed = True


@pytest.fixture
def stand(monkeypatch):
    monkeypatch.setattr(parity_alfworld, "TextWorldSim", Stand)
    monkeypatch.setattr(parity_alfworld, "open_dataset", lambda data: Stand.rooms)
    yield monkeypatch
    Stand.fault = ""


def run(capsys, *arguments):
    code = parity_alfworld.main(["--data", "rooms", *arguments])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("style", ["move", "put"])
def test_equal_engines(stand, capsys, style):
    code, out = run(capsys, "--steps", "500", "--seed", "1", "--style", style)
    assert code == 0
    assert "games: 13 " in out
    assert "steps: 500 (" in out
    assert "walkthroughs: 12" in out
    assert "mismatches: 0" in out
    for kind in ("random", "near miss", "junk", "walkthrough", "errand"):
        assert re.search(rf"[1-9]\d* {kind}", out), kind


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        ("observation", "observation after"),
        ("order", "admissible after"),
        ("won", "won after"),
        ("crash", "the original failed after"),
    ],
)
def test_any_difference_is_found(stand, capsys, fault, shown):
    Stand.fault = fault
    code, out = run(capsys, "--steps", "200", "--seed", "1")
    assert code == 1
    assert "mismatches: 0" not in out
    assert shown in out


def test_a_walkthrough_that_fails_is_found(stand, capsys):
    rooms = RoomSource()
    tampered = rooms.world("train/look_at_obj_in_light-room/t1")
    object.__setattr__(tampered, "walkthrough", tampered.walkthrough[:-1])
    stand.setattr(parity_alfworld, "open_dataset", lambda data: rooms)
    code, out = run(capsys, "--steps", "40")
    assert code == 1
    assert "train/look_at_obj_in_light-room/t1: the walkthrough does not win" in out
    object.__setattr__(tampered, "walkthrough", ("fly",))
    assert "'fly' of the walkthrough is out of place" in run(capsys, "--steps", "40")[1]


def test_one_split(stand, capsys):
    code, out = run(capsys, "--steps", "40", "--split", "valid_seen")
    assert code == 0
    assert "walkthroughs: 6" in out
    assert "games: 1 " in out


def test_the_same_seed_plays_the_same(stand):
    heard = []
    stand.setattr(Stand, "step", lambda self, text: heard.append(text) or self.sim.step(text))
    for _ in range(2):
        parity_alfworld.compare(Stand.rooms, 120, seed=3)
    assert len(heard) == 240
    assert heard[:120] == heard[120:]


def test_absent_data(capsys):
    assert parity_alfworld.main(["--data", "/nowhere/at/all"]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_errands_treat_slice_and_examine():
    said = set()
    for seed in range(30):
        sim, rng = (
            Sim(Stand.rooms.world("train/pick_heat_then_place_in_recep-room/t1")),
            random.Random(seed),
        )
        for _ in range(8):
            for command in parity_alfworld.errand(rng, sim):
                said.add(re.sub(r"\w+ \d+", "X", sim.step(command)))
    for text in (
        "You clean the X using the X.",
        "You heat the X using the X.",
        "You cool the X using the X.",
        "You sliced the X with the X.",
        "You turn on the X.",
        "This is a hot X.",
    ):
        assert text in said


def test_near_misses_are_of_many_kinds():
    rooms = RoomSource()
    sim = Sim(rooms.world("train/pick_and_place_simple-room/t1"))
    rng = random.Random(0)
    texts = [parity_alfworld.near_miss(rng, sim.world, sim.admissible()) for _ in range(400)]
    accepted = [text for text in texts if sim.is_admissible(text)]
    assert 0 < len(accepted) < 120
    assert len(set(texts)) > 250


@pytest.mark.data
def test_every_official_walkthrough_wins(games):
    tally = parity_alfworld.Tally()
    assert parity_alfworld.walkthroughs(games, None, tally) == 1340
    assert tally.shown == []


@pytest.mark.textworld
@pytest.mark.data
def test_a_sample_of_official_games(games):
    tally = parity_alfworld.compare(games, 320, seed=0, steps_a_game=64)
    assert tally.shown == []
    assert tally.steps == 320
    assert tally.games == 5


@pytest.mark.textworld
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.marathon
@pytest.mark.parametrize("style", ["move", "put"])
def test_ten_thousand_steps_of_official_games(games, style):
    tally = parity_alfworld.compare(games, 10_000 if style == "move" else 1_000, 1, style=style)
    assert tally.shown == []
    assert tally.steps >= 1_000
