import gymnasium as gym
import pytest

import agentgym  # noqa: F401 - registers the environments
from benchmarks.webshop_baselines import main
from envs.webshop.baselines import Outcome, Rates, rates, rule_actions
from envs.webshop.env import TURN_LIMITS
from envs.webshop.rule import FixedRule, matching_options, rule_action

SPLITS = ("train", "validation", "test")


@pytest.mark.parametrize("goals", ["synthetic", "human"])
@pytest.mark.parametrize("difficulty", ["small", "full"])
def test_the_fixed_rule_solves_at_most_half_of_each_split(difficulty, goals):
    env = gym.make("WebShop-v0", difficulty=difficulty, goals=goals)
    assert env.unwrapped.max_steps == TURN_LIMITS[difficulty]
    for split in SPLITS:
        ids = env.unwrapped.tasks.ids(split)
        found = rates(env, rule_actions, ids if split != "train" else ids[::5])
        assert 0.15 <= found.success <= 0.45, (split, found)
        assert found.first == 1.0
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("difficulty", ["small", "full"])
def test_the_fixed_rule_fares_no_better_in_other_catalogues(difficulty, seed):
    env = gym.make("WebShop-v0", difficulty=difficulty, catalogue=f"builtin:1000:{seed}")
    for split in SPLITS:
        assert rates(env, rule_actions, env.unwrapped.tasks.ids(split)).success <= 0.5
    env.close()


def test_options_match_as_whole_words_and_the_longest_wins():
    goal = "i need a wine red x-large shirt, size 6.5, and price lower than 30.00 dollars"
    labels = ["red", "wine red", "large", "x-large", "6", "6.5", "30.00", "shirts", "xx-large"]
    assert matching_options(goal, labels) == ["wine red", "x-large", "6.5"]
    assert matching_options("the red one and the wine red one", ["red", "wine red"]) == [
        "red",
        "wine red",
    ]
    assert matching_options('a rug of 24" x 36".', ['24" x 36"', '12" x 18"']) == ['24" x 36"']
    assert matching_options("nothing", []) == []


def test_the_rule_acts_by_page():
    goal = "a red lamp"
    assert rule_action(goal, ("search[<query>]",)) == "search[a red lamp]"
    results = ("click[back to search]", "click[next >]", "click[b01]", "click[b02]")
    assert rule_action(goal, results) == "click[b01]"
    assert rule_action(goal, ("click[back to search]",)) == "click[back to search]"
    item = ("click[back to search]", "click[< prev]", "click[buy now]", "click[red]", "click[blue]")
    assert rule_action(goal, item) == "click[red]"
    assert rule_action(goal, item, {"red"}) == "click[buy now]"
    with pytest.raises(ValueError, match="episode is over"):
        rule_action(goal, ())


def test_the_rule_forgets_what_it_clicked_on_another_product():
    rule = FixedRule()
    item = ("click[back to search]", "click[buy now]", "click[red]")
    assert rule.act("red", item) == "click[red]"
    assert rule.act("red", item) == "click[buy now]"
    rule.act("red", ("click[back to search]", "click[b01]"))
    assert rule.act("red", item) == "click[red]"


def test_averages():
    outcomes = [Outcome("a", 1.0, True, 4, True), Outcome("b", 0.5, False, 8, None)]
    assert Rates.of(outcomes) == Rates(2, 0.5, 0.75, 6.0, 1.0)
    assert Rates.of([]) == Rates(0, 0.0, 0.0, 0.0, 0.0)


def test_the_command_line_prints_both_players(capsys):
    assert main(["--catalogue", "builtin:90", "--most", "6", "--difficulty", "small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if " rule " in line]) == 6
    oracle = [line.split() for line in lines if line.startswith("small") and " oracle " in line]
    assert len(oracle) == 6
    assert all(line[3] == "8" and float(line[6]) == 1.0 for line in oracle)
    assert lines[-1] == "goals that the oracle does not meet: 0 (0 of them could be met)"
    assert main(["--catalogue", "builtin:90", "--most", "2", "--max-steps", "3"]) == 1


@pytest.mark.data
def test_goals_of_the_original_that_nobody_can_meet_are_listed(data_dir, capsys):
    folder = data_dir / "webshop"
    assert main(["--data", str(folder), "--most", "60", "--goals", "synthetic"]) == 0
    lines = capsys.readouterr().out.splitlines()
    oracle = [
        float(line.split()[6]) for line in lines if line.startswith("full ") and " oracle " in line
    ]
    assert len(oracle) == 3
    assert all(rate > 0.8 for rate in oracle)
    listed = [line for line in lines if ": reached " in line]
    assert listed
    for line in listed:
        reached, best = (
            float(line.split(word)[1].split()[0].strip(",")) for word in ("reached", "best")
        )
        assert reached == best < 1.0
