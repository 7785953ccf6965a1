"""The scenarios of a clone, as this suite plays them. No script of the clone is ever run."""

from __future__ import annotations

import codecs
import hashlib
import importlib.util
import json
import os
import shutil
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentgym.dice import Dice
from envs.agencybench.scenario import CAPABILITIES, Scenario, Task, World
from envs.agencybench.upstream.checks import checks_for
from envs.agencybench.upstream.files import (
    CloneError,
    read_observations,
    read_plain,
    read_references,
    read_seed,
)
from envs.agencybench.upstream.policies import SCENARIOS, UpstreamPolicy
from envs.agencybench.upstream.sections import SectionError, Sections, split_task
from envs.agencybench.upstream.tracker import BRIEF, tracker

__all__ = ["CloneError", "load_clone"]

_MOST_DESCRIPTION = 1 << 20


def load_clone(data: str | os.PathLike[str]) -> dict[str, Scenario]:
    """Scenarios of a clone by id, those that cannot be played included.

    Args:
        data: The clone, or its folder ``AgencyBench-v2``.

    Raises:
        CloneError: If there is no such folder, or a description cannot be read.
    """
    root = Path(data).expanduser()
    if (root / "AgencyBench-v2").is_dir():
        root = root / "AgencyBench-v2"
    folders = [root / name for name in SCENARIOS]
    if not any((folder / "description.json").is_file() for folder in folders):
        raise CloneError(
            f"{str(data)!r} is neither a clone of AgencyBench nor its folder AgencyBench-v2: it "
            "holds no <capability>/scenario<number>/description.json"
        )
    made = {}
    for name, policy in SCENARIOS.items():
        scenario = _scenario(root, name, policy)
        made[scenario.id] = scenario
    return made


@lru_cache(maxsize=64)
def _description(path: Path, stamp: tuple[int, int]) -> tuple[str, dict[str, Any]]:
    content = read_plain(path, _MOST_DESCRIPTION)
    try:
        value = json.loads(content)
    except RecursionError:
        raise CloneError(f"{path} is nested too deeply") from None
    except ValueError as error:
        raise CloneError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise CloneError(f"{path} must hold an object, got {type(value).__name__}")
    # Git may have changed the ends of lines, and an editor have put a mark first.
    plain = content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    return hashlib.sha256(plain).hexdigest()[:16], value


def _scenario(root: Path, name: str, policy: UpstreamPolicy) -> Scenario:
    folder = root / name
    identity = f"upstream/{name}"
    capability = name.partition("/")[0]
    assert capability in CAPABILITIES
    path = folder / "description.json"
    if not path.is_file():
        absent = f"the clone has no {name}/description.json"
        return Scenario(identity, capability, "", (), _nothing, policy.play, absent)
    status = path.stat()
    digest, described = _description(path, (status.st_mtime_ns, status.st_size))
    if digest != policy.digest:
        warnings.warn(
            f"{name}/description.json is of a version that is not known here ({digest}); its "
            "checks may not fit",
            UserWarning,
            stacklevel=2,
        )
    count = described.get("subtask_count")
    if type(count) is not int or not 1 <= count <= 50:
        raise CloneError(f"{path}: subtask_count must be an int from 1 to 50, got {count!r}")
    if count > policy.tasks:
        more = f"{name}/description.json has {count} tasks, of which {policy.tasks} are known here"
        return Scenario(identity, capability, "", (), _nothing, policy.play, more)
    tasks = []
    for number in range(1, count + 1):
        key = f"subtask{number}"
        try:
            sections = split_task(described.get(key))
        except SectionError as error:
            raise CloneError(f"{path}: {key}: {error}") from None
        tasks.append(_task(name, number, sections, policy))
    brief = str(described.get("workspace_brief", "")).replace("\\n", "\n")
    tree = str(described.get("initial_tree", "")).replace("\\n", "\n")
    unavailable = f"it needs {policy.needs}" if policy.needs else None
    files: dict[str, bytes] = {}
    answers: Any = None
    if unavailable is None and policy.seed is not None:
        try:
            files = read_seed(folder, policy.seed)
        except CloneError as error:
            unavailable = str(error)
    if unavailable is None and policy.answers:
        try:
            read = read_observations if policy.answers == "observations" else read_references
            answers = read(folder / policy.answers_at)
        except CloneError as error:
            unavailable = str(error)
    unavailable = unavailable or _lacking(policy)

    def build(dice: Dice) -> World:
        return World(
            dict(files),
            gold=answers if policy.answers else dict(files),
            service=tracker() if policy.tracker else None,
            folders=policy.folders,
        )

    text = "\n\n".join(part for part in (brief, tree, BRIEF if policy.tracker else "") if part)
    return Scenario(identity, capability, text, tuple(tasks), build, policy.play, unavailable)


def _lacking(policy: UpstreamPolicy) -> str | None:
    """What of this machine a scenario lacks; None if nothing."""
    modules = [name for name in policy.packages if importlib.util.find_spec(name) is None]
    if modules:
        return f"its programs need packages that are not installed: {', '.join(modules)}"
    programs = [name for name in policy.programs if shutil.which(name) is None]
    return f"it needs programs that are not installed: {', '.join(programs)}" if programs else None


def _nothing(dice: Dice) -> World:
    return World({})


def _task(name: str, number: int, sections: Sections, policy: UpstreamPolicy) -> Task:
    return Task(
        id=f"subtask{number}",
        query=sections.query,
        deliverables=sections.deliverables,
        rubric="" if policy.hidden_rubric else sections.rubric,
        checks=checks_for(name, number, sections),
    )
