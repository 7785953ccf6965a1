"""Sandboxes in containers of a Docker engine on this machine.

The container's only process is the supervisor, which connects to a socket that the caller shows
it. It ends when the caller is gone, and the engine removes what ended: nothing is left over.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

from agentgym.sandbox.backend import Settings, SupervisedBackend
from agentgym.sandbox.handle import START_SECONDS, Handle
from agentgym.sandbox.layout import INSIDE, boot_command
from agentgym.sandbox.request import ENVIRONMENT
from agentgym.sandbox.types import SandboxError

__all__ = ["IMAGE", "IMAGE_VARIABLE", "DockerBackend"]

#: Image of the containers: any one with Python 3.11 or newer on its path.
IMAGE = "python:3.11-slim"
#: Environment variable that names another image.
IMAGE_VARIABLE = "AGENTGYM_DOCKER_IMAGE"
_PLACE, _SOCKET = "/opt/agentgym", "/run/agentgym"
#: Of a container; commands are held to their own, smaller limits by the supervisor.
_TOTAL_MEMORY, _PROCESSES = 8 << 30, 4096


class DockerBackend(SupervisedBackend):
    """One container a sandbox: no network, read-only root, no capabilities, limits by cgroup.

    It needs the package ``docker`` and an engine that shares this machine's file system. Packages
    of the caller's interpreter are not shown: what is installed is the image's.
    """

    name = "docker"
    environment: Mapping[str, str] = {
        **ENVIRONMENT,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        try:
            docker: Any = importlib.import_module("docker")
            errors = importlib.import_module("docker.errors")
        except ImportError:  # a mere folder of that name has no errors to import
            raise SandboxError(
                "the package docker is not installed (pip install 'agentgym-suite[docker]')"
            ) from None
        self._errors = (errors.DockerException, OSError)
        try:
            self._client = docker.from_env(timeout=int(START_SECONDS))
            self._client.ping()
        except self._errors as error:
            raise SandboxError(f"no engine answers: {_short(error)}") from None
        self._image = os.environ.get(IMAGE_VARIABLE) or IMAGE
        self._lock = threading.RLock()  # an abandoned session may end in the midst of anything
        self._open: set[_ContainerHandle] = set()
        self._closed = False

    def handle(self, folder: str | None, mounts: Mapping[str, str]) -> Handle:
        """Make a sandbox; see the base class."""
        if self._closed:
            raise SandboxError("the sandbox is closed")
        user = self.owner if self.owner is not None else os.geteuid()
        meeting = tempfile.mkdtemp(prefix="agentgym-")
        listener = socket.socket(socket.AF_UNIX)
        container: Any = None
        try:
            place = os.path.join(meeting, "socket")
            listener.bind(place)
            listener.listen(1)
            if self.owner is not None:
                os.chown(place, user, user)
            os.chmod(meeting, 0o711)
            container = self._create(folder, mounts, meeting, user)
            container.start()
            listener.settimeout(START_SECONDS)
            connection, _ = listener.accept()
        except BaseException as error:
            said = self._said(container) if isinstance(error, TimeoutError) else ""
            self._remove(container)
            if isinstance(error, TimeoutError):
                raise SandboxError(f"the container does not answer: {said}") from None
            if isinstance(error, self._errors):
                raise SandboxError(f"the container cannot be started: {_short(error)}") from None
            raise
        finally:
            listener.close()
            shutil.rmtree(meeting, ignore_errors=True)
        handle = _ContainerHandle(self, container, connection)
        with self._lock:
            self._open.add(handle)
        return handle

    def _create(
        self, folder: str | None, mounts: Mapping[str, str], meeting: str, user: int
    ) -> Any:
        settings = self.settings
        volumes = {
            str(INSIDE): {"bind": f"{_PLACE}/inside", "mode": "ro"},
            meeting: {"bind": _SOCKET, "mode": "ro"},
        }
        for target, source in {**settings.mounts, **mounts}.items():
            volumes[source] = {"bind": target, "mode": "ro"}
        memory = f"size={settings.disk}"
        tmpfs = {"/tmp": f"{memory},mode=1777"}
        if folder is None:
            tmpfs["/box"] = f"{memory},mode=700,uid={user},gid={user}"
        else:
            volumes[folder] = {"bind": "/box", "mode": "rw"}
        arguments = f"{_SOCKET + '/socket'!r}, {folder is None}"
        return self._client.containers.create(
            self._image,
            boot_command(
                "fork_server", "container_main", arguments, python="python3", folder=_PLACE
            ),
            auto_remove=True,
            cap_drop=["ALL"],
            detach=True,
            environment={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "HOME": "/box"},
            hostname="sandbox",
            labels={"agentgym.sandbox": str(os.getpid())},
            mem_limit=_TOTAL_MEMORY,
            memswap_limit=_TOTAL_MEMORY,
            network_mode="none",
            pids_limit=_PROCESSES,
            read_only=True,
            security_opt=["no-new-privileges"],
            shm_size=settings.disk,
            tmpfs=tmpfs,
            user=f"{user}:{user}",
            volumes=volumes,
            working_dir="/box",
        )

    def _said(self, container: Any) -> str:
        try:
            return str(container.logs(tail=5).decode("utf-8", "replace").strip()[-500:])
        except self._errors:
            return "it ended at once"

    def _remove(self, container: Any) -> None:
        if container is not None:
            with contextlib.suppress(*self._errors):
                container.remove(force=True)

    def _gone(self, handle: _ContainerHandle) -> None:
        with self._lock:
            self._open.discard(handle)

    def close(self) -> None:
        """End what runs. May be called twice."""
        self._closed = True
        with self._lock:
            handles = list(self._open)
        for handle in handles:
            handle.close()
        self._client.close()

    def forget(self) -> None:
        """In a forked child: leave what runs to the parent."""
        self._lock = threading.RLock()
        self._closed = True
        for handle in self._open:
            handle.forget()
        self._open = set()


class _ContainerHandle(Handle):
    """A sandbox whose first process only the engine can kill."""

    def __init__(self, backend: DockerBackend, container: Any, connection: socket.socket) -> None:
        super().__init__(connection, lambda: backend._gone(self))
        self._backend, self._container = backend, container

    def kill(self) -> None:
        """Kill the container; the engine removes it."""
        self._backend._remove(self._container)


def _short(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
