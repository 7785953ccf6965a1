"""The metrics, against the identities that hold between the columns of the published table."""

from __future__ import annotations

import json

import pytest

from envs.agencybench.metrics import (
    AttemptRecord,
    ScenarioRecord,
    TaskRecord,
    attempts_per_task,
    pass_at,
    score_average,
    summary,
)

# model: Game, Frontend, Backend, Code, Research, MCP, SAvg, Att, P@1, P@2, Mtok, E_att, E_tok
TABLE = {
    "GPT-5.2": (52.2, 74.7, 61.0, 50.7, 64.4, 52.1, 56.5, 1.46, 28.1, 53.1, 3.4, 38.7, 16.7),
    "Claude-4.5-Opus": (
        52.1, 49.3, 49.6, 24.0, 68.8, 64.4, 47.7, 1.54, 15.6, 28.1, 1.7, 31.0, 27.9,
    ),
    "Gemini-3-Pro": (60.7, 81.0, 31.3, 23.5, 40.0, 61.8, 46.9, 1.46, 28.1, 37.5, 1.8, 32.1, 26.1),
    "Claude-4.5-Sonnet": (
        56.5, 51.6, 35.3, 17.3, 71.4, 62.3, 46.4, 1.49, 21.9, 40.6, 4.1, 31.1, 11.4,
    ),
    "Grok-4.1-Fast": (38.8, 65.7, 37.3, 26.4, 63.8, 68.6, 44.3, 1.55, 25.0, 31.3, 1.2, 28.6, 37.2),
    "GLM-4.6": (59.2, 64.3, 20.0, 11.9, 32.0, 49.8, 38.6, 1.54, 28.1, 37.5, 2.4, 25.1, 16.0),
    "Kimi-K2-Thinking": (
        40.6, 54.7, 24.3, 11.8, 33.6, 31.4, 34.2, 1.79, 6.3, 25.0, 2.8, 19.1, 12.1,
    ),
    "DeepSeek-V3.2": (36.5, 49.3, 20.7, 11.6, 22.0, 48.5, 28.6, 1.63, 9.4, 9.4, 1.5, 17.6, 18.8),
    "Qwen-3-235B": (40.4, 57.7, 3.3, 4.6, 34.4, 20.9, 27.0, 1.79, 3.1, 9.4, 1.2, 15.1, 22.9),
}  # fmt: skip
SCENARIOS = {"Game": 10, "Frontend": 3, "Backend": 3, "Code": 9, "Research": 5, "MCP": 2}
TASKS = {"Game": 50, "Frontend": 15, "Backend": 15, "Code": 29, "Research": 19, "MCP": 10}
# (text, vision) of the best attempt at the 15 Frontend tasks of the published demonstration.
FRONTEND_DEMO = (
    ((4, 8), (10, 6), (8, 6), (0, 0), (0, 0)),
    ((8, 9), (10, 10), (9, 8), (0, 0), (0, 0)),
    ((8, 10), (9, 9), (8, 8), (0, 0), (0, 0)),
)


def attempt(score, **more):
    return AttemptRecord(score, **more)


def record(name, scores, capability="Code"):
    """``scores``: for each task the scores of its attempts."""
    tasks = [
        TaskRecord(f"subtask{n}", tuple(attempt(s) for s in task))
        for n, task in enumerate(scores, 1)
    ]
    return ScenarioRecord(name, capability, tuple(tasks))


def as_played(row, attempts_total):
    """Records with a row's capability scores, and as many attempts as its ``Att`` says."""
    records, spare = [], attempts_total - 138
    for (capability, scenarios), score in zip(SCENARIOS.items(), row[:6], strict=True):
        sizes = [TASKS[capability] // scenarios] * scenarios
        for n in range(TASKS[capability] - sum(sizes)):
            sizes[n] += 1
        for n, size in enumerate(sizes):
            tasks = []
            for _ in range(size):
                again = min(spare, 1)
                spare -= again
                tasks.append((score / 100,) * (1 + again))
            records.append(record(f"{capability}{n}", tasks, capability))
    return records


def test_there_are_138_tasks_in_32_scenarios():
    assert (sum(SCENARIOS.values()), sum(TASKS.values())) == (32, 138)


@pytest.mark.parametrize("model", TABLE)
def test_efficiencies_follow_from_the_other_columns(model):
    row = TABLE[model]
    played = as_played(row, round(row[7] * 138))
    # The tokens that give the published millions a scenario.
    first = played[0].tasks[0]
    tokens = AttemptRecord(first.attempts[0].score, tokens_in=int(row[10] * 32e6))
    tasks = (TaskRecord(first.id, (tokens, *first.attempts[1:])), *played[0].tasks[1:])
    played[0] = ScenarioRecord(played[0].id, played[0].capability, tasks)
    made = summary(played)
    assert made["att"] == pytest.approx(row[7], abs=0.005)
    assert row[6] / made["att"] == pytest.approx(row[11], abs=0.2)
    assert made["e_att"] == pytest.approx(made["savg"] / made["att"])
    # Millions are published with two digits: E_tok agrees as far as those allow.
    assert row[6] / (row[10] + 0.051) - 0.05 <= row[12] <= row[6] / (row[10] - 0.051) + 0.05
    assert made["e_tok"] == pytest.approx(made["savg"] / row[10])


@pytest.mark.parametrize("model", sorted(set(TABLE) - {"Kimi-K2-Thinking"}))
def test_published_average_weighs_scenarios(model):
    row = TABLE[model]
    played = as_played(row, 138)
    by_scenario = 100 * score_average(played, "scenario")
    by_hand = sum(SCENARIOS[c] * s for c, s in zip(SCENARIOS, row[:6], strict=True)) / 32
    assert by_scenario == pytest.approx(by_hand)
    assert by_scenario == pytest.approx(row[6], abs=1.0)


def test_scenario_weights_fit_the_table_better_than_the_others():
    misses = {}
    for weighting in ("scenario", "task", "capability"):
        gaps = [
            abs(100 * score_average(as_played(row, 138), weighting) - row[6])
            for model, row in TABLE.items()
            if model != "Kimi-K2-Thinking"
        ]
        misses[weighting] = sum(gaps) / len(gaps)
    assert min(misses, key=misses.get) == "scenario"


@pytest.mark.parametrize("model", TABLE)
@pytest.mark.parametrize("column", [8, 9])
def test_published_pass_rates_are_counts_of_scenarios(model, column):
    count = round(TABLE[model][column] * 32 / 100)
    passing = [record(f"p{n}", [[1.0]]) for n in range(count)]
    failing = [record(f"f{n}", [[0.0]]) for n in range(32 - count)]
    rate = 100 * pass_at(passing + failing, 1, over="scenarios")
    assert rate == pytest.approx(TABLE[model][column], abs=0.051)


def test_frontend_of_the_demonstration():
    """Mean of the two judges, best attempt, mean over tasks: 49.33, published as 49.3."""
    played = [
        record(f"f{n}", [[(text + vision) / 20] for text, vision in tasks], "Frontend")
        for n, tasks in enumerate(FRONTEND_DEMO)
    ]
    made = summary(played)
    assert made["savg"] == pytest.approx(49.333, abs=1e-3)
    assert round(made["capabilities"]["Frontend"], 1) == TABLE["Claude-4.5-Opus"][1]


# Definitions ------------------------------------------------------------------------------------


def test_tasks_never_reached_count():
    played = [record("a", [[1.0], []])]
    assert score_average(played) == 0.5
    assert attempts_per_task(played) == 0.5
    assert pass_at(played, 2) == 0.5


def test_pass_within_k_attempts_and_exactly_at_the_threshold():
    played = [record("a", [[0.2, 0.1 + 0.5], [0.3 * 2]])]
    assert pass_at(played, 1) == 0.5
    assert pass_at(played, 2) == 1.0
    assert pass_at(played, 2, threshold=0.61) == 0.0
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        pass_at(played, 0)


def test_best_first_and_last_differ():
    task = TaskRecord("t", tuple(attempt(s) for s in (0.2, 0.9, 0.4)))
    assert (task.first, task.best(), task.last, task.best(1)) == (0.2, 0.9, 0.4, 0.2)


def test_an_assessor_that_failed_is_no_score_and_is_counted():
    played = [record("a", [[None, 0.8], [None]])]
    made = summary(played)
    assert made["tasks"][0]["best"] == 0.8
    assert made["infra_error_rate"] == pytest.approx(2 / 3)
    assert made["tasks"][1]["attempts"] == [None]


def test_weightings():
    played = [record("a", [[1.0]], "Game"), record("b", [[0.0]] * 3), record("c", [[0.0]])]
    assert score_average(played, "scenario") == pytest.approx(1 / 3)
    assert score_average(played, "task") == pytest.approx(1 / 5)
    assert score_average(played, "capability") == pytest.approx(1 / 2)
    with pytest.raises(ValueError, match="unknown weighting 'tasks'"):
        score_average(played, "tasks")


def test_summary_counts_calls_and_is_json():
    calls = [{"read_file": 2, "submit": 1}, {"read_file": 1}]
    tasks = tuple(TaskRecord(f"t{n}", (attempt(0.5, calls=c),)) for n, c in enumerate(calls))
    made = summary([ScenarioRecord("a", "Code", tasks)])
    assert made["tool_calls"] == {"read_file": 3, "submit": 1}
    assert made["tool_calls_per_scenario"] == 4
    assert made["e_tok"] is None
    assert json.loads(json.dumps(made)) == made


def test_nothing_played():
    made = summary([])
    assert (made["savg"], made["att"], made["e_att"]) == (0.0, 0.0, None)


def test_scores_outside_the_unit_interval_are_refused():
    with pytest.raises(ValueError, match=r"lies in \[0, 1\], got 8"):
        AttemptRecord(8)


@pytest.mark.parametrize(
    "arguments",
    [
        {"score": float("nan")}, {"score": -0.1}, {"score": 1.0, "coverage": 1.5},
        {"score": None, "coverage": float("nan")}, {"score": 1.0, "tokens_in": -1},
        {"score": 1.0, "seconds": float("inf")}, {"score": 1.0, "calls": {"submit": -1}},
    ],
)  # fmt: skip
def test_records_that_cannot_be_are_refused(arguments):
    with pytest.raises(ValueError, match="of an attempt"):
        AttemptRecord(**arguments)


@pytest.mark.parametrize(("k", "threshold"), [(0, 0.6), (1.5, 0.6), (True, 0.6), (1, float("nan"))])
def test_rates_that_cannot_be_are_refused(k, threshold):
    with pytest.raises(ValueError, match=r"^(k|threshold) must"):
        pass_at([], k, threshold=threshold)
