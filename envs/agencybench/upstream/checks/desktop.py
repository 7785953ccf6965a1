"""MCP/scenario2: files moved into a given hierarchy.

Each task is worth what the benchmark's predicate says, of files that are the ones that were there
and not others of their names; and what it leaves unsaid: that they are moved and stand there once.
"""

from __future__ import annotations

from collections.abc import Callable

from envs.agencybench.assessment import Assessment, Missing, Unmet
from envs.agencybench.scenario import Check, Finding

__all__ = ["checks"]

_ROOT = "desktop_2/workspace_v2"
_FOLDERS = (
    "dev_bundle/tests", "dev_bundle/source", "data_warehouse/legacy_archives",
    "data_warehouse/active_datasets", "knowledge_base",
)  # fmt: skip
#: Task to folder to file there and where it came from.
_PLACES: dict[int, dict[str, dict[str, str]]] = {
    2: {
        "dev_bundle/tests": {
            "debug_utils.py": "exp_logs/2023_aug/debug_utils.py",
            "test_runner.py": "learning/2024/test_runner.py",
        },
        "dev_bundle/source": {
            "train_model.py": "exp_logs/project_alpha/train_model.py",
            "settings.py": "old_homebrew/config/settings.py",
            "budget_calculator.py": "travel_plan/budget_calculator.py",
        },
    },
    3: {
        "data_warehouse/legacy_archives": {
            "raw_data.csv": "exp_logs/project_alpha/raw_data.csv",
            "old_results.csv": "exp_logs/deprecated/old_results.csv",
            "inventory_list.csv": "old_homebrew/inventory/inventory_list.csv",
        },
        "data_warehouse/active_datasets": {
            "progress.csv": "learning/2024/progress.csv",
            "favorite_songs.csv": "music/jay_chou/favorite_songs.csv",
        },
    },
    4: {
        "knowledge_base": {
            "project_alpha_README.md": "exp_logs/project_alpha/README.md",
            "docs_architecture.md": "learning/docs/architecture.md",
            "learning_study_notes.md": "learning/study_notes.md",
            "music_music_manifest.md": "music/music_manifest.md",
            "travel_plan_draft_plan.md": "travel_plan/draft_plan.md",
        },
    },
}


def _folders(assessment: Assessment) -> set[str]:
    made = set(assessment.snapshot.folders)
    for path in assessment.files:
        parts = path.split("/")[:-1]
        made |= {"/".join(parts[: n + 1]) for n in range(len(parts))}
    return made


def _shell(assessment: Assessment) -> Finding:
    missing = [name for name in _FOLDERS if f"{_ROOT}/{name}" not in _folders(assessment)]
    if missing:
        raise Unmet(f"missing folders: {', '.join(missing)}")
    return Finding(1.0)


def _placed(number: int) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        amiss = []
        for folder, names in _PLACES[number].items():
            prefix = f"{_ROOT}/{folder}/"
            held = {
                path.removeprefix(prefix)
                for path in assessment.files
                if path.startswith(prefix) and "/" not in path.removeprefix(prefix)
            }
            amiss += [f"{folder}/{name} is missing" for name in sorted(set(names) - held)]
            for name in sorted(set(names) & held):
                source = f"desktop/{names[name]}"
                if source not in assessment.world.gold:
                    raise Missing(f"the clone has no {source}")
                if assessment.files[prefix + name] != assessment.world.gold[source]:
                    amiss.append(f"{folder}/{name} is not what {source} was")
            elsewhere = {n for f, ns in _PLACES[number].items() if f != folder for n in ns}
            amiss += [f"{folder}/{name} is misplaced" for name in sorted(elsewhere & held)]
        if amiss:
            raise Unmet("; ".join(amiss))
        return Finding(1.0)

    return run


def _moved(number: int) -> Callable[[Assessment], Finding]:
    def run(assessment: Assessment) -> Finding:
        _placed(number)(assessment)
        for names in _PLACES[number].values():
            for name, source in names.items():
                if f"desktop/{source}" in assessment.files:
                    raise Unmet(f"desktop/{source} is copied and not moved")
                twice = [
                    path
                    for path in assessment.files
                    if path.startswith("desktop_2/") and path.rsplit("/", 1)[-1] == name
                ]
                if len(twice) > 1:
                    raise Unmet(f"{name} stands in {len(twice)} places of desktop_2")
        return Finding(1.0)

    return run


def _removed(assessment: Assessment) -> Finding:
    left = [path for path in assessment.files if path.startswith("desktop/")]
    if left or "desktop" in _folders(assessment):
        raise Unmet(f"desktop/ is still there with {len(left)} files")
    # The predicate alone would be met by an empty workspace.
    for number in _PLACES:
        _placed(number)(assessment)
    return Finding(1.0)


def checks(number: int) -> tuple[Check, ...]:
    """The checks of task ``number``, from 1."""
    if number == 1:
        return (
            Check("hierarchy", 1.0, "the folders of the target are there", _shell, kind="tree"),
        )
    if number == 5:
        required = "desktop/ is gone and what was moved is still there"
        return (Check("removed", 1.0, required, _removed, kind="tree"),)
    return (
        Check("placed", 0.8, "every file stands where it belongs", _placed(number), kind="tree"),
        Check("moved", 0.2, "files are moved, and stand there once", _moved(number), kind="tree"),
    )
