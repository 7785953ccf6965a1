"""Bounds on how far rollouts lag behind the learner."""

import pytest

from trainers.staleness import rollout_capacity, too_stale


@pytest.mark.parametrize(
    ("eta", "version", "accepted", "running", "room"),
    [
        (0, 0, 0, 0, 128),
        (4, 0, 0, 0, 640),
        (4, 3, 512, 100, 412),
        (0, 1, 128, 0, 128),
        (0, 0, 0, 128, 0),
        (0, 0, 128, 5, 0),
    ],
)
def test_capacity(eta, version, accepted, running, room) -> None:
    assert rollout_capacity(eta, version, accepted, running, 128) == room


def test_without_staleness_one_batch_is_under_way_at_every_version() -> None:
    for version in range(5):
        assert rollout_capacity(0, version, 128 * version, 0, 128) == 128


def test_oldest_token_decides() -> None:
    assert not too_stale(3, 7, 4)
    assert too_stale(2, 7, 4)
    assert not too_stale(7, 7, 0)


def test_bad_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="accepted=-1"):
        rollout_capacity(0, 0, -1, 0, 8)
    with pytest.raises(ValueError, match="batch_size=0"):
        rollout_capacity(0, 0, 0, 0, 0)
