"""MCP/1: an issue tracker that stands in for the repository on GitHub."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from envs.agencybench.scenario import Service
from envs.agencybench.scenarios.issuedesk.desk import TOOLS, Desk, DeskError

__all__ = ["BRIEF", "Tracker", "TrackerTools", "tracker"]

BRIEF = (
    "The evaluation repository, its issues, labels, branches and pull requests are reached through "
    "the MCP server `tracker`, not through GitHub: see `mcp_list_tools`. What a branch holds is "
    "part of the repository at once; there is nothing to push."
)
_LABELS = ("bug", "configuration", "dependencies", "in-progress", "meta", "triage", "wontfix")


def _schema(text: str, **properties: str) -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "text": {"type": "string"},
        "number": {"type": "integer"},
        "texts": {"type": "array", "items": {"type": "string"}},
    }
    made = {name: kinds[kind] for name, kind in properties.items()}
    schema = {
        "type": "object", "properties": made, "required": sorted(made),
        "additionalProperties": False,
    }  # fmt: skip
    return {"description": text, "inputSchema": schema}


_MORE: dict[str, Any] = {
    "create_issue": _schema("Open an issue", title="text", body="text", labels="texts"),
    "label_pull_request": _schema(
        "Replace the labels of a pull request", number="number", labels="texts"
    ),
}


class Tracker(Desk):
    """The desk, on which issues can be opened and pull requests have labels."""

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Do what a tool does.

        Raises:
            DeskError: If there is no such tool, or it cannot be done.
        """
        if tool not in _MORE:
            return super().call(tool, arguments)
        self.calls += 1
        wanted: dict[str, Any] = _MORE[tool]["inputSchema"]["properties"]
        if set(arguments) != set(wanted):
            raise DeskError(f"{tool} takes {', '.join(wanted)}, got {', '.join(arguments)}")
        for name, schema in wanted.items():
            value = arguments[name]
            fits = {
                "string": isinstance(value, str),
                "integer": isinstance(value, int) and not isinstance(value, bool),
                "array": isinstance(value, list) and all(isinstance(v, str) for v in value),
            }[schema["type"]]
            if not fits:
                raise DeskError(f"{tool}: {name!r} must be of type {schema['type']}")
        unknown = [label for label in arguments["labels"] if label not in self.labels]
        if unknown:
            raise DeskError(f"unknown labels {unknown}; see list_labels")
        act: Callable[..., Any] = getattr(self, f"_{tool}")
        made = act(**arguments)
        self.changes.append((tool, dict(arguments)))
        return made

    def _create_issue(self, title: str, body: str, labels: list[str]) -> Any:
        if len(self.issues) >= 500 or len(title) + len(body) > 200_000 or not title.strip():
            raise DeskError("the issue cannot be opened: no title, too long, or too many issues")
        number = max(self.issues, default=0) + 1
        self.issues[number] = {
            "title": title, "body": body, "labels": sorted(set(labels)), "assignee": "",
            "state": "open", "comments": [],
        }  # fmt: skip
        return {"number": number}

    def _label_pull_request(self, number: int, labels: list[str]) -> Any:
        if not 1 <= number <= len(self.pulls):
            raise DeskError(f"there is no pull request {number}")
        self.pulls[number - 1]["labels"] = sorted(set(labels))
        return {"pull_request": number, "labels": sorted(set(labels))}


class TrackerTools(Service):
    """``mcp_list_tools`` and ``mcp_call`` on one tracker."""

    tools = frozenset({"mcp_list_tools", "mcp_call"})

    def __init__(self, desk: Tracker) -> None:
        self.desk = desk

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """List the tools, or call one of them."""
        if tool == "mcp_list_tools":
            known = {**TOOLS, **_MORE}
            return {"tracker": [{"name": name, **schema} for name, schema in known.items()]}
        if arguments["server"] != "tracker":
            raise ValueError(f"there is no server {arguments['server']!r}; servers: tracker")
        given = arguments.get("arguments") or {}
        if not isinstance(given, dict):
            raise ValueError(f"arguments must be an object, got {type(given).__name__}")
        made = self.desk.call(str(arguments["tool"]), given)
        return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False, indent=1)

    def save(self) -> Desk:
        """A copy of the tracker."""
        return self.desk.copy()

    def restore(self, state: Any) -> None:
        """Go back to a copy."""
        self.desk = state.copy()


def tracker() -> TrackerTools:
    """A tracker with a repository of one file, an older issue, and no branch but ``main``."""
    main = {"README.md": "# Evaluation repository\n", ".github/CODEOWNERS": "* @maintainers\n"}
    older = {
        "title": "Typo in the readme", "body": "It says evalution.", "labels": ["bug"],
        "assignee": "", "state": "open", "comments": [],
    }  # fmt: skip
    return TrackerTools(Tracker({1: older}, list(_LABELS), ["maintainers"], {"main": main}))
