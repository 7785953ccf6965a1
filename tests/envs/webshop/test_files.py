import gzip
import json
import os
import sys

import pytest

from envs.webshop.catalogue import CatalogueError
from envs.webshop.files import locate, read_goals, read_json, read_mapping
from envs.webshop.nouns import nouns_by_spacy
from envs.webshop.shop import ShopConfig, open_shop


@pytest.fixture
def folder(raw, tmp_path):
    raw.save(tmp_path)
    return tmp_path


def test_locate_folder_file_and_mapping(folder):
    for data in (folder, str(folder), folder / "items_shuffle.json"):
        files = locate(data)
        assert files.attributes == folder / "items_ins_v2.json"
        assert files.human == folder / "items_human_ins.json"
    files = locate(
        {"products": folder / "items_shuffle.json", "attributes": folder / "items_ins_v2.json"}
    )
    assert files.human is None


def test_locate_follows_the_ending_of_the_products_file(folder):
    for name in ("items_shuffle_1000.json", "items_ins_v2_1000.json.gz"):
        (folder / name).write_bytes(b"x")
    files = locate(folder / "items_shuffle_1000.json")
    assert files.attributes.name == "items_ins_v2_1000.json.gz"
    assert files.human is not None
    assert files.human.name == "items_human_ins.json"  # no ending of its own: the common one


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "items_shuffle.json").unlink(), "has no items_shuffle"),
        (lambda f: (f / "items_ins_v2.json").unlink(), "has no items_ins_v2.json"),
        (
            lambda f: (f / "items_shuffle_1000.json").write_text("[]"),
            "several files for products: items_shuffle.json, items_shuffle_1000.json",
        ),
    ],
)
def test_locate_errors(folder, change, message):
    change(folder)
    with pytest.raises(CatalogueError, match=message):
        locate(folder)


def test_locate_wrong_places(folder):
    with pytest.raises(CatalogueError, match=r"no such file or folder: .*nowhere"):
        locate(folder / "nowhere")
    with pytest.raises(CatalogueError, match=r"names the files \['items'\]"):
        locate({"items": folder})
    with pytest.raises(CatalogueError, match=r"no such file: .*gone"):
        locate({"products": folder / "gone", "attributes": folder / "items_ins_v2.json"})


def test_read_json_errors(tmp_path):
    path = tmp_path / "a.json"
    with pytest.raises(CatalogueError, match="no such file"):
        read_json(path)
    path.write_text('[{"name": "x"}, {"na')
    with pytest.raises(CatalogueError, match=r"a.json is truncated or not JSON: .* line 1"):
        read_json(path)
    path.write_bytes(b"\xff\xfe[")
    with pytest.raises(CatalogueError, match="cannot be read"):
        read_json(path)
    path.write_text("[" * 100_000)
    with pytest.raises(CatalogueError, match="nested too deeply"):
        read_json(path)
    whole = gzip.compress(json.dumps(list(range(999))).encode())
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CatalogueError, match="compressed data end too early"):
        read_json(packed)
    packed.write_bytes(b"no gzip")
    with pytest.raises(CatalogueError, match="cannot be read"):
        read_json(packed)
    packed.write_bytes(whole)
    assert read_json(packed) == list(range(999))


def test_read_goals_and_mappings(tmp_path):
    path = tmp_path / "g.json"
    path.write_text("[1, 2]")
    assert read_goals(path) == ([1, 2], None)
    path.write_text('{"goals": [1], "prices": {"B1": 2.5}}')
    assert read_goals(path) == ([1], {"B1": 2.5})
    for wrong, message in (
        ('{"tasks": []}', "must hold a list of goals"),
        ('{"goals": [], "prices": [1]}', "'prices' must be an object"),
    ):
        path.write_text(wrong)
        with pytest.raises(CatalogueError, match=message):
            read_goals(path)
    assert read_mapping({"a": 1}, "nouns") == {"a": 1}
    path.write_text("[]")
    with pytest.raises(CatalogueError, match="nouns must be an object"):
        read_mapping(path, "nouns")


def _config(folder, **changes):
    return ShopConfig(**({"data": folder, "nouns": folder / "nouns.json"} | changes))


def test_open_shop_from_files(folder, raw):
    shop = open_shop(_config(folder))
    assert len(shop.catalogue) == 14
    assert len(shop.goals) == 13
    assert open_shop(_config(folder)) is shop
    assert open_shop(_config(folder, data=str(folder))) is shop
    assert open_shop(_config(folder, compat="upstream")) is not shop
    assert len(open_shop(_config(folder, goals="human")).goals) == 1
    assert len(open_shop(_config(folder, num_products=1)).catalogue) == 1
    by_mapping = open_shop(_config(folder, nouns=raw.nouns))
    assert by_mapping is not shop
    assert open_shop(_config(folder, nouns=raw.nouns)) is by_mapping
    as_catalogue = ShopConfig(catalogue=folder / "items_shuffle.json", nouns=folder / "nouns.json")
    assert open_shop(as_catalogue) is shop


def test_open_shop_sees_a_changed_file(folder):
    shop = open_shop(_config(folder))
    path = folder / "items_human_ins.json"
    path.write_text("{}")
    os.utime(path, ns=(1, 1))
    assert open_shop(_config(folder)) is not shop


def test_open_shop_recorded_goals_and_prices(folder):
    shop = open_shop(_config(folder))
    records = [goal.as_dict() for goal in shop.goals][:3]
    prices = {product.asin: 1.0 for product in shop.catalogue}
    path = folder / "recorded.json"
    path.write_text(json.dumps({"goals": records, "prices": prices}))
    replayed = open_shop(_config(folder, goals=path))
    assert [goal.as_dict() for goal in replayed.goals] == records
    assert {product.price for product in replayed.catalogue} == {1.0}
    assert {p.price for p in open_shop(_config(folder, prices=path)).catalogue} == {1.0}
    assert {p.price for p in open_shop(_config(folder, prices=prices)).catalogue} == {1.0}
    assert len(open_shop(_config(folder, goals=records)).goals) == 3


def test_errors_of_content_name_the_folder(folder, raw):
    raw.products[0]["pricing"] = "12"
    raw.save(folder)
    with pytest.raises(CatalogueError, match=f"{folder}: product 'B00000000A': price '12'"):
        open_shop(_config(folder))


def test_human_goals_need_their_file(folder):
    (folder / "items_human_ins.json").unlink()
    with pytest.raises(CatalogueError, match="human goals need items_human_ins"):
        open_shop(_config(folder, goals="human"))
    assert len(open_shop(_config(folder)).goals) == 13


def test_without_nouns_the_error_names_both_ways(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(CatalogueError, match="nouns=") as caught:
        open_shop(_config(folder, nouns=None))
    assert "agentgym-suite[spacy]" in str(caught.value)


class _Token:
    def __init__(self, text, tag):
        self.text, self.pos_ = text, tag


def test_nouns_by_spacy_keeps_nouns_and_names(monkeypatch):
    """Runs on a stand-in: what is checked is which tags count and what becomes of the text."""

    class Model:
        def pipe(self, names):
            tags = {"Red": "ADJ", "Lamp": "NOUN", "Acme": "PROPN"}
            return [[_Token(w, tags[w]) for w in name.split()] for name in names]

    class Spacy:
        @staticmethod
        def load(name):
            assert name == "en_core_web_sm"
            return Model()

    monkeypatch.setitem(sys.modules, "spacy", Spacy)
    assert nouns_by_spacy(["Acme Red Lamp Lamp", "Red"]) == [["acme", "lamp", "lamp"], []]

    class Bare:
        @staticmethod
        def load(name):
            raise OSError(name)

    monkeypatch.setitem(sys.modules, "spacy", Bare)
    with pytest.raises(CatalogueError, match="no model 'en_core_web_sm'"):
        nouns_by_spacy(["x"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"difficulty": "hard"}, "difficulty must be one of"),
        ({"compat": "loose"}, "compat must be one of"),
        ({"split_by": "hash"}, "split_by must be one of"),
        ({"data": "a", "catalogue": "b"}, "give data or catalogue, not both"),
        ({"num_products": 0}, "num_products must be a positive int"),
        ({"page_size": True}, "page_size must be a positive int"),
        ({"page_size": 5, "compat": "upstream"}, "page_size is 10 with compat='upstream', got 5"),
        ({"catalogue": "builtin:many"}, "'builtin:N:SEED' or a path, got 'builtin:many'"),
        ({"catalogue": "builtin"}, "got 'builtin'"),
        ({"nouns": {}}, "knows its nouns"),
    ],
)
def test_config_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        open_shop(ShopConfig(**arguments))


def test_goals_of_a_wrong_kind(folder):
    with pytest.raises(ValueError, match="goals must be 'human'"):
        open_shop(_config(folder, goals=5))
