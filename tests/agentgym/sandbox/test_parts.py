"""The parts alone: the filter's program, kept output, messages, how an ending is judged."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.sandbox import Limits, Status
from agentgym.sandbox.inside import seccomp, tree, wire
from agentgym.sandbox.inside.output import Kept
from agentgym.sandbox.request import Request, judge, readable

_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def decide(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel's machine for packet filters makes of a call."""
    data = struct.pack("=IIQ", number, architecture or _ARCHITECTURES[machine], 0)
    data += b"".join(struct.pack("=Q", a) for a in [*arguments, 0, 0, 0, 0, 0, 0][:6])
    code = list(struct.iter_unpack("=HBBI", seccomp.program(machine)))
    place = held = 0
    while True:
        kind, yes, no, value = code[place]
        place += 1
        if kind == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        elif kind == 0x06:
            return value
        else:
            true = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[kind]
            place += yes if true else no


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter(machine):
    refused = seccomp.numbers(machine)
    assert {"ptrace", "mount", "unshare", "bpf", "userfaultfd", "io_uring_setup"} <= refused.keys()
    for number in refused.values():
        assert decide(machine, number) == _ERRNO | 1
    clone, ioctl, opened = {"x86_64": (56, 16, 257), "aarch64": (220, 29, 56)}[machine]
    make_socket = {"x86_64": 41, "aarch64": 198}[machine]
    assert decide(machine, 435) == _ERRNO | 38  # clone3, whose flags cannot be seen
    assert decide(machine, clone, 17) == decide(machine, clone, 0x3D0F00) == _ALLOW
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(machine, clone, 17 | flag) == _ERRNO | 1
    assert decide(machine, ioctl, 0, 0x5401) == _ALLOW
    assert decide(machine, ioctl, 0, 0x5412) == decide(machine, ioctl, 0, 0x541C) == _ERRNO | 1
    # The kernel looks at the low half of the number alone, and so does the filter.
    assert decide(machine, ioctl, 0, 0x1_0000_5412) == _ERRNO | 1
    for family in range(60):
        expected = _ALLOW if family in (1, 2, 10, 16) else _ERRNO | 97
        assert decide(machine, make_socket, family) == expected
    everyday = set(range(450)) - set(refused.values()) - {clone, ioctl, make_socket, 435}
    everyday -= {53, 199}
    assert {decide(machine, number) for number in everyday} == {_ALLOW}
    assert decide(machine, opened, architecture=0x40000003) == _KILL  # 32-bit calls


def test_the_other_door_of_x86():
    assert decide("x86_64", 0x40000000 + 101) == _ERRNO | 38
    with pytest.raises(KeyError, match="sparc"):
        seccomp.program("sparc")


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(2, 50))
def test_kept_output(parts, limit):
    kept = Kept(limit)
    for part in parts:
        kept.add(part)
    whole = b"".join(parts)
    assert kept.total == len(whole)
    assert len(kept.head) + len(kept.tail) == min(limit, len(whole))
    assert whole.startswith(kept.head)
    assert whole.endswith(kept.tail)


@given(st.text(max_size=60), st.integers(2, 40))
def test_readable_output(text, limit):
    data = text.encode("utf-8", "replace")
    kept = Kept(limit)
    kept.add(data)
    shown, cut = readable(kept.head, kept.tail, kept.total)
    assert cut == (len(data) > limit)
    assert not any(ord(char) < 32 and char not in "\t\n\r" for char in shown)
    assert ("left out" in shown) >= cut


def test_messages_carry_bytes_and_descriptors():
    one, other = socket.socketpair()
    reader, writer = os.pipe()
    with one, other:
        blob = os.urandom(3 << 20)
        sending = threading.Thread(
            target=wire.send, args=(one, {"a": ["ä", 1]}, blob, [writer]), daemon=True
        )
        sending.start()
        message = wire.receive(other)
        sending.join()
        assert (message.data, message.blob == blob, len(message.fds)) == ({"a": ["ä", 1]}, True, 1)
        os.write(message.fds[0], b"x")
        assert os.read(reader, 1) == b"x"
        assert not os.get_inheritable(message.fds[0])
        message.close()
        with pytest.raises(TimeoutError):
            wire.receive(other, 0.0)
        with pytest.raises(ValueError, match="at most"):
            wire.send(one, {}, fds=[writer] * 65)
        one.sendall(b"\xff" * 12)
        with pytest.raises(wire.Closed, match="protocol"):
            wire.receive(other)
        one.close()
        with pytest.raises(wire.Closed):
            wire.receive(other)
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    ("reason", "code", "number", "stderr", "status", "deadline"),
    [
        (None, 0, None, "", Status.OK, None),
        (None, 1, None, "x", Status.ERROR, None),
        (None, 0, None, "MemoryError", Status.OK, None),
        (None, 1, None, "Traceback\nMemoryError: no\n", Status.MEMORY, None),
        (None, None, 11, "", Status.KILLED, None),
        (None, None, 24, "", Status.TIMEOUT, "cpu"),
        (None, 128 + 24, None, "", Status.TIMEOUT, "cpu"),
        (None, None, 25, "", Status.DISK, None),
        (None, 128 + 25, None, "", Status.DISK, None),
        ("timeout", None, 9, "", Status.TIMEOUT, "episode"),
        ("memory", None, 9, "", Status.MEMORY, None),
        ("output", None, 9, "", Status.OUTPUT, None),
        ("disk", 0, None, "", Status.DISK, None),
        ("cancelled", None, 9, "", Status.KILLED, None),
    ],
)
def test_endings(reason, code, number, stderr, status, deadline):
    request = Request(Limits(seconds=3.0), argv=["x"], deadline="episode")
    told = judge(request, reason, code, number, 0.0, stderr, False)
    assert told[:2] == (status, deadline)
    assert told[2]


def test_a_request_survives_the_wire():
    request = Request.make(
        Limits(memory=1 << 26), code="x", files={"a/b": "é", "c": b"\0"}, stdin="in", env={"A": "b"}
    )
    data, blob = request.to_wire({"HOME": "/box"}, 2)
    assert json.loads(json.dumps(data)) == data
    assert data["limits"]["address_space"] == 1 << 26
    assert data["limits"]["processes"] == 66
    assert data["env"] == {"HOME": "/box", "A": "b"}
    assert blob == "é".encode() + b"\0in"


# Folders ----------------------------------------------------------------------------------------


def deep(place, levels):
    """A chain of folders with a file of a mebibyte in the last one; a descriptor of the first."""
    root = fd = os.open(place, tree.FOLDER)
    for level in range(levels):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", tree.FOLDER, dir_fd=fd)
        if level:
            os.close(fd)
        fd = inner
    file = os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=fd)
    os.write(file, bytes(1 << 20))
    os.close(file)
    os.close(fd)
    return root


@pytest.mark.parametrize("levels", [1, 99, 100, 3000])
def test_usage_counts_whatever_the_depth(tmp_path, levels):
    before = len(os.listdir("/proc/self/fd"))
    root = deep(tmp_path, levels)
    size, count = tree.usage(root, 10_000)
    assert size >= 1 << 20
    assert count % (1 << 40) == levels + 1
    assert (count > 1 << 40) == (levels >= tree.DEEPEST)
    _, count = tree.usage(root, 1)
    assert count > tree.ENDLESS
    assert len(list(tree.walk(root, recursive=True))) == min(levels + 1, tree.DEEPEST)
    os.close(root)
    assert len(os.listdir("/proc/self/fd")) == before
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_usage_does_not_follow_a_folder_that_is_moved(tmp_path):
    (tmp_path / "in" / "a" / "b").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "large").write_bytes(bytes(1 << 20))
    root = os.open(tmp_path / "in", tree.FOLDER)
    there = [True]
    real = os.listdir

    def move(fd):
        """``a`` is moved out of the folder while it is looked into, and back."""
        if os.readlink(f"/proc/self/fd/{fd}").endswith("/a"):
            os.rename(tmp_path / "in" / "a", tmp_path / "out" / "a")
            names = real(fd)
            there.append(False)
            return names
        return real(fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree.os, "listdir", move)
        size, _ = tree.usage(root, 100)
    os.close(root)
    assert len(there) > 1
    assert size < 1 << 20
