"""Rooms made for the tests, and the official games where the recorded data is."""

from __future__ import annotations

import tarfile

import alfworld_room
import pytest

from envs.alfworld import env as env_module
from envs.alfworld.dataset import open_dataset


@pytest.fixture(scope="session")
def official(data_dir, tmp_path_factory):
    """The folder above ``json_2.1.1`` with 1,340 official games, unpacked for this run."""
    archive = data_dir / "alfworld" / "official_games_1340.tar.xz"
    if not archive.is_file():
        pytest.fail(f"the recorded data has no {archive}")
    folder = tmp_path_factory.mktemp("alfworld")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="session")
def games(official):
    """The official games as a data set."""
    return open_dataset(official)


@pytest.fixture
def rooms(monkeypatch):
    """Environments made with ``data="rooms"`` play in the room made for tests."""
    source = alfworld_room.RoomSource()
    monkeypatch.setattr(env_module, "open_dataset", lambda data: source)
    return source
