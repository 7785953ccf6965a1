"""The issue desk: issues, labels, branches with files, pull requests, and a log of every change."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["TOOLS", "Desk", "DeskError"]

_MOST = 200_000
_MOST_OBJECTS = 500


class DeskError(ValueError):
    """A call that cannot be done; the message is the answer."""


def _tool(text: str, required: str = "", optional: str = "") -> dict[str, Any]:
    """A tool's description with the JSON schema of its arguments; ``name:type`` for each."""
    properties: dict[str, Any] = {}
    for item in [*required.split(), *optional.split()]:
        name, _, kind = item.partition(":")
        schema: dict[str, Any] = {"type": {"int": "integer", "list": "array"}.get(kind, "string")}
        if kind == "list":
            schema["items"] = {"type": "string"}
        properties[name] = schema
    names = [item.partition(":")[0] for item in required.split()]
    return {
        "description": text,
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": names,
            "additionalProperties": False,
        },
    }


TOOLS: dict[str, dict[str, Any]] = {
    "list_issues": _tool("Issues, newest last", "", "state:str label:str"),
    "get_issue": _tool("An issue with its comments", "number:int"),
    "set_labels": _tool("Replace the labels of an issue", "number:int labels:list"),
    "set_assignee": _tool("Assign an issue to a member", "number:int assignee:str"),
    "add_comment": _tool("Comment on an issue", "number:int body:str"),
    "close_issue": _tool("Close an issue", "number:int"),
    "list_labels": _tool("Labels that exist"),
    "list_members": _tool("Members that issues can be assigned to"),
    "list_branches": _tool("Branches"),
    "create_branch": _tool("Create a branch from another", "name:str source:str"),
    "delete_branch": _tool("Delete a branch", "name:str"),
    "list_files": _tool("Files of a branch", "branch:str"),
    "read_file": _tool("A file of a branch", "branch:str path:str"),
    "write_file": _tool("Write a file of a branch", "branch:str path:str content:str"),
    "delete_file": _tool("Delete a file of a branch", "branch:str path:str"),
    "create_pull_request": _tool(
        "Ask for a branch to be merged", "title:str body:str head:str base:str"
    ),
    "list_pull_requests": _tool("Pull requests"),
}


@dataclass(slots=True)
class Desk:
    """The state, and the calls on it.

    Attributes:
        issues: Number to issue: ``title``, ``body``, ``labels``, ``assignee``, ``state``,
            ``comments``.
        labels: Labels that exist.
        members: People.
        branches: Name to path to content.
        pulls: Pull requests.
        changes: Every change that was made: tool and arguments.
        calls: Number of calls.
    """

    issues: dict[int, dict[str, Any]]
    labels: list[str]
    members: list[str]
    branches: dict[str, dict[str, str]]
    pulls: list[dict[str, Any]] = field(default_factory=list)
    changes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    calls: int = 0

    def copy(self) -> Desk:
        """The same state, which later calls on this one do not change."""
        return copy.deepcopy(self)

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Do what a tool does.

        Raises:
            DeskError: If there is no such tool, or it cannot be done.
        """
        self.calls += 1
        if tool not in TOOLS:
            raise DeskError(f"unknown tool {tool!r}; tools: {', '.join(TOOLS)}")
        given = _checked(tool, arguments)
        act: Callable[..., Any] = getattr(self, f"_{tool}")
        answer = act(**given)
        if not tool.startswith(("list_", "get_", "read_")):
            self.changes.append((tool, given))
        return answer

    # Issues -------------------------------------------------------------------------------------

    def _issue(self, number: int) -> dict[str, Any]:
        if number not in self.issues:
            raise DeskError(f"there is no issue {number}")
        return self.issues[number]

    def _list_issues(self, state: str = "", label: str = "") -> Any:
        return [
            {"number": n, "title": i["title"], "state": i["state"], "labels": list(i["labels"])}
            for n, i in self.issues.items()
            if (not state or i["state"] == state) and (not label or label in i["labels"])
        ]

    def _get_issue(self, number: int) -> Any:
        return {"number": number, **copy.deepcopy(self._issue(number))}

    def _set_labels(self, number: int, labels: list[str]) -> Any:
        unknown = [label for label in labels if label not in self.labels]
        if unknown:
            raise DeskError(f"unknown labels {unknown}; see list_labels")
        self._issue(number)["labels"] = sorted(set(labels))
        return {"number": number, "labels": sorted(set(labels))}

    def _set_assignee(self, number: int, assignee: str) -> Any:
        if assignee not in self.members:
            raise DeskError(f"unknown member {assignee!r}; see list_members")
        self._issue(number)["assignee"] = assignee
        return {"number": number, "assignee": assignee}

    def _add_comment(self, number: int, body: str) -> Any:
        comments = self._issue(number)["comments"]
        if len(comments) >= _MOST_OBJECTS:
            raise DeskError("the issue has too many comments")
        comments.append(body)
        return {"number": number, "comments": len(comments)}

    def _close_issue(self, number: int) -> Any:
        self._issue(number)["state"] = "closed"
        return {"number": number, "state": "closed"}

    def _list_labels(self) -> Any:
        return list(self.labels)

    def _list_members(self) -> Any:
        return list(self.members)

    # Branches -----------------------------------------------------------------------------------

    def _branch(self, name: str) -> dict[str, str]:
        if name not in self.branches:
            raise DeskError(f"there is no branch {name!r}")
        return self.branches[name]

    def _list_branches(self) -> Any:
        return list(self.branches)

    def _create_branch(self, name: str, source: str) -> Any:
        if name in self.branches or not name.strip() or len(self.branches) >= _MOST_OBJECTS:
            raise DeskError(f"branch {name!r} cannot be created")
        self.branches[name] = dict(self._branch(source))
        return {"branch": name, "source": source}

    def _delete_branch(self, name: str) -> Any:
        self._branch(name)
        del self.branches[name]
        return {"deleted": name}

    def _list_files(self, branch: str) -> Any:
        return sorted(self._branch(branch))

    def _read_file(self, branch: str, path: str) -> Any:
        files = self._branch(branch)
        if path not in files:
            raise DeskError(f"there is no file {path!r} on {branch!r}")
        return files[path]

    def _write_file(self, branch: str, path: str, content: str) -> Any:
        files = self._branch(branch)
        if len(files) >= _MOST_OBJECTS:
            raise DeskError("the branch has too many files")
        files[path] = content
        return {"branch": branch, "path": path, "bytes": len(content.encode())}

    def _delete_file(self, branch: str, path: str) -> Any:
        self._read_file(branch, path)
        del self.branches[branch][path]
        return {"deleted": path}

    # Pull requests ------------------------------------------------------------------------------

    def _create_pull_request(self, title: str, body: str, head: str, base: str) -> Any:
        if self._branch(head) == self._branch(base):
            raise DeskError(f"{head!r} and {base!r} do not differ")
        if len(self.pulls) >= _MOST_OBJECTS:
            raise DeskError("there are too many pull requests")
        self.pulls.append({"title": title, "body": body, "head": head, "base": base})
        return {"pull_request": len(self.pulls)}

    def _list_pull_requests(self) -> Any:
        return copy.deepcopy(self.pulls)


def _checked(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    schema = TOOLS[tool]["inputSchema"]
    unknown = sorted(set(arguments) - set(schema["properties"]))
    missing = [name for name in schema["required"] if name not in arguments]
    if unknown or missing:
        raise DeskError(f"{tool}: unknown arguments {unknown}, missing {missing}")
    for name, value in arguments.items():
        kind = schema["properties"][name]["type"]
        fits = {
            "integer": isinstance(value, int) and not isinstance(value, bool),
            "string": isinstance(value, str) and len(value) <= _MOST,
            "array": isinstance(value, list)
            and len(value) <= _MOST_OBJECTS
            and all(isinstance(item, str) for item in value),
        }[kind]
        if not fits:
            raise DeskError(f"{tool}: {name!r} must be of type {kind}")
    return dict(arguments)
