"""Reading the original's data files from disk, with errors that say which file and what is wrong.

A data folder holds ``items_shuffle*.json`` (products), ``items_ins_v2*.json`` (attributes) and,
for human goals, ``items_human_ins*.json``. Files may be compressed (``.json.gz``).
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.webshop.catalogue import CatalogueError

__all__ = ["DataFiles", "locate", "read_goals", "read_json", "read_mapping"]

PathLike = str | os.PathLike[str]

_STEMS = {
    "products": "items_shuffle",
    "attributes": "items_ins_v2",
    "human": "items_human_ins",
}


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Where the original's three files are; ``human`` may be None for synthetic goals."""

    products: Path
    attributes: Path
    human: Path | None

    def stamp(self) -> tuple[tuple[str, int, int], ...]:
        """Path, size and time of each file: differs once one of them was changed."""
        paths = (self.products, self.attributes, self.human)
        return tuple(
            (str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths if path
        )


def locate(data: PathLike | Mapping[str, PathLike]) -> DataFiles:
    """Find the three files.

    Args:
        data: A folder; or the products file, whose name's ending (``_1000``) then picks the
            other two beside it; or a mapping with ``products``, ``attributes`` and, for human
            goals, ``human``.

    Raises:
        CatalogueError: If a file is missing or more than one would do.
    """
    if isinstance(data, Mapping):
        return _from_mapping(data)
    path = Path(data).expanduser()
    if path.is_file():
        products = path
    elif path.is_dir():
        products = _only("products", _candidates(path, "products"), path)
    else:
        raise CatalogueError(
            f"no such file or folder: {path}; data must be a folder with items_shuffle*.json and "
            "items_ins_v2*.json, the products file, or a mapping of the files"
        )
    folder = products.parent
    ending = products.name.partition(".")[0].removeprefix(_STEMS["products"])
    attributes = _matching("attributes", folder, ending)
    if attributes is None:
        raise CatalogueError(
            f"{folder} has no {_STEMS['attributes']}{ending}.json beside {products}"
        )
    return DataFiles(products, attributes, _matching("human", folder, ending))


def read_json(path: PathLike) -> Any:
    """Read a JSON file, compressed if its name ends in ``.gz``.

    Raises:
        CatalogueError: If the file is missing, truncated or no JSON.
    """
    path = Path(path)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        raise CatalogueError(f"no such file: {path}") from None
    except RecursionError:
        raise CatalogueError(f"{path} is nested too deeply to be a WebShop file") from None
    except json.JSONDecodeError as error:
        raise CatalogueError(
            f"{path} is truncated or not JSON: {error.msg} at line {error.lineno}, "
            f"column {error.colno}"
        ) from None
    except EOFError:
        raise CatalogueError(f"{path} is truncated: the compressed data end too early") from None
    except (gzip.BadGzipFile, UnicodeDecodeError, OSError) as error:
        raise CatalogueError(f"{path} cannot be read: {error}") from None


def read_goals(path: PathLike) -> tuple[list[Any], dict[str, float] | None]:
    """Read recorded goals: a list, or an object with ``goals`` and perhaps ``prices``.

    Returns:
        The goals in their order, and the prices drawn for the products, if the file has them.

    Raises:
        CatalogueError: If the file holds neither form.
    """
    content = read_json(path)
    prices = None
    if isinstance(content, Mapping):
        prices = content.get("prices")
        content = content.get("goals")
    if not isinstance(content, Sequence) or isinstance(content, str):
        raise CatalogueError(f"{path} must hold a list of goals, or an object with 'goals'")
    if prices is not None and not isinstance(prices, Mapping):
        raise CatalogueError(f"{path}: 'prices' must be an object keyed by product id")
    return list(content), None if prices is None else dict(prices)


def read_mapping(source: PathLike | Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """A mapping given as such or as the path of a JSON object.

    Raises:
        CatalogueError: If the file holds something else.
    """
    if isinstance(source, Mapping):
        return source
    content = read_json(source)
    if not isinstance(content, dict):
        raise CatalogueError(f"{source}: {what} must be an object keyed by product id")
    return content


def _from_mapping(data: Mapping[str, PathLike]) -> DataFiles:
    unknown = set(data) - set(_STEMS)
    if unknown or not {"products", "attributes"} <= set(data):
        raise CatalogueError(
            f"data names the files {sorted(data)}; right would be products, attributes and, "
            "for human goals, human"
        )
    paths = {name: Path(path).expanduser() for name, path in data.items()}
    for path in paths.values():
        if not path.is_file():
            raise CatalogueError(f"no such file: {path}")
    return DataFiles(paths["products"], paths["attributes"], paths.get("human"))


def _candidates(folder: Path, role: str, ending: str = "*") -> list[Path]:
    name = f"{_STEMS[role]}{ending}"
    return sorted([*folder.glob(f"{name}.json"), *folder.glob(f"{name}.json.gz")])


def _only(role: str, found: list[Path], folder: Path) -> Path:
    if not found:
        raise CatalogueError(f"{folder} has no {_STEMS[role]}*.json")
    if len(found) > 1:
        raise CatalogueError(
            f"{folder} has several files for {role}: {', '.join(p.name for p in found)}; "
            "name one: data='FOLDER/items_shuffle_1000.json', or a mapping with products, "
            "attributes and human"
        )
    return found[0]


def _matching(role: str, folder: Path, ending: str) -> Path | None:
    """The file of a role with the products file's ending, else the only one there is."""
    for found in (_candidates(folder, role, ending), _candidates(folder, role, "")):
        if found:
            return found[0]
    found = _candidates(folder, role)
    return _only(role, found, folder) if found else None
