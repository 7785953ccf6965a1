import os

import pytest

from agentgym.files import write_atomically


def test_writes_text_and_bytes_and_replaces(tmp_path):
    path = write_atomically(tmp_path / "a" / "b.txt", "naïve")
    assert path.read_bytes() == "naïve".encode()
    write_atomically(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert os.listdir(path.parent) == ["b.txt"]


def test_lone_surrogates_do_not_fail(tmp_path):
    assert write_atomically(tmp_path / "x", "a\ud800b").read_text() == "a?b"


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o022)
    try:
        assert write_atomically(tmp_path / "x", "").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


def test_a_failure_leaves_the_old_content(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "x", "old")

    def broken(*_):
        raise OSError("disk gone")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk gone"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x"]
