"""Runs inside the sandbox: MongoDB's filters and updates on documents in memory."""

from __future__ import annotations

import copy
import datetime
import re
from typing import Any

FAULTS: dict[str, type[Exception]] = {}
for _name, _base in (
    ("PyMongoError", ""), ("ConnectionFailure", "PyMongoError"),
    ("OperationFailure", "PyMongoError"),
    ("AutoReconnect", "ConnectionFailure"), ("ConfigurationError", "PyMongoError"),
    ("ServerSelectionTimeoutError", "AutoReconnect"), ("NetworkTimeout", "AutoReconnect"),
    ("WriteError", "OperationFailure"), ("DuplicateKeyError", "WriteError"),
    ("InvalidURI", "ConfigurationError"), ("InvalidName", "PyMongoError"),
    ("BulkWriteError", "OperationFailure"), ("CollectionInvalid", "PyMongoError"),
    ("InvalidOperation", "PyMongoError"), ("WriteConcernError", "OperationFailure"),
    ("ExecutionTimeout", "OperationFailure"), ("CursorNotFound", "OperationFailure"),
):  # fmt: skip
    FAULTS[_name] = type(_name, (FAULTS[_base] if _base else Exception,), {})


def values(document: Any, path: str) -> list[Any]:
    """Values at a dotted path; none if there is nothing."""
    head, _, rest = path.partition(".")
    if isinstance(document, list):
        return [found for item in document for found in values(item, path)]
    if not isinstance(document, dict) or head not in document:
        return []
    return values(document[head], rest) if rest else [document[head]]


def compare(value: Any, operator: str, wanted: Any) -> bool:
    """Whether a value is below, above, or at another one; those of other kinds are not."""
    try:
        return bool(
            {
                "$gt": lambda: value > wanted,
                "$gte": lambda: value >= wanted,
                "$lt": lambda: value < wanted,
                "$lte": lambda: value <= wanted,
            }[operator]()
        )
    except TypeError:
        return False


def holds(found: list[Any], wanted: Any) -> bool:
    """Whether values at a path are as a filter wants them."""
    spread = found + [item for value in found if isinstance(value, list) for item in value]
    if isinstance(wanted, re.Pattern):
        return any(isinstance(value, str) and wanted.search(value) for value in spread)
    if not (isinstance(wanted, dict) and any(str(key).startswith("$") for key in wanted)):
        return wanted in spread or (wanted is None and not found)
    for operator, operand in wanted.items():
        if operator in ("$gt", "$gte", "$lt", "$lte"):
            good = any(compare(value, operator, operand) for value in spread)
        elif operator == "$eq":
            good = holds(found, operand)
        elif operator == "$ne":
            good = not holds(found, operand)
        elif operator == "$in":
            good = any(holds(found, one) for one in operand)
        elif operator == "$nin":
            good = not any(holds(found, one) for one in operand)
        elif operator == "$exists":
            good = bool(found) is bool(operand)
        elif operator == "$not":
            good = not holds(found, operand)
        elif operator == "$regex":
            flags = re.IGNORECASE if "i" in wanted.get("$options", "") else 0
            good = holds(found, re.compile(getattr(operand, "pattern", operand), flags))
        elif operator == "$options":
            good = True
        else:
            raise FAULTS["OperationFailure"](f"unknown operator: {operator}")
        if not good:
            return False
    return True


def matches(document: Any, wanted: Any) -> bool:
    """Whether a document is one that a filter wants."""
    for key, value in (wanted or {}).items():
        if key in ("$or", "$and", "$nor"):
            parts = [matches(document, part) for part in value]
            good = {"$or": any(parts), "$and": all(parts), "$nor": not any(parts)}[key]
        else:
            good = holds(values(document, key), value)
        if not good:
            return False
    return True


def change(document: dict[str, Any], update: Any, inserted: bool) -> None:
    """Apply an update in place."""
    if isinstance(update, list):
        raise FAULTS["OperationFailure"]("updates by pipeline are not supported")
    if not update or not all(key.startswith("$") for key in update):
        raise ValueError("update only works with $ operators")
    for operator, fields in update.items():
        if operator == "$setOnInsert" and not inserted:
            continue
        for path, operand in fields.items():
            value = copy.deepcopy(operand)
            *folders, name = path.split(".")
            place = document
            for folder in folders:
                place = place.setdefault(folder, {})
            if operator in ("$set", "$setOnInsert"):
                place[name] = value
            elif operator == "$unset":
                place.pop(name, None)
            elif operator == "$inc":
                place[name] = place.get(name, 0) + value
            elif operator == "$currentDate":
                place[name] = datetime.datetime.now(datetime.UTC)
            elif operator in ("$min", "$max"):
                chosen = min if operator == "$min" else max
                place[name] = chosen(place[name], value) if name in place else value
            elif operator in ("$push", "$addToSet"):
                many = value["$each"] if isinstance(value, dict) and "$each" in value else [value]
                held = place.setdefault(name, [])
                held += [one for one in many if operator == "$push" or one not in held]
            elif operator == "$pull":
                place[name] = [one for one in place.get(name, []) if one != value]
            else:
                raise FAULTS["OperationFailure"](f"unknown operator: {operator}")


def pairs(keys: Any) -> list[tuple[str, Any]]:
    """Names and directions of an index or a sort."""
    if isinstance(keys, str):
        return [(keys, 1)]
    keys = list(keys.items()) if isinstance(keys, dict) else list(keys)
    if len(keys) == 2 and isinstance(keys[0], str) and isinstance(keys[1], int):
        return [(keys[0], keys[1])]
    return [(key, 1) if isinstance(key, str) else (key[0], key[1]) for key in keys]
