from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.tasks import TaskSet


def small(**changes) -> TaskSet:
    splits = {"train": ["a", "b", "c"], "test": ("d",), "spare": []} | changes
    return TaskSet(splits, train_split="train", eval_splits=("test",))


def test_ids_and_splits_in_the_order_given():
    tasks = small()
    assert tasks.splits == ("train", "test", "spare")
    assert tasks.ids("train") == ("a", "b", "c")
    assert (tasks.train_split, tasks.eval_splits) == ("train", ("test",))
    assert [tasks.split_of(task) for task in "abcd"] == ["train"] * 3 + ["test"]
    assert len(tasks) == 4


@pytest.mark.parametrize("kwargs", [{"train_split": "x"}, {"eval_splits": ("test", "x")}])
def test_named_splits_must_exist(kwargs):
    with pytest.raises(ValueError, match=r"split 'x' is not among \['test', 'train'\]"):
        TaskSet({"train": [], "test": []}, **{"train_split": "train", "eval_splits": (), **kwargs})


def test_an_id_in_two_splits_is_refused_at_once():
    with pytest.raises(ValueError, match=r"task 'b' stands in splits 'train' and 'test'"):
        small(test=["d", "b"])


def test_an_id_in_two_splits_is_refused_when_a_lazy_one_is_listed():
    tasks = small(test=lambda: ["d", "b"])
    for _ in range(2):
        with pytest.raises(ValueError, match=r"task 'b' stands in splits 'train' and 'test'"):
            tasks.ids("test")
    with pytest.raises(ValueError, match=r"'train' and 'test'"):
        tasks.split_of("d")
    assert tasks.split_of("b") == "train"


def test_a_repeated_id_is_refused():
    with pytest.raises(ValueError, match=r"task 'a' stands twice in split 'train'"):
        small(train=["a", "b", "a"])


@pytest.mark.parametrize(
    ("ids", "words"), [("abc", "must be a sequence of ids, got the str 'abc'"), ([1], "holds 1;")]
)
def test_ids_are_strings(ids, words):
    with pytest.raises(TypeError, match=words):
        small(train=ids)
    with pytest.raises(TypeError, match=words):
        small(train=lambda: ids).ids("train")


def test_lazy_splits_are_listed_once_and_only_when_needed():
    calls = []

    def listing():
        calls.append(1)
        return ["x", "y"]

    tasks = small(spare=listing)
    tasks.sample(np.random.default_rng(0))
    assert tasks.split_of("a") == "train"
    assert not calls
    assert tasks.ids("spare") == tasks.ids("spare") == ("x", "y")
    assert tasks.split_of("y") == "spare"
    assert calls == [1]


def test_unknown_names_are_told_what_exists():
    with pytest.raises(ValueError, match=r"unknown split 'dev'.*\['train', 'test', 'spare'\]"):
        small().ids("dev")
    with pytest.raises(KeyError, match=r"unknown task_id 'zz'; an id of this environment is 'a'"):
        small().split_of("zz")
    with pytest.raises(KeyError, match="is 'none at all'"):
        TaskSet({"t": []}, train_split="t", eval_splits=()).split_of("zz")


def test_sampling_an_empty_split_says_so():
    with pytest.raises(ValueError, match="split 'spare' holds no task"):
        small().sample(np.random.default_rng(0), "spare")


@given(st.integers(0, 2**32))
def test_sampling_follows_the_generator_alone(seed):
    tasks = small()
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    drawn = [tasks.sample(rng) for rng in [np.random.default_rng(seed)] for _ in range(5)]
    again = [small().sample(rng) for rng in [np.random.default_rng(seed)] for _ in range(5)]
    assert drawn == again
    assert (np.random.get_state()[1] == before).all()


def test_sampling_is_uniform_over_the_split():
    tasks, rng = small(), np.random.default_rng(0)
    drawn = [tasks.sample(rng) for _ in range(3000)]
    counts = [drawn.count(task) for task in "abc"]
    assert sum(counts) == 3000
    assert all(900 < count < 1100 for count in counts)
    assert tasks.sample(rng, "test") == "d"
