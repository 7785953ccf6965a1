"""Code/4 and Research/1, 4 and 5: what is asked for, nothing, and what only looks like it."""

from __future__ import annotations

import json

import pytest

from agentgym.sandbox import Snapshot
from envs.agencybench.assessment import Assessment
from envs.agencybench.assessor import assess
from envs.agencybench.scenario import Task, World
from envs.agencybench.upstream.checks.table import checks_for
from envs.agencybench.upstream.files import CloneError, read_references
from envs.agencybench.upstream.sections import Sections

QUESTION = "How should agents plan, and how should dialogue systems and world models evolve?"
GATHER = Sections(
    f"Gather evidence about the following guiding question:\n\n{QUESTION}\n", "", "", ""
)
WRITE = Sections(
    f'Write.\n[\n  {{\n    "id": 46,\n    "question": "{QUESTION}"\n  }}\n]', "", "", ""
)


def scored(name, number, files, sections=GATHER, seed=None, gold=None):
    task = Task("t", "q", "", "", checks_for(name, number, sections))
    content = {
        path: (value if isinstance(value, str) else json.dumps(value)).encode()
        for path, value in files.items()
    }
    start = {path: json.dumps(value).encode() for path, value in (seed or {}).items()}
    return assess(task, Assessment(Snapshot(content), World(start, gold), None, "k"))


# Code/4 -----------------------------------------------------------------------------------------

GOLD = {
    "graph_connectivity": {str(n): {"label": n % 2 == 0} for n in range(8)},
    "graph_maxflow": {str(n): {"label": n + 3} for n in range(6)},
    "math_convexity": {str(n): {"label": ("convex", "concave")[n % 2]} for n in range(8)},
    "geometry": {str(n): {"answer": "ABCD"[n % 4]} for n in range(8)},
}
FAMILIES = list(GOLD)


def answers(number, choose):
    files = {"outputs/main.py": "print('run')\n"}
    counts = {}
    for family in FAMILIES[: min(number, 4)]:
        for name, problem in GOLD[family].items():
            right = problem.get("label", problem.get("answer"))
            # The tasks allow both 8 and 008.
            files[f"outputs/{family}/{int(name):03d}/result.json"] = {
                "task_type": family, "problem_id": name, "answer": choose(family, right),
                "reasoning": "It follows from what is given.", "solution_steps": ["Look."],
                "confidence": 0.9,
            }  # fmt: skip
        counts[family] = {"total": 64, "completed": len(GOLD[family])}
    files["outputs/summary.json"] = {
        "total_problems": 280, "completed_problems": 1, "task_results": counts,
        "average_confidence": 0.9, "mode": "baseline", "total_llm_calls": 3,
    }  # fmt: skip
    return files


@pytest.mark.parametrize("number", range(1, 6))
def test_problems(number):
    made = scored("Code/scenario4", number, answers(number, lambda _, right: right), gold=GOLD)
    assert made.score == 1.0, made.as_json()
    assert made.coverage == pytest.approx(0.9)
    assert scored("Code/scenario4", number, {}, gold=GOLD).score == 0.0
    same = {"graph_connectivity": True, "graph_maxflow": 3, "math_convexity": "convex"}
    guess = scored(
        "Code/scenario4", number, answers(number, lambda f, _: same.get(f, "A")), gold=GOLD
    )
    assert guess.score <= 0.3, guess.as_json()


def test_answers_of_other_kinds_are_wrong():
    for wrong in ("true", 1, None, "True"):
        files = answers(1, lambda _, right, w=wrong: w if right else right)
        assert scored("Code/scenario4", 1, files, gold=GOLD).results[0].value == 0.0
    files = answers(2, lambda f, right: float(right) if f == "graph_maxflow" else right)
    made = scored("Code/scenario4", 2, files, gold=GOLD)
    assert made.results[0].value == 1.0
    assert made.results[1].value == pytest.approx(8 / 14)


def test_half_of_the_results_are_worth_half(tmp_path):
    """The benchmark's script gives nothing when the first result is missing."""
    files = answers(2, lambda _, right: right)
    for name in range(3):
        del files[f"outputs/graph_maxflow/{name:03d}/result.json"]
    assert scored("Code/scenario4", 2, files, gold=GOLD).results[0].value == pytest.approx(0.75)


@pytest.mark.parametrize("number", range(2, 6))
def test_problems_are_named_by_their_id_or_by_their_folder(number):
    """The tasks say the one, the benchmark's script wants the other."""
    gold = {
        family: {
            name: {**problem, "id": f"isobench/{family}_{(int(name) * 3 + 1) % 8 + 100:03d}"}
            for name, problem in problems.items()
        }
        for family, problems in GOLD.items()
    }
    right = answers(number, lambda _, answer: answer)
    assert scored("Code/scenario4", number, right, gold=gold).score == 1.0
    renamed = {}
    for path, value in right.items():
        parts = path.split("/")
        if parts[-1] == "result.json":
            parts[2] = gold[parts[1]][str(int(parts[2]))]["id"].rpartition("_")[2]
        renamed["/".join(parts)] = value
    assert renamed.keys() != right.keys()
    made = scored("Code/scenario4", number, renamed, gold=gold)
    assert made.score == 1.0, made.as_json()
    mixed = {path: value for path, value in renamed.items() if "maxflow" not in path} | {
        path: value for path, value in right.items() if "maxflow" in path
    }
    assert scored("Code/scenario4", number, mixed, gold=gold).score == 1.0


def test_references_are_read(tmp_path):
    place = tmp_path / "geometry" / "7"
    place.mkdir(parents=True)
    (place / "ex.json").write_text('{"answer": "B"}')
    (place / "image.png").write_bytes(b"x")
    assert read_references(tmp_path) == {"geometry": {"7": {"answer": "B"}}}
    with pytest.raises(CloneError, match="no folder nothing"):
        read_references(tmp_path / "nothing")


# Research/4 and 5 -------------------------------------------------------------------------------

SUBJECTS = (
    "planning of long tasks", "memory in dialogue", "world models from video",
    "tools that agents call", "safety of autonomous systems",
)  # fmt: skip


def source(place, subject, **other):
    return {
        "title": f"On {subject}", "source_type": ("paper", "blog", "report")[place % 3],
        "publisher": f"Institute {place}", "published_at": f"2024-0{place + 1}-11",
        "url": f"https://host{place}.org/{place}",
        "summary": f"The authors study {subject} in agents and dialogue systems. They find that "
        f"{subject} decides {subject[::-1]} in their trials.",
        "key_points": [f"{subject} matters"], "notes_for_report": "A comparison.", **other,
    }  # fmt: skip


SOURCES = [source(place, subject) for place, subject in enumerate(SUBJECTS)]


@pytest.mark.parametrize("name", ["Research/scenario4", "Research/scenario5"])
def test_sources(name):
    made = scored(name, 1, {"workspace/web_info.json": SOURCES})
    assert made.score == 1.0, made.as_json()
    assert made.coverage == pytest.approx(0.5)
    assert scored(name, 1, {}).score == 0.0
    copies = [source(n, "planning", title=f"t{n}", summary=SOURCES[0]["summary"]) for n in range(5)]
    filler = [
        source(n, s, title=f"t{n}", summary="Word word. " * 9) for n, s in enumerate(SUBJECTS)
    ]
    for cheat in (copies, filler, SOURCES[:4], [{} for _ in range(6)], "text", {"a": SOURCES}):
        assert scored(name, 1, {"workspace/web_info.json": cheat}).score == 0.0


@pytest.mark.parametrize(
    "other",
    [
        {"published_at": "May 2024"}, {"url": "host.org"}, {"source_type": "news"},
        {"key_points": "one"}, {"summary": "Short. One."}, {"publisher": " "},
    ],
)  # fmt: skip
def test_a_source_that_is_amiss(other):
    made = scored(
        "Research/scenario4", 1, {"web_info.json": [*SOURCES, source(6, "else", **other)]}
    )
    assert made.results[0].value == 0.0


def report(parts, references=SOURCES, question=QUESTION):
    listed = "\n".join(
        f"[{n}] {s['publisher']}, {s['title']}, {s['url']}" for n, s in enumerate(references, 1)
    )
    text = f"{question}\n\n" + "\n\n".join(parts) + f"\n\nReferences\n{listed}"
    return [{"id": 46, "question": QUESTION, "response": text}]


THEMES = (
    "methodology assumptions", "dialogue systems", "agents that plan", "world models",
    "future implications",
)  # fmt: skip
PARTS = [
    f"On {theme}. " + " ".join(f"{theme.split()[0]}{chr(97 + n)} evolve" for n in range(26))
    + f" as was found for {theme} [{place + 1}]."
    for place, theme in enumerate(THEMES)
]  # fmt: skip


def test_a_report():
    files = {"workspace/web_info.json": SOURCES}
    path = "workspace/ResearchSystem_ChatVsAgent.json"
    made = scored("Research/scenario4", 2, {**files, path: report(PARTS)}, WRITE)
    assert made.score == 1.0, made.as_json()
    assert made.coverage == pytest.approx(0.5)
    assert scored("Research/scenario4", 2, files, WRITE).score == 0.0
    bare = [part.split(" [")[0] for part in PARTS]
    cheats = [
        report(bare), report([PARTS[0]] * 5), report(PARTS[:2]), report(PARTS, question="What?"),
        report(["word " * 40] * 6), "text",
        [{"id": 46, "question": QUESTION, "response": QUESTION}],
    ]  # fmt: skip
    for cheat in cheats:
        made = scored("Research/scenario4", 2, {**files, path: cheat}, WRITE)
        assert made.results[0].value == 0.0
    for cheat in (cheats[0], *cheats[4:]):
        assert scored("Research/scenario4", 2, {**files, path: cheat}, WRITE).score == 0.0
    invented = report(
        PARTS, [{**s, "title": "x" * 30, "url": f"u{n}"} for n, s in enumerate(SOURCES)]
    )
    assert scored("Research/scenario4", 2, {**files, path: invented}, WRITE).results[1].value == 0.0


@pytest.mark.parametrize(
    "heading", ["## 6. References", "VI. REFERENCES", "**References (IEEE)**", "7) References:"]
)
def test_headings_may_be_numbered_and_citations_grouped(heading):
    files = {"workspace/web_info.json": SOURCES}
    path = "workspace/ResearchSystem_ChatVsAgent.json"

    def scores(*cited):
        parts = [p.rpartition("[")[0] + c for p, c in zip(PARTS, cited, strict=True)]
        made = report(parts)
        text = made[0]["response"].replace("\n\nReferences\n", f"\n\n{heading}\n\n")
        made[0]["response"] = text
        verdict = scored("Research/scenario4", 2, {**files, path: made}, WRITE)
        return [result.value for result in verdict.results[:2]]

    assert scores("[1].", "[2], [3].", "[3, 4].", "[1]\u2013[5].", "on [0, 1] [5].") == [1.0, 1.0]
    assert scores("[1].", "[2], [3].", "[3, 4].", "[1]-[9].", "[5].") == [1.0, 0.0]
    assert scores("[1].", "[1].", "[1].", "[2, 3].", "[2-3].") == [1.0, 0.0]


# Research/1 -------------------------------------------------------------------------------------

SAMPLE = {f"data/test_data_{n}.json": {"task": "t", "input": "i", "size": 1} for n in (1, 2, 3)}
LONG = "We work in the folder alone and write every file there, with steps for risks and checks. "
BRIEF = "".join(
    f"# {head}\n{LONG}\n- test_data_1.json, test_data_2.json, test_data_3.json\n"
    for head in ("Environment", "Mandatory Files", "Dataset Requirements", "Execution Plan")
)
SCRIPT = "import random, sys\n\nprint(open(sys.argv[1]).read(), 'readme', random.choice([1]))\n"
FOUND = {
    f"data/search_data_{n}.json": {"task": "QA", "input": "text", "size": 90} for n in (1, 2, 3)
}
DONE = {
    "data/context_brief.md": BRIEF,
    **{
        f"data/scripts/fetch_{w}_dataset.py": SCRIPT
        for w in ("consciousness", "transenv", "danish")
    },
    **{f"data/raw/{w}_readme.md": "words " * 60 for w in ("consciousness", "TransEnV", "Danish")},
    **FOUND,
    "data/validation_report.md": "python -m json.tool README search_data_1.json search_data_2.json "
    "search_data_3.json " + LONG * 6,
}


@pytest.mark.parametrize("number", range(1, 6))
def test_data_sets(number):
    made = scored("Research/scenario1", number, DONE, seed=SAMPLE)
    assert made.score == 1.0, made.as_json()
    assert made.coverage == pytest.approx(0.4)
    assert scored("Research/scenario1", number, {}, seed=SAMPLE).score == 0.0
    cheat = {
        "data/context_brief.md": "# Environment\n# Mandatory Files\n# Dataset Requirements\n"
        "# Execution Plan",
        "data/scripts/fetch_danish_dataset.py": "readme = random = 1",
        "data/validation_report.md": "python readme search_data_1.json",
        **{f"data/search_data_{n}.json": SAMPLE[f"data/test_data_{n}.json"] for n in (1, 2, 3)},
    }
    assert scored("Research/scenario1", number, cheat, seed=SAMPLE).score == 0.0
