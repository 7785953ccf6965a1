"""Runs inside the sandbox: a Docker in memory that answers to the Docker SDK's names."""

from __future__ import annotations

import sys
import types
import uuid
from typing import Any, NamedTuple

CONTAINERS: dict[str, Any] = {}


class Ran(NamedTuple):
    """What a command in a container gave."""

    exit_code: int
    output: bytes


class NotFound(Exception):
    """There is no such container."""


class Container:
    """A container that notes what it is told."""

    def __init__(self, image: Any, command: Any = None, **options: Any) -> None:
        self.id = uuid.uuid4().hex + uuid.uuid4().hex
        self.short_id, self.name = self.id[:12], options.get("name") or self.id[:8]
        self.status = "created"
        self.ran: list[str] = []
        self.noted = {"image": str(image), "env": options.get("environment"), "removed": False}
        CONTAINERS[self.id] = self

    def start(self, **_: Any) -> None:
        """Start it."""
        self.status = "running"

    def stop(self, **_: Any) -> None:
        """Stop it."""
        self.status = "exited"

    kill = stop

    def remove(self, **_: Any) -> None:
        """Remove it."""
        self.noted["removed"] = True

    def reload(self) -> None:
        """It is always up to date."""

    def exec_run(self, cmd: Any, **_: Any) -> Any:
        """Note a command; it works."""
        self.ran.append(cmd if isinstance(cmd, str) else " ".join(map(str, cmd)))
        return Ran(0, b"")


class Containers:
    """All containers."""

    def create(self, image: Any, command: Any = None, **options: Any) -> Any:
        """Make one."""
        return Container(image, command, **options)

    def run(self, image: Any, command: Any = None, **options: Any) -> Any:
        """Make one and start it."""
        made = Container(image, command, **options)
        made.start()
        return made

    def get(self, name: str) -> Any:
        """Find one that is not removed."""
        for one in CONTAINERS.values():
            if name in (one.id, one.short_id, one.name) and not one.noted["removed"]:
                return one
        raise NotFound(name)

    def list(self, **_: Any) -> Any:
        """Those that are not removed."""
        return [one for one in CONTAINERS.values() if not one.noted["removed"]]


class DockerClient:
    """A client of the one engine."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.containers = Containers()
        self.images = types.SimpleNamespace(
            pull=lambda *_, **__: None, get=lambda *_, **__: None, list=lambda *_, **__: []
        )

    def ping(self) -> bool:
        """The engine answers."""
        return True

    def close(self) -> None:
        """Nothing is held."""


def containers() -> Any:
    """What all containers noted."""
    return [
        {**one.noted, "id": one.id, "status": one.status, "ran": one.ran}
        for one in CONTAINERS.values()
    ]


def install_docker() -> None:
    """Stand in for the Docker SDK."""
    names = ("DockerException", "APIError", "ImageNotFound", "ContainerError", "BuildError")
    faults: dict[str, Any] = {name: type(name, (Exception,), {}) for name in names}
    errors = types.ModuleType("docker.errors")
    errors.__dict__.update({**faults, "NotFound": NotFound})
    models = types.ModuleType("docker.models")
    kinds = types.ModuleType("docker.models.containers")
    kinds.__dict__.update({"Container": Container})
    docker = types.ModuleType("docker")
    docker.__dict__.update(
        {"from_env": DockerClient, "DockerClient": DockerClient, "errors": errors, "models": models}
    )
    models.__dict__["containers"] = kinds
    docker.__path__, models.__path__ = [], []
    for module in (docker, errors, models, kinds):
        sys.modules[module.__name__] = module
