"""Runs inside the sandbox: a MongoDB in memory that answers to pymongo's names, and python-dotenv.

It knows what small services use: documents, unique indexes, filters, updates, cursors. ``STATE.up``
says whether there is a server; without one, every operation fails as pymongo's does.
"""

from __future__ import annotations

import copy
import os
import re
import sys
import types
import uuid
from typing import Any

from envs.agencybench.inside.documents import FAULTS, change, matches, pairs, values


class State:
    """All databases, whether the server answers, and how many clients were made."""

    up = True
    clients = 0
    databases: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - one state for the process


STATE = State()


def alive() -> None:
    """Fail if there is no server."""
    if not STATE.up:
        raise FAULTS["ServerSelectionTimeoutError"]("no server answers")


class ObjectId(str):
    """An identifier that the server draws."""

    def __new__(cls, value: Any = None) -> Any:
        """Draw one, or take one that there is."""
        return super().__new__(cls, str(value) if value is not None else uuid.uuid4().hex[:24])


class IndexModel:
    """An index to be made."""

    def __init__(self, keys: Any, **options: Any) -> None:
        self.keys, self.options = pairs(keys), options
        self.document = {"key": dict(self.keys), **options}


class Cursor:
    """Documents that were found."""

    def __init__(self, documents: list[Any]) -> None:
        self.documents = documents

    def sort(self, keys: Any, direction: int = 1) -> Any:
        """Put them in order; equal ones stay as they are."""
        keys = [(keys, direction)] if isinstance(keys, str) else pairs(keys)
        for path, way in reversed(keys):

            def order(document: Any, path: str = path) -> Any:
                found = values(document, path)
                number = bool(found) and isinstance(found[0], int | float)
                return (not found, not number, found[0] if number else str(found))

            self.documents.sort(key=order, reverse=way == -1)
        return self

    def limit(self, count: int) -> Any:
        """Keep so many; 0 keeps all."""
        self.documents = self.documents[:count] if count else self.documents
        return self

    def skip(self, count: int) -> Any:
        """Leave so many out."""
        self.documents = self.documents[count:]
        return self

    def batch_size(self, count: int) -> Any:
        """All are there at once."""
        return self

    def to_list(self, length: Any = None) -> list[Any]:
        """All of them."""
        return self.documents[:length]

    def close(self) -> None:
        """Forget them."""
        self.documents = []

    def __iter__(self) -> Any:
        while self.documents:
            yield self.documents.pop(0)

    def __next__(self) -> Any:
        if not self.documents:
            raise StopIteration
        return self.documents.pop(0)

    def __getitem__(self, number: Any) -> Any:
        return self.documents[number]


def outcome(**told: Any) -> Any:
    """What a write tells."""
    return types.SimpleNamespace(acknowledged=True, **told)


class Collection:
    """Documents and indexes by one name."""

    def __init__(self, database: Any, name: str) -> None:
        self.database, self.name = database, name
        self.full_name = f"{database.name}.{name}"

    def __bool__(self) -> bool:
        raise NotImplementedError("Collection objects do not implement truth value testing")

    def held(self) -> dict[str, Any]:
        """Its documents and indexes."""
        alive()
        made = STATE.databases.setdefault(self.database.name, {})
        empty: dict[str, Any] = {"docs": [], "indexes": {}}
        held: dict[str, Any] = made.setdefault(self.name, empty)
        return held

    def _check(self, document: Any, others: list[Any]) -> None:
        for name, index in self.held()["indexes"].items():
            if not index["unique"]:
                continue
            own = [values(document, path) for path, _ in index["keys"]]
            if index["partial"] and not any(own):
                continue
            for other in others:
                if other is not document and own == [values(other, p) for p, _ in index["keys"]]:
                    raise FAULTS["DuplicateKeyError"](f"E11000 duplicate key error: {name}")

    def create_index(self, keys: Any, **options: Any) -> str:
        """Make an index, once."""
        keys = pairs(keys)
        name = options.get("name") or "_".join(f"{key}_{way}" for key, way in keys)
        made = {
            "keys": keys,
            "unique": bool(options.get("unique")),
            "partial": bool(options.get("sparse") or options.get("partialFilterExpression")),
        }
        indexes = self.held()["indexes"]
        for other, index in indexes.items():
            if (other == name or index["keys"] == keys) and (other != name or index != made):
                raise FAULTS["OperationFailure"](f"an index {other} with other options exists")
        indexes[name] = made
        return str(name)

    def create_indexes(self, models: Any, **options: Any) -> list[str]:
        """Make several."""
        return [self.create_index(model.keys, **model.options) for model in models]

    def index_information(self) -> dict[str, Any]:
        """Indexes by name."""
        made: dict[str, Any] = {"_id_": {"v": 2, "key": [("_id", 1)]}}
        for name, index in self.held()["indexes"].items():
            made[name] = {"v": 2, "key": index["keys"]}
            made[name].update({"unique": True} if index["unique"] else {})
        return made

    def list_indexes(self) -> Any:
        """Indexes, one after the other."""
        for name, index in self.index_information().items():
            yield {**index, "name": name, "key": dict(index["key"])}

    def drop_index(self, name: str) -> None:
        """Forget an index."""
        self.held()["indexes"].pop(name, None)

    def drop_indexes(self) -> None:
        """Forget all."""
        self.held()["indexes"].clear()

    def insert_one(self, document: Any, **_: Any) -> Any:
        """Add a document."""
        document.setdefault("_id", ObjectId())
        docs = self.held()["docs"]
        if any(other["_id"] == document["_id"] for other in docs):
            raise FAULTS["DuplicateKeyError"]("E11000 duplicate key error: _id")
        self._check(document, docs)
        docs.append(copy.deepcopy(document))
        return outcome(inserted_id=document["_id"])

    def insert_many(self, documents: Any, **_: Any) -> Any:
        """Add several."""
        return outcome(inserted_ids=[self.insert_one(one).inserted_id for one in documents])

    def find(self, filter: Any = None, projection: Any = None, **more: Any) -> Any:  # noqa: A002
        """Documents that a filter wants."""
        found = [copy.deepcopy(one) for one in self.held()["docs"] if matches(one, filter)]
        if projection:
            given = projection if isinstance(projection, dict) else dict.fromkeys(projection, 1)
            wanted = {key for key, keep in given.items() if keep}
            without = {key for key, keep in given.items() if not keep}
            if wanted - {"_id"}:
                wanted |= {"_id"} - without
                found = [{k: v for k, v in one.items() if k in wanted} for one in found]
            else:
                found = [{k: v for k, v in one.items() if k not in without} for one in found]
        cursor = Cursor(found)
        if more.get("sort"):
            cursor.sort(more["sort"])
        return cursor.skip(more.get("skip", 0)).limit(more.get("limit", 0))

    def find_one(self, filter: Any = None, *args: Any, **more: Any) -> Any:  # noqa: A002
        """The first one."""
        if filter is not None and not isinstance(filter, dict):
            filter = {"_id": filter}  # noqa: A001
        return next(iter(self.find(filter, *args, **more)), None)

    def count_documents(self, filter: Any, **more: Any) -> int:  # noqa: A002
        """How many there are."""
        return len(self.find(filter, **more).documents)

    def estimated_document_count(self) -> int:
        """How many there are in all."""
        return len(self.held()["docs"])

    def distinct(self, key: str, filter: Any = None) -> list[Any]:  # noqa: A002
        """Different values at a path."""
        made: list[Any] = []
        for one in self.find(filter).documents:
            made += [value for value in values(one, key) if value not in made]
        return made

    def _update(self, wanted: Any, update: Any, upsert: bool, most: int) -> Any:
        docs = self.held()["docs"]
        found = [one for one in docs if matches(one, wanted)][: most or None]
        changed = 0
        for one in found:
            new = copy.deepcopy(one)
            change(new, update, inserted=False)
            self._check(new, [other for other in docs if other is not one])
            changed += new != one
            one.clear()
            one.update(new)
        made = None
        if not found and upsert:
            plain = {k: v for k, v in (wanted or {}).items() if not isinstance(v, dict)}
            document = {k: copy.deepcopy(v) for k, v in plain.items() if not k.startswith("$")}
            change(document, update, inserted=True)
            made = self.insert_one(document).inserted_id
        told = outcome(matched_count=len(found), modified_count=changed, upserted_id=made)
        return told, found[0] if found else None

    def update_one(self, filter: Any, update: Any, upsert: bool = False, **_: Any) -> Any:  # noqa: A002
        """Change the first one."""
        return self._update(filter, update, upsert, 1)[0]

    def update_many(self, filter: Any, update: Any, upsert: bool = False, **_: Any) -> Any:  # noqa: A002
        """Change all."""
        return self._update(filter, update, upsert, 0)[0]

    def find_one_and_update(
        self, filter: Any, update: Any, upsert: bool = False,  # noqa: A002
        return_document: bool = False, projection: Any = None, sort: Any = None, **_: Any,
    ) -> Any:  # fmt: skip
        """Change the first one, and return it as it was before, or after."""
        before = self.find_one(filter, projection, sort=sort)
        identity = self.find_one(filter, sort=sort)
        wanted = {"_id": identity["_id"]} if identity else filter
        told, _ = self._update(wanted, update, upsert, 1)
        if not return_document:
            return before
        key = identity["_id"] if identity else told.upserted_id
        return self.find_one({"_id": key}, projection) if key is not None else None

    def replace_one(self, filter: Any, document: Any, upsert: bool = False, **_: Any) -> Any:  # noqa: A002
        """Put a document in the first one's place."""
        docs = self.held()["docs"]
        for number, one in enumerate(docs):
            if matches(one, filter):
                docs[number] = {"_id": one["_id"], **copy.deepcopy(document)}
                return outcome(matched_count=1, modified_count=1, upserted_id=None)
        made = self.insert_one(dict(document)).inserted_id if upsert else None
        return outcome(matched_count=0, modified_count=0, upserted_id=made)

    def delete_many(self, filter: Any, _most: int = 0, **_: Any) -> Any:  # noqa: A002
        """Remove all."""
        held = self.held()
        gone = [one for one in held["docs"] if matches(one, filter)][: _most or None]
        held["docs"] = [one for one in held["docs"] if not any(one is other for other in gone)]
        return outcome(deleted_count=len(gone))

    def delete_one(self, filter: Any, **_: Any) -> Any:  # noqa: A002
        """Remove the first one."""
        return self.delete_many(filter, 1)

    def drop(self) -> None:
        """Forget everything."""
        self.held()
        STATE.databases[self.database.name].pop(self.name, None)


class Database:
    """Collections by one name."""

    def __init__(self, client: Any, name: str, **_: Any) -> None:
        self.client, self.name = client, name

    def __bool__(self) -> bool:
        raise NotImplementedError("Database objects do not implement truth value testing")

    def __getitem__(self, name: str) -> Collection:
        return Collection(self, name)

    def __getattr__(self, name: str) -> Collection:
        if name.startswith("_"):
            raise AttributeError(name)
        return Collection(self, name)

    def get_collection(self, name: str, **_: Any) -> Collection:
        """One collection."""
        return Collection(self, name)

    def list_collection_names(self, **_: Any) -> list[str]:
        """Names of what there is."""
        alive()
        return sorted(STATE.databases.get(self.name, {}))

    def create_collection(self, name: str, **_: Any) -> Collection:
        """Make a collection."""
        if name in self.list_collection_names():
            raise FAULTS["CollectionInvalid"](f"collection {name} already exists")
        self[name].held()
        return self[name]

    def command(self, *_: Any, **__: Any) -> dict[str, float]:
        """Any command is well."""
        alive()
        return {"ok": 1.0}


class MongoClient:
    """A client of the one server."""

    def __init__(self, host: Any = None, *_: Any, **__: Any) -> None:
        STATE.clients += 1
        found = re.match(r"mongodb(?:\+srv)?://[^/]+/([^?]+)", str(host or ""))
        self.default = found[1] if found else None

    def __getitem__(self, name: str) -> Database:
        return Database(self, name)

    def __getattr__(self, name: str) -> Database:
        if name.startswith("_"):
            raise AttributeError(name)
        return Database(self, name)

    def get_database(self, name: Any = None, **_: Any) -> Database:
        """One database, or the one that the address names."""
        name = name or self.default
        if name is None:
            raise FAULTS["ConfigurationError"]("No default database name defined or provided.")
        return Database(self, name)

    def get_default_database(self, default: Any = None, **_: Any) -> Database:
        """The one that the address names."""
        return self.get_database(self.default or default)

    def server_info(self) -> dict[str, Any]:
        """What the server says of itself."""
        alive()
        return {"version": "7.0.0", "ok": 1.0}

    def list_database_names(self) -> list[str]:
        """Names of what there is."""
        alive()
        return sorted(STATE.databases)

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def dotenv_values(path: Any = None, *_: Any, **__: Any) -> dict[str, str]:
    """Lines ``KEY=VALUE`` of a file."""
    made = {}
    if os.path.isfile(path or ".env"):
        with open(path or ".env", encoding="utf-8") as file:
            for line in file:
                key, mark, value = line.strip().removeprefix("export ").partition("=")
                if mark and not key.startswith("#"):
                    made[key.strip()] = value.strip().strip("'\"")
    return made


def load_dotenv(dotenv_path: Any = None, *_: Any, override: bool = False, **__: Any) -> bool:
    """Put a file's variables where there are none of that name."""
    made = dotenv_values(dotenv_path)
    for key, value in made.items():
        if override or key not in os.environ:
            os.environ[key] = value
    return bool(made)


def find_dotenv(*_: Any, **__: Any) -> str:
    """The file of the folder that programs start in."""
    return os.path.abspath(".env") if os.path.isfile(".env") else ""


def install() -> None:
    """Stand in for pymongo, bson and dotenv."""
    order = {"ASCENDING": 1, "DESCENDING": -1, "TEXT": "text", "HASHED": "hashed"}
    way = types.SimpleNamespace(BEFORE=False, AFTER=True)
    own = {"MongoClient": MongoClient, "IndexModel": IndexModel, "ReturnDocument": way, **order}
    folders: dict[str, dict[str, Any]] = {
        "pymongo": {**own, "version": "4.10.0"},
        "pymongo.errors": FAULTS,
        "pymongo.database": {"Database": Database},
        "pymongo.collection": {"Collection": Collection, "ReturnDocument": way},
        "pymongo.mongo_client": {"MongoClient": MongoClient},
        "pymongo.operations": {"IndexModel": IndexModel},
        "pymongo.cursor": {"Cursor": Cursor},
        "pymongo.synchronous": {},
        "bson": {"ObjectId": ObjectId},
        "bson.objectid": {"ObjectId": ObjectId},
        "bson.errors": {"InvalidId": type("InvalidId", (Exception,), {})},
        "dotenv": {
            "load_dotenv": load_dotenv, "dotenv_values": dotenv_values, "find_dotenv": find_dotenv,
        },
    }  # fmt: skip
    for name, content in folders.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        module.__path__ = []
        sys.modules[name] = module
        folder, _, last = name.rpartition(".")
        if folder:
            setattr(sys.modules[folder], last, module)
