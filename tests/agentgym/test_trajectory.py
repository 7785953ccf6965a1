from __future__ import annotations

import numpy as np
import pytest
from records import trajectory, turn

from agentgym.info import StopReason
from agentgym.trajectory import EpisodeSpec, Trajectory, group_trajectories


def test_sums_over_turns():
    played = trajectory(
        [turn([1], [2, 3], reward=0.5), turn([4], [], reward=-1), turn([5], [6], reward=2.25)]
    )
    assert played.rewards.tolist() == [0.5, -1, 2.25]
    assert played.rewards.dtype == np.float64
    assert played.total_reward == 1.75
    assert played.n_actions == 3
    assert [part.n_actions for part in played.turns] == [2, 0, 1]


def test_the_oldest_version_ignores_empty_turns():
    played = trajectory(
        [
            turn([1], [2, 3], versions=np.array([7, 5], np.int32)),
            turn([1], []),
            turn([1], [2], versions=np.array([6], np.int32)),
        ]
    )
    assert played.min_version == 5
    assert trajectory([]).min_version == -1
    assert trajectory([turn([1], [])]).min_version == -1


@pytest.mark.parametrize("reason", StopReason)
def test_usable_is_what_says_something_about_the_policy(reason):
    told = reason not in (StopReason.INFRA_ERROR, StopReason.CANCELLED)
    assert trajectory([turn([1], [2])], stop_reason=reason).usable == told
    assert not trajectory([turn([1], [])], stop_reason=reason).usable
    assert not trajectory([], stop_reason=reason).usable


def test_a_new_trajectory_counts_as_cancelled():
    fresh = Trajectory(EpisodeSpec(None, None, 0, "g"))
    assert fresh.stop_reason is StopReason.CANCELLED
    assert not fresh.usable
    assert fresh.tail_ids.tolist() == []
    assert fresh.turns is not Trajectory(EpisodeSpec(None, None, 0, "g")).turns


def test_groups_come_by_id_and_members_by_index():
    order = [("b", 1), ("a", 2), ("b", 0), ("c", 0), ("a", 0)]
    played = [trajectory([], group=group, member=member) for group, member in order]
    groups = group_trajectories(iter(played))
    assert [group.group_id for group in groups] == ["b", "a", "c"]
    assert [[item.spec.member for item in group] for group in groups] == [[0, 1], [0, 2], [0]]
    assert [len(group) for group in groups] == [2, 2, 1]
    assert groups[0].trajectories == [played[2], played[0]]
    assert group_trajectories([]) == []
