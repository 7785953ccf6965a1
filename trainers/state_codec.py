"""A nested state as plain JSON plus tensors and arrays, and back, exactly."""

from __future__ import annotations

import base64
import math
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Packed", "StateError", "pack_state", "unpack_state"]

# Types that safetensors stores as they are; tensors of others travel as their bytes.
_NATIVE = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip
_TAG = "$"


class StateError(TypeError):
    """A state holds something that cannot be stored exactly."""


@dataclass(slots=True)
class Packed:
    """A state taken apart.

    Attributes:
        structure: JSON-able; special values are objects with a ``$`` key.
        tensors: PyTorch tensors by name: contiguous, on the CPU, sharing no memory.
        arrays: NumPy arrays by name.
    """

    structure: Any
    tensors: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def pack_state(state: Any) -> Packed:
    """Take a nested state apart.

    Raises:
        StateError: A value of a type that cannot be stored exactly; the message names its place.
    """
    packed = Packed(None)
    packed.structure = _Packer(packed).pack(state, ())
    return packed


def unpack_state(packed: Packed) -> Any:
    """Put a state together again.

    Raises:
        StateError: The structure refers to something that is not there.
    """
    cache: dict[str, Any] = {}
    return _unpack(packed.structure, packed, cache)


class _Packer:
    def __init__(self, packed: Packed) -> None:
        self.packed = packed
        self._names: dict[tuple[Any, ...], str] = {}
        self._storages: set[int] = set()

    def pack(self, value: Any, path: tuple[str, ...]) -> Any:
        torch = sys.modules.get("torch")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, np.generic):  # before float and str, which NumPy's scalars extend
            return {_TAG: "scalar", "name": self._array(np.asarray(value), path)}
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            if math.isfinite(value):
                return float(value)
            return {_TAG: "float", "value": repr(float(value))}
        if type(value) is bytes:
            return {_TAG: "bytes", "value": base64.b64encode(value).decode("ascii")}
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(torch, value, path)
        if type(value) is np.ndarray:
            return {_TAG: "array", "name": self._array(value, path)}
        if type(value) is list:
            return [self.pack(item, (*path, str(i))) for i, item in enumerate(value)]
        if type(value) is tuple:
            items = [self.pack(item, (*path, str(i))) for i, item in enumerate(value)]
            return {_TAG: "tuple", "items": items}
        if type(value) is dict or type(value) is OrderedDict:
            return self._dict(value, path)
        raise StateError(
            f"state[{'/'.join(path)}] is a {type(value).__module__}.{type(value).__qualname__}, "
            "which a checkpoint cannot hold; allowed are dict, list, tuple, tensors, NumPy arrays "
            "and scalars, numbers, texts, bytes and None"
        )

    def _dict(self, value: dict[Any, Any], path: tuple[str, ...]) -> Any:
        if all(type(key) is str for key in value) and _TAG not in value:
            return {key: self.pack(item, (*path, key)) for key, item in value.items()}
        items = [
            [self.pack(key, (*path, "<key>")), self.pack(item, (*path, str(key)))]
            for key, item in value.items()
        ]
        return {_TAG: "dict", "items": items}

    def _array(self, value: np.ndarray, path: tuple[str, ...]) -> str:
        if value.dtype.hasobject:
            raise StateError(f"state[{'/'.join(path)}] is an array of Python objects")
        # Keys of an .npz file become file names: numbered, so that any path will do.
        name = f"a{len(self.packed.arrays)}"
        self.packed.arrays[name] = value
        return name

    def _tensor(self, torch: Any, value: Any, path: tuple[str, ...]) -> Any:
        if value.layout is not torch.strided or value.is_quantized or value.is_meta:
            raise StateError(
                f"state[{'/'.join(path)}] must be a dense tensor with data, got layout "
                f"{value.layout} on {value.device}"
            )
        value = value.detach()
        # Tied weights show up as several tensors in the same place.
        place = (
            *(value.data_ptr(), value.device, value.dtype, tuple(value.shape), value.stride()),
            *(value.is_conj(), value.is_neg()),
        )
        name = self._names.get(place) if value.numel() else None
        dtype = str(value.dtype).removeprefix("torch.")
        if name is None:
            name = "/".join(path) or "state"
            while name in self.packed.tensors or name == "__metadata__":  # the format's own key
                name += "+"
            if value.numel():
                self._names[place] = name
            plain = value.resolve_conj().resolve_neg().to("cpu").contiguous()
            storage = plain.untyped_storage()
            if storage.data_ptr() in self._storages or storage.nbytes() != plain.nbytes:
                plain = plain.clone()  # a view: the file format wants memory of its own
            self._storages.add(plain.untyped_storage().data_ptr())
            if dtype not in _NATIVE:
                plain = plain.reshape(-1).view(torch.uint8)
            self.packed.tensors[name] = plain
        if dtype in _NATIVE:
            return {_TAG: "tensor", "name": name}
        return {_TAG: "tensor", "name": name, "dtype": dtype, "shape": list(value.shape)}


def _unpack(value: Any, packed: Packed, cache: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, packed, cache) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_TAG)
    if kind is None:
        return {key: _unpack(item, packed, cache) for key, item in value.items()}
    if kind == "tuple":
        return tuple(_unpack(item, packed, cache) for item in value["items"])
    if kind == "dict":
        return {_unpack(k, packed, cache): _unpack(v, packed, cache) for k, v in value["items"]}
    if kind == "float":
        return float(value["value"])
    if kind == "bytes":
        return base64.b64decode(value["value"])
    store = packed.tensors if kind == "tensor" else packed.arrays
    if kind not in ("tensor", "array", "scalar") or value["name"] not in store:
        raise StateError(f"the stored structure refers to an unknown part: {value!r:.200}")
    stored = store[value["name"]]
    if kind == "scalar":
        return stored[()]
    if kind == "tensor" and "dtype" in value:
        if value["name"] not in cache:
            import torch

            dtype = getattr(torch, value["dtype"])
            cache[value["name"]] = stored.view(dtype).reshape(value["shape"])
        return cache[value["name"]]
    return stored
