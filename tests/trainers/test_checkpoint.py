import json
import math
import os
import random
import shutil
import struct
from collections import OrderedDict

import numpy as np
import pytest

from trainers import checkpoint as module
from trainers.checkpoint import (
    CheckpointError,
    DamagedCheckpoint,
    StateError,
    list_checkpoints,
    load_checkpoint,
    load_latest,
    prune_checkpoints,
    save_checkpoint,
    tidy_checkpoints,
)

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


def assert_same(a, b):
    """Equal in type, structure and every bit."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        bits = [t.resolve_conj().contiguous().reshape(-1).view(torch.uint8) for t in (a, b)]
        assert torch.equal(*bits)
    elif isinstance(a, np.ndarray | np.generic):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    elif isinstance(a, float):
        assert struct.pack("d", a) == struct.pack("d", b)
    else:
        assert a == b


def round_trip(tmp_path, state):
    return load_checkpoint(save_checkpoint(tmp_path, 1, state)).state


def test_every_kind_of_value(tmp_path):
    odd_nan = torch.tensor([0x7FC00123, 0x7F800001], dtype=torch.int32).view(torch.float32)
    state = {
        "none": None,
        "flags": [True, False],
        "ints": (0, -1, 2**200, -(2**63)),
        "floats": [0.1, -0.0, 5e-324, 1.7976931348623157e308],
        "infinite": [math.inf, -math.inf],
        "nan": math.nan,
        "text": 'ünï "quoted" \ud800 \u2028\n',
        "bytes": bytes(range(256)),
        "empty": [{}, [], (), "", b""],
        "int keys": {0: "a", 1: {2: (3,)}},
        "odd keys": {(1, "x"): 1, None: 2, True: 3, 2.5: 4},
        "$": {"$": "tensor", "name": "not a reference"},
        "a/b": {"c": torch.ones(1)},
        "a": {"b/c": torch.zeros(1), "b": {"c": torch.full((1,), 2.0)}},
        "__metadata__": torch.arange(3),
        "payload": odd_nan,
        "scalar": torch.tensor(3.5, dtype=torch.float64),
        "no elements": torch.zeros(0, 5),
        "slice": torch.arange(12).reshape(3, 4)[:, 1:3],
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "np": np.arange(5, dtype=">i2"),
        "np fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "np 0-d": np.array(1.5),
        "np text": np.array(["a", "bcd"]),
        "np scalar": np.float32(0.1),
        "np float64": np.float64(0.1),
        "np bool": np.bool_(True),
        "np record": np.array([(1, 2.0)], dtype=[("i", "<i4"), ("x", "<f8")]),
    }
    assert_same(round_trip(tmp_path, state), state)


@pytest.mark.parametrize(
    "dtype",
    [
        "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "complex64", "complex128",
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    ],
)  # fmt: skip
def test_every_tensor_type(tmp_path, dtype):
    tensor = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(torch, dtype))
    state = {"x": tensor, "empty": tensor[:0], "scalar": tensor[0, 1]}
    if dtype.startswith("complex"):
        state["conjugate"] = (tensor * 1j).conj()
        state["original"] = state["conjugate"].conj()
    assert_same(round_trip(tmp_path, state), state)


def test_a_bare_tensor_is_a_state(tmp_path):
    assert_same(round_trip(tmp_path, torch.arange(3)), torch.arange(3))


def test_tied_tensors_are_stored_once_and_come_back_tied(tmp_path):
    shared = torch.randn(100, 10)
    path = save_checkpoint(tmp_path, 1, {"embed": shared, "head": shared, "row": shared[0]})
    state = load_checkpoint(path).state
    assert (path / "tensors.safetensors").stat().st_size < 1.5 * shared.nbytes
    assert state["embed"].data_ptr() == state["head"].data_ptr()
    assert_same(state["row"], shared[0])


def test_a_view_does_not_drag_its_storage_along(tmp_path):
    path = save_checkpoint(tmp_path, 1, {"x": torch.zeros(1_000_000)[:10]})
    assert (path / "tensors.safetensors").stat().st_size < 1000


def test_loaded_tensors_outlive_the_files(tmp_path):
    path = save_checkpoint(tmp_path, 1, {"x": torch.arange(10_000)})
    state = load_checkpoint(path).state
    with open(path / "tensors.safetensors", "r+b") as file:
        file.truncate(0)
    assert torch.equal(state["x"], torch.arange(10_000))


def test_random_number_generators_resume_exactly(tmp_path):
    numpy_rng, legacy = np.random.default_rng(3), np.random.RandomState(3)
    python_rng, torch_rng = random.Random(3), torch.Generator().manual_seed(3)
    for _ in range(5):
        (
            numpy_rng.random(),
            legacy.randn(),
            python_rng.gauss(0, 1),
            torch.rand(1, generator=torch_rng),
        )
    state = round_trip(
        tmp_path,
        {
            "numpy": numpy_rng.bit_generator.state,
            "legacy": legacy.get_state(),
            "python": python_rng.getstate(),
            "torch": torch_rng.get_state(),
        },
    )
    expected = (
        numpy_rng.random(),
        legacy.randn(),
        python_rng.gauss(0, 1),
        torch.rand(1, generator=torch_rng).item(),
    )
    numpy_rng, legacy = np.random.default_rng(0), np.random.RandomState(0)
    python_rng, torch_rng = random.Random(0), torch.Generator()
    numpy_rng.bit_generator.state = state["numpy"]
    legacy.set_state(state["legacy"])
    python_rng.setstate(state["python"])
    torch_rng.set_state(state["torch"])
    assert expected == (
        numpy_rng.random(),
        legacy.randn(),
        python_rng.gauss(0, 1),
        torch.rand(1, generator=torch_rng).item(),
    )


def test_training_continues_bit_equal(tmp_path):
    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        return model, optimizer, torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=7)

    def train(model, optimizer, schedule, steps):
        for _ in range(steps):
            loss = model(torch.randn(5, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()

    whole = make()
    train(*whole, 6)
    half = make()
    train(*half, 3)
    path = save_checkpoint(
        tmp_path, 3, {"parts": [x.state_dict() for x in half], "rng": torch.get_rng_state()}
    )
    again = make()
    torch.rand(1)
    state = load_checkpoint(path).state
    for part, saved in zip(again, state["parts"], strict=True):
        part.load_state_dict(saved)
    torch.set_rng_state(state["rng"])
    train(*again, 3)
    for a, b in zip(whole, again, strict=True):
        assert_same(dict(a.state_dict()), dict(b.state_dict()))


def test_ordered_dicts_become_dicts(tmp_path):
    assert round_trip(tmp_path, OrderedDict(b=1, a=2)) == {"b": 1, "a": 2}


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, lambda: 0, np.array([object()]), np.ma.masked_array([1.0], [True]), 1j],
)
def test_what_cannot_be_stored_is_named(tmp_path, value):
    with pytest.raises(StateError, match=r"state\[gate/history/1\]"):
        save_checkpoint(tmp_path, 1, {"gate": {"history": [0, value]}})
    assert list(tmp_path.iterdir()) == []


def test_sparse_and_meta_tensors_are_refused(tmp_path):
    for tensor in (torch.eye(2).to_sparse(), torch.empty(2, device="meta")):
        with pytest.raises(StateError, match="dense tensor"):
            save_checkpoint(tmp_path, 1, {"x": tensor})


def test_no_pickle_is_read(tmp_path):
    """Arrays that ask for pickle are refused even with a consistent manifest."""
    path = save_checkpoint(tmp_path, 1, {"x": np.arange(3)})
    np.savez(path / "arrays.npz", a0=np.array([object()]))
    manifest = json.loads((path / "manifest.json").read_text())
    data = (path / "arrays.npz").read_bytes()
    manifest["files"]["arrays.npz"] = {
        "bytes": len(data),
        "sha256": module._digest(path / "arrays.npz"),
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="allow_pickle"):
        load_checkpoint(path)


def test_score_and_step(tmp_path):
    checkpoint = load_checkpoint(save_checkpoint(tmp_path, 123, {}, score=0.5))
    assert (checkpoint.step, checkpoint.info.score) == (123, 0.5)
    assert checkpoint.info.path == tmp_path / "step_000123"
    assert load_checkpoint(save_checkpoint(tmp_path, 1234567, {})).info.score is None
    assert [info.step for info in list_checkpoints(tmp_path)] == [123, 1234567]


@pytest.mark.parametrize("step", [-1, 1.0, True, None])
def test_bad_steps(tmp_path, step):
    with pytest.raises(ValueError, match="step must be"):
        save_checkpoint(tmp_path, step, {})


def test_saving_a_step_again_replaces_it(tmp_path):
    save_checkpoint(tmp_path, 1, {"x": 1})
    save_checkpoint(tmp_path, 1, {"x": 2})
    assert load_checkpoint(tmp_path / "step_000001").state == {"x": 2}
    assert os.listdir(tmp_path) == ["step_000001"]


STATE = {"w": torch.arange(100.0), "n": np.arange(7), "k": 1}


@pytest.mark.parametrize("name", ["state.json", "tensors.safetensors", "arrays.npz"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "delete"])
def test_damage_is_noticed_and_the_file_named(tmp_path, name, damage):
    path = save_checkpoint(tmp_path, 1, STATE) / name
    data = bytearray(path.read_bytes())
    if damage == "truncate":
        path.write_bytes(data[:-1])
    elif damage == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    else:
        path.unlink()
    with pytest.raises(DamagedCheckpoint, match=name):
        load_checkpoint(path.parent)


@pytest.mark.parametrize("content", ["", "{", '{"format": "agentgym-checkpoint", "version": 1}'])
def test_a_damaged_manifest_is_named(tmp_path, content):
    path = save_checkpoint(tmp_path, 1, STATE)
    (path / "manifest.json").write_text(content)
    with pytest.raises(DamagedCheckpoint, match=r"manifest\.json"):
        load_checkpoint(path)
    (path / "manifest.json").unlink()
    with pytest.raises(DamagedCheckpoint, match=r"manifest\.json.* is missing"):
        load_checkpoint(path)


def test_foreign_folders_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        load_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        load_checkpoint(tmp_path / "missing")
    (tmp_path / "manifest.json").write_text('{"format": "other"}')
    with pytest.raises(CheckpointError, match="not the manifest"):
        load_checkpoint(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "agentgym-checkpoint", "version": 99}')
    with pytest.raises(CheckpointError, match="format 99"):
        load_checkpoint(tmp_path)


def test_falling_back_to_the_previous_intact_one(tmp_path):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, {"step": step})
    (tmp_path / "step_000003" / "state.json").write_text("{}")
    shutil.rmtree(tmp_path / "step_000002")
    (tmp_path / "step_000002").mkdir()
    (tmp_path / "step_000002" / "state.json").write_text("x")
    said = []
    checkpoint = load_latest(tmp_path, say=said.append)
    assert checkpoint.state == {"step": 1}
    assert len(said) == 2
    assert "state.json" in said[0]
    assert "going back to step 1" in said[0]
    assert sorted(os.listdir(tmp_path)) == [
        "damaged-step_000002",
        "damaged-step_000003",
        "step_000001",
    ]
    save_checkpoint(tmp_path, 2, {"step": 2})
    assert load_latest(tmp_path, say=said.append).step == 2


def test_nothing_intact_and_nothing_at_all(tmp_path):
    assert load_latest(tmp_path / "none") is None
    save_checkpoint(tmp_path, 1, {})
    save_checkpoint(tmp_path, 2, {})
    for step in (1, 2):
        (tmp_path / f"step_{step:06d}" / "state.json").write_text("")
    with pytest.raises(DamagedCheckpoint, match=r"no intact.*step_000002.*step_000001"):
        load_latest(tmp_path)
    assert len(list_checkpoints(tmp_path)) == 2


def test_pruning_keeps_the_last_and_the_best(tmp_path):
    for step, score in enumerate([None, 0.9, 0.2, 0.9, math.nan, 0.5, None], 1):
        save_checkpoint(tmp_path, step, {}, score=score)
    deleted = prune_checkpoints(tmp_path, 2)
    assert [info.step for info in list_checkpoints(tmp_path)] == [4, 6, 7]
    assert len(deleted) == 4
    assert sorted(os.listdir(tmp_path)) == ["step_000004", "step_000006", "step_000007"]
    with pytest.raises(ValueError, match="keep_last"):
        prune_checkpoints(tmp_path, 0)


@pytest.mark.parametrize("call", ["rename", "fsync"])
def test_a_failure_while_writing_leaves_the_old_checkpoints(tmp_path, monkeypatch, call):
    save_checkpoint(tmp_path, 1, {"x": 1})

    def broken(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, call, broken)
    with pytest.raises(OSError, match="no space"):
        save_checkpoint(tmp_path, 2, {"x": 2})
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["step_000001"]
    assert load_latest(tmp_path).state == {"x": 1}


def test_leftovers_of_a_kill_are_cleared(tmp_path):
    save_checkpoint(tmp_path, 1, {"x": 1})
    save_checkpoint(tmp_path, 2, {"x": 2})
    (tmp_path / ".writing-step_000003").mkdir()
    os.rename(
        tmp_path / "step_000002", tmp_path / ".replaced-step_000002"
    )  # killed between renames
    assert [info.step for info in list_checkpoints(tmp_path)] == [1]
    tidy_checkpoints(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["step_000001", "step_000002"]
    tidy_checkpoints(tmp_path, after=1)
    assert os.listdir(tmp_path) == ["step_000001"]


def test_a_damaged_checkpoint_makes_no_best(tmp_path):
    save_checkpoint(tmp_path, 1, {}, score=1.0)
    save_checkpoint(tmp_path, 2, {}, score=0.1)
    (tmp_path / "step_000001" / "manifest.json").write_text("nonsense")
    assert [info.score for info in list_checkpoints(tmp_path)] == [None, 0.1]
