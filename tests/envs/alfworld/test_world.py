"""What a problem becomes when it is parsed, and what is refused."""

from __future__ import annotations

import json
import pickle

import pytest
from alfworld_room import GOALS, problem, room

from envs.alfworld.pddl import GameError
from envs.alfworld.world import World, listing, members, read_game


def test_things_are_numbered_downwards_in_the_order_of_identifiers():
    world = room()
    assert world.receptacles == (
        "cabinet 1", "coffeemachine 1", "countertop 1", "desk 1", "drawer 2", "drawer 1",
        "fridge 1", "microwave 1", "sinkbasin 1",
    )  # fmt: skip
    assert world.objects == (
        "apple 2", "apple 1", "desklamp 1", "egg 1", "floorlamp 1", "knife 1", "mug 2", "mug 1",
        "plate 1", "spoon 1",
    )  # fmt: skip
    assert [world.object_numbers[name] for name in world.objects] == list(range(10))
    assert [world.receptacle_numbers[name] for name in world.receptacles] == list(range(9))
    assert world.locations[0] == "loc 9"


def test_what_no_fact_mentions_is_not_numbered():
    stray = "Mug_bar_0 - object\nMug_bar_3 - object"
    assert room(objects=stray).objects == room().objects
    mentioned = room(objects=stray, add=["objectType Mug_bar_0 MugType"])
    assert [name for name in mentioned.objects if "mug" in name] == ["mug 3", "mug 2", "mug 1"]


def test_objects_and_receptacles_of_one_name_share_numbers():
    sink = room(objects="Sink_bar_2 - object", add=["objectType Sink_bar_2 MugType"])
    assert "sink 1" in sink.objects
    assert "sinkbasin 1" in sink.receptacles
    desk = room(objects="Desk_bar_0 - object", add=["objectType Desk_bar_0 MugType"])
    assert "desk 2" in desk.objects
    assert "desk 1" in desk.receptacles


def test_types_flags_and_places():
    world = room()
    assert world.object_types[world.object_numbers["desklamp 1"]] == "desklamp"
    assert world.receptacle_types[world.receptacle_numbers["sinkbasin 1"]] == "sinkbasin"

    def things(mask):
        return {world.objects[number] for number in members(mask)}

    def containers(mask):
        return {world.receptacles[number] for number in members(mask)}

    assert things(world.knives) == {"knife 1"}
    assert things(world.vessels) == {"mug 1", "mug 2", "plate 1"}
    assert things(world.heatable) == {"mug 1", "mug 2", "apple 1", "apple 2", "egg 1"}
    assert things(world.accepts[world.receptacle_numbers["drawer 2"]]) == {"knife 1", "spoon 1"}
    assert containers(world.washing) == {"sinkbasin 1"}
    assert containers(world.heating) == {"microwave 1"}
    assert containers(world.cooling) == {"fridge 1"}
    assert containers(world.openable) == {"cabinet 1", "fridge 1", "microwave 1", "drawer 1"}
    shared = world.at[world.places[world.receptacle_numbers["cabinet 1"]]]
    assert [world.receptacles[number] for number in shared] == ["cabinet 1", "countertop 1"]
    assert world.inside == {world.object_numbers["plate 1"]: (world.object_numbers["spoon 1"],)}
    assert world.goal_text == "do pick_and_."


def test_facts_stated_twice_count_once():
    twice = [
        "inReceptacle Mug_bar_2  Cabinet_bar_1",
        "receptacleType  Desk_bar_1 DeskType",
        "receptacleAtLocation Desk_bar_1  loc_bar_6",
        "atLocation  agent1 loc_bar_0",
    ]
    assert room(add=twice).start == room().start


def test_facts_about_things_of_the_wrong_kind_are_idle():
    idle = [
        "inReceptacle Desk_bar_1 Mug_bar_1", "openable Mug_bar_1", "sliceable Desk_bar_1",
        "objectType Desk_bar_1 SpoonType", "receptacleType Mug_bar_1 DeskType",
        "inReceptacleObject Desk_bar_1 Plate_bar_1", "objectAtLocation Desk_bar_1 loc_bar_1",
    ]  # fmt: skip
    world, plain = room(add=idle), room()
    assert world.start == plain.start
    assert world.goal == plain.goal
    assert (world.openable, world.sliceable, world.inside) == (
        plain.openable, plain.sliceable, plain.inside,
    )  # fmt: skip


def test_a_thing_may_have_two_types():
    second = ["objectType Spoon_bar_1 MugType", "receptacleType Drawer_bar_1 DeskType"]
    world = room("pick_two_obj_and_place", add=second)
    spoon, drawer = world.object_numbers["spoon 1"], world.receptacle_numbers["drawer 2"]
    assert world.object_types[spoon] == "mug"
    assert world.receptacle_types[drawer] == "desk"
    assert world.goal.objects >> spoon & 1
    assert drawer in world.goal.receptacles
    assert world.accepts[drawer] >> world.object_numbers["mug 1"] & 1
    assert world.accepts[drawer] >> world.object_numbers["knife 1"] & 1


def test_listing():
    assert listing([]) == "nothing"
    assert listing(["apple 1"]) == "a apple 1"
    assert listing(["mug 2", "mug 1"]) == "a mug 2, and a mug 1"
    assert listing(["mug 2", "mug 1", "egg 1"]) == "a mug 2, a mug 1, and a egg 1"


def test_a_world_pickles():
    world = room("look_at_obj_in_light")
    copy = pickle.loads(pickle.dumps(world))
    assert copy.start == world.start
    assert copy.objects == world.objects
    assert copy.goal == world.goal


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"add": ["inReceptacle Ghost_bar_1 Desk_bar_1"]}, "name 'ghost_bar_1'"),
        ({"add": ["pickupable Mug_bar_1 Mug_bar_2"]}, "'pickupable' with another number"),
        (
            {"add": ["canContain DeskType"]},
            "'cancontain' with another number .* than 2: .*desktype",
        ),
        ({"add": ["objectType Mug_bar_1"]}, "'objecttype' with another number"),
        ({"add": ["receptacleAtLocation Desk_bar_1 loc_bar_3"]}, "desk 1 stands at two"),
        ({"add": ["atLocation agent1 loc_bar_1"]}, "at one location, not at 2"),
        ({"leave_out": ["atLocation agent1 loc_bar_0"]}, "one agent, not 0"),
        ({"add": ["holds agent1 Mug_bar_1"]}, "holds 1 objects"),
        ({"add": ["holdsAny agent1"]}, "holds 0 objects"),
        ({"objects": "Mug_bar_1 - object"}, "'mug_bar_1' is declared twice"),
        ({"goal": "(exists (?o) (isHot ?o))"}, "'\\?o' in its goal has no type"),
        ({"goal": "(exists (?r - receptacle) (checked ?r))"}, "the predicate 'checked'"),
    ],
)
def test_malformed_problems_are_refused(changes, message):
    with pytest.raises(GameError, match=message):
        room(**changes)


def test_missing_sections_are_named():
    with pytest.raises(GameError, match=r"no section \(:goal"):
        World.from_problem(problem().partition("(:goal")[0], "Your task is to: x.")


def test_a_game_needs_its_keys():
    game = {"pddl_domain": "", "grammar": "", "pddl_problem": "", "walkthrough": []}
    for key in game:
        with pytest.raises(GameError, match=f"no '{key}'"):
            World.from_game({name: value for name, value in game.items() if name != key})
    with pytest.raises(GameError, match="'grammar' must be text, got list"):
        World.from_game(game | {"grammar": []})
    with pytest.raises(GameError, match="'walkthrough' must be a list"):
        World.from_game(game | {"walkthrough": "look"})
    with pytest.raises(GameError, match="walkthrough' must be a list"):
        World.from_game(game | {"walkthrough": [1]})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b"\0\0\0", "is empty"),
        (b'{"pddl_domain": "(define', "is cut short after 24 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "pointer of Git LFS"),
        (b"<html>404</html>", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"[1, 2]", "holds a JSON list"),
    ],
)
def test_damaged_files_are_named(tmp_path, content, message):
    path = tmp_path / "game.tw-pddl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(GameError, match=message) as caught:
        World.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.data
def test_official_games_carry_the_rules_that_are_played(games):
    task_id = games.tasks.ids("valid_seen")[0]
    game = dict(games.game(task_id))
    assert World.from_game(game).task.startswith("Your task is to: ")
    other = game["pddl_domain"].replace("(cleanable ?o)", "(heatable ?o)", 1)
    with pytest.raises(GameError, match=r"pddl_domain is not ALFWorld's.*engine='textworld'"):
        World.from_game(game | {"pddl_domain": other})
    spoken = game["grammar"].replace("You open the", "You unlock the")
    with pytest.raises(GameError, match=r"grammar is not ALFWorld's.*engine='textworld'"):
        World.from_game(game | {"grammar": spoken})
    with pytest.raises(GameError, match='no rule "task"'):
        World.from_game(game | {"grammar": game["grammar"].replace('"task"', '"job"')})


@pytest.mark.data
def test_errors_in_a_game_name_its_file(games, tmp_path):
    game = games.game(games.tasks.ids("valid_seen")[0])
    path = tmp_path / "game.tw-pddl"
    path.write_text(json.dumps(dict(game) | {"pddl_problem": problem("(checked loc_bar_1)")}))
    with pytest.raises(GameError, match=r"game\.tw-pddl cannot be played natively: its goal uses"):
        World.load(path)
    assert read_game(path)["solvable"] is True


@pytest.mark.data
def test_official_goals_have_the_known_forms(games):
    kinds = {games.world(task_id).goal.task_type for task_id in games.tasks.ids("valid_seen")}
    assert kinds == set(GOALS)
    for task_id in games.tasks.ids("valid_seen"):
        assert task_id.split("/")[1].startswith(games.world(task_id).goal.task_type)
