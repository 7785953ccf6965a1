"""The loader of a user's clone."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path

import pytest
from processes import run_ok

from envs.agencybench.upstream.files import CloneError, read_plain
from envs.agencybench.upstream.loader import load_clone
from envs.agencybench.upstream.policies import SCENARIOS
from envs.agencybench.upstream.sections import SectionError, split_task

ROOT = Path(__file__).resolve().parents[3]


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def clone(tmp_path):
    """A clone in miniature: one scenario by rules, one with an answer in its rubric."""
    desktop = tmp_path / "AgencyBench-v2/MCP/scenario2"
    tasks = {f"subtask{n}": f"Step {n}\\nDo it." for n in range(1, 6)}
    write(
        desktop / "description.json",
        json.dumps({"subtask_count": 5, "workspace_brief": "a\\nb", "initial_tree": "t", **tasks}),
    )
    write(desktop / "desktop/notes/a.md", "A")
    write(desktop / "desktop/.DS_Store", "x")
    write(desktop / ".env", "KEY=secret")
    research = tmp_path / "AgencyBench-v2/Research/scenario2"
    task = {"query": "Who?", "deliverables": ["subtask1.md"], "rubric": "10: names Paul George"}
    write(
        research / "description.json",
        json.dumps({"subtask_count": 5, **{f"subtask{n}": task for n in range(1, 6)}}),
    )
    return tmp_path


def load(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_clone(path)


# Real data --------------------------------------------------------------------------------------


@pytest.fixture
def real(data_dir):
    return load_clone(data_dir / "agencybench")


@pytest.mark.data
def test_all_scenarios_and_tasks_parse(real):
    assert len(real) == 32
    counts = Counter()
    for scenario in real.values():
        counts[scenario.capability] += len(scenario.tasks)
    assert counts == {
        "Backend": 15, "Code": 29, "Frontend": 15, "Game": 50, "MCP": 10, "Research": 19,
    }  # fmt: skip
    for name, scenario in real.items():
        assert len(scenario.tasks) == SCENARIOS[name.removeprefix("upstream/")].tasks
        assert all(task.query.strip() for task in scenario.tasks)


@pytest.mark.data
def test_forms_are_as_counted(data_dir):
    forms: dict[str, Counter] = {}
    for name in SCENARIOS:
        path = data_dir / "agencybench/AgencyBench-v2" / name / "description.json"
        described = json.loads(path.read_text("utf-8"))
        for number in range(1, described["subtask_count"] + 1):
            form = split_task(described[f"subtask{number}"]).form
            forms.setdefault(form, Counter())[name.partition("/")[0]] += 1
    assert {form: sum(found.values()) for form, found in forms.items()} == {
        "rubric": 100, "criteria": 10, "query": 2, "free": 16, "object": 10,
    }  # fmt: skip
    assert forms["rubric"] == {"Backend": 15, "Code": 15, "Frontend": 15, "Game": 50, "Research": 5}


@pytest.mark.data
def test_no_text_is_lost(data_dir, real):
    """Every word of a description is in some section, but for the headings."""
    for name in SCENARIOS:
        path = data_dir / "agencybench/AgencyBench-v2" / name / "description.json"
        described = json.loads(path.read_text("utf-8"))
        for number in range(1, described["subtask_count"] + 1):
            task = described[f"subtask{number}"]
            if isinstance(task, dict):
                continue
            made = split_task(task)
            kept = "".join((made.query + made.deliverables + made.rubric).split())
            text = task if "\n" in task else task.replace("\\n", "\n")
            assert len("".join(text.split())) - len(kept) <= 45, (name, number)


@pytest.mark.data
def test_descriptions_are_of_the_known_version(data_dir):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_clone(data_dir / "agencybench" / "AgencyBench-v2")


@pytest.mark.data
def test_rubrics_that_name_answers_are_hidden(real):
    for name in ("upstream/Research/scenario2", "upstream/Research/scenario3"):
        for task in real[name].tasks:
            assert not task.rubric
            text = task.text + "".join(check.required for check in task.checks)
            for answer in (
                "Paul George",
                "Harden",
                "Durant",
                "Thompson",
                "UnitedHealth",
                "Citigroup",
            ):
                assert answer not in text


@pytest.mark.data
def test_scenarios_without_their_files_say_so(real):
    """The recordings hold descriptions alone."""
    missing = {name: made.unavailable for name, made in real.items() if made.unavailable}
    assert "no folder scenario2/desktop" in missing["upstream/MCP/scenario2"]
    assert "autogen" in missing["upstream/Code/scenario2"]
    assert "upstream/MCP/scenario1" not in missing
    for name in ("Code/scenario1", "Code/scenario4", "Code/scenario6", "Code/scenario9"):
        assert "no folder" in missing[f"upstream/{name}"]
    assert "upstream/Backend/scenario1" not in missing
    assert "upstream/Game/scenario10" not in missing


@pytest.mark.data
def test_coverage_with_and_without_judges(real):
    none, text, both = frozenset(), frozenset({"judge"}), frozenset({"judge", "vision", "browser"})
    assert real["upstream/MCP/scenario2"].coverage(none) == 1.0
    assert real["upstream/Research/scenario3"].coverage(none) == 1.0
    assert real["upstream/Game/scenario1"].coverage(none) == 0.0
    assert real["upstream/Game/scenario1"].coverage(frozenset({"browser"})) == pytest.approx(0.85)
    assert real["upstream/Code/scenario1"].coverage(none) == pytest.approx(0.9)
    assert real["upstream/Code/scenario1"].coverage(text) == 1.0
    assert all(scenario.coverage(both) == 1.0 for scenario in real.values())


@pytest.mark.data
def test_policies_differ_as_the_scripts_do(real):
    halting = {name for name, made in real.items() if made.policy.halt}
    assert halting == {
        f"upstream/{name}"
        for name in (
            "Code/scenario6", "Code/scenario7", "MCP/scenario2", "Research/scenario4",
            "Research/scenario5",
        )
    }  # fmt: skip
    resets = Counter(made.policy.reset for made in real.values())
    assert resets == {"copy": 19, "shared": 11, "pristine": 2}


# Sections ---------------------------------------------------------------------------------------


def test_sections():
    made = split_task("\nQuery:\nBuild.\nDeliverables:\n- a\nRubric:\n- 10 points: all")
    assert (made.query, made.deliverables, made.rubric) == ("Build.", "- a", "- 10 points: all")
    made = split_task("**Query:** Build.\n**Acceptance Criteria:**\n- it works")
    assert (made.query, made.rubric, made.form) == ("Build.", "- it works", "criteria")
    made = split_task("Query\nFit it.")
    assert (made.query, made.form) == ("Fit it.", "query")
    made = split_task("Step 1\\nGoal: x")
    assert made.query == "Step 1\nGoal: x"
    made = split_task("A query: this. Query is a word.")
    assert made.form == "free"


@pytest.mark.parametrize("task", [None, 3, ["a"], {"rubric": "x"}, {"query": "q", "rubric": 5}])
def test_tasks_of_no_form_are_refused(task):
    with pytest.raises(SectionError):
        split_task(task)


# A clone in miniature ---------------------------------------------------------------------------


def test_seeds_are_the_agents_and_nothing_else(clone):
    from agentgym.dice import Dice

    scenario = load(clone)["upstream/MCP/scenario2"]
    assert scenario.unavailable is None
    world = scenario.build(Dice(1))
    assert dict(world.files) == {"desktop/notes/a.md": b"A"}
    assert world.folders == ("desktop_2",)
    assert scenario.brief == "a\nb\n\nt"
    assert scenario.tasks[0].query == "Step 1\nDo it."


def test_absent_scenarios_are_unavailable_with_the_reason(clone):
    made = load(clone)
    assert "no Game/scenario1/description.json" in made["upstream/Game/scenario1"].unavailable


def test_an_unknown_version_is_said(clone):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        load_clone(clone)
    assert sorted(str(warning.message).split("/description")[0] for warning in said) == [
        "MCP/scenario2", "Research/scenario2",
    ]  # fmt: skip


def test_env_files_are_never_opened(clone):
    """Every path that the process opens is watched."""
    code = f"""
import sys
opened = []
sys.addaudithook(lambda name, args: opened.append(str(args[0])) if name == "open" else None)
import warnings
warnings.simplefilter("ignore")
from agentgym.dice import Dice
from envs.agencybench.upstream.loader import load_clone
for scenario in load_clone({str(clone)!r}).values():
    if scenario.unavailable is None:
        scenario.build(Dice(0))
mine = [path for path in opened if {str(clone)!r} in path]
assert any(path.endswith("description.json") for path in mine)
assert any(path.endswith("a.md") for path in mine)
assert not any("/.env" in path for path in mine), mine
"""
    run_ok(code, path=(ROOT,))


@pytest.mark.parametrize(
    "name",
    [".env", ".env.local", ".ENV", ".Env.production", "prod.env", ".envrc", "eval_task.py",
     "query_1.json", "x.pyc"],
)  # fmt: skip
def test_some_files_are_refused_by_name(tmp_path, name):
    write(tmp_path / name, "secret")
    with pytest.raises(CloneError, match="never read"):
        read_plain(tmp_path / name)


def test_links_pipes_and_large_files_are_refused(tmp_path):
    import os

    write(tmp_path / "target", "x" * 100)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CloneError, match="cannot be read"):
        read_plain(tmp_path / "link")
    with pytest.raises(CloneError, match="no plain file"):
        read_plain(tmp_path / "pipe")
    with pytest.raises(CloneError, match="larger than 99"):
        read_plain(tmp_path / "target", 99)


def test_folders_that_are_no_clone_are_refused(tmp_path):
    with pytest.raises(CloneError, match="neither a clone of AgencyBench"):
        load_clone(tmp_path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("{", "not valid JSON"),
        ("[]", "must hold an object"),
        ('{"subtask_count": "5"}', "subtask_count must be an int"),
        ('{"subtask_count": 2, "subtask1": "a"}', "subtask2"),
        (b'{"subtask_count": 1, "subtask1": "\xff"}', "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("", "not valid JSON"),
    ],
)
def test_broken_descriptions_are_named(clone, content, match):
    write(clone / "AgencyBench-v2/MCP/scenario2/description.json", content)
    with pytest.raises(CloneError, match=match) as raised:
        load(clone)
    assert "MCP/scenario2/description.json" in str(raised.value)


def test_a_description_with_more_tasks_than_are_known_makes_its_scenario_unavailable(clone):
    tasks = {f"subtask{n}": "Do it." for n in range(1, 8)}
    path = clone / "AgencyBench-v2/MCP/scenario2/description.json"
    write(path, json.dumps({"subtask_count": 7, **tasks}))
    made = load(clone)
    assert "has 7 tasks, of which 5" in made["upstream/MCP/scenario2"].unavailable
    write(path, json.dumps({"subtask_count": 3, **tasks}))
    assert len(load(clone)["upstream/MCP/scenario2"].tasks) == 3


def test_what_cannot_be_read_is_named(clone, tmp_path, monkeypatch):
    import os

    place = clone / "AgencyBench-v2/MCP/scenario2/desktop"
    real = os.scandir

    def refused(path):
        if str(path).endswith("notes"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refused)
    assert "notes cannot be read" in load(clone)["upstream/MCP/scenario2"].unavailable
    monkeypatch.undo()
    with open(os.fsencode(place) + b"/a\xff.md", "wb"):
        assert "no text" in load(clone)["upstream/MCP/scenario2"].unavailable


def test_links_to_secrets_are_not_followed(clone):
    from agentgym.dice import Dice

    scenario = clone / "AgencyBench-v2/MCP/scenario2"
    write(scenario / "desktop/.ENV", "KEY=secret")
    (scenario / "desktop/notes/plain.md").symlink_to(scenario / ".env")
    (scenario / "desktop/linked").symlink_to(scenario)
    files = load(clone)["upstream/MCP/scenario2"].build(Dice(1)).files
    assert list(files) == ["desktop/notes/a.md"]
    (scenario / "description.json").unlink()
    (scenario / "description.json").symlink_to(scenario / ".env")
    with pytest.raises(CloneError, match=r"description\.json cannot be read"):
        load(clone)


@pytest.mark.data
def test_ends_of_lines_make_no_other_version(data_dir, tmp_path):
    for place in sorted((data_dir / "agencybench/AgencyBench-v2").glob("*/*/description.json")):
        content = place.read_bytes().replace(b"\n", b"\r\n")
        name = place.relative_to(data_dir / "agencybench")
        write(tmp_path / "a clone" / name, b"\xef\xbb\xbf" + content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load_clone(tmp_path / "a clone")) == 32


def test_references_and_observations_of_another_form_are_named(tmp_path):
    from envs.agencybench.upstream.files import read_references

    for number, content in enumerate(("[1]", "{", "[" * 100_000)):
        root = tmp_path / str(number)
        write(root / "geometry/7/ex.json", content)
        with pytest.raises(CloneError, match=r"ex\.json"):
            read_references(root)
