from __future__ import annotations

import json
import pickle
from dataclasses import replace

import gymnasium as gym
import pytest
import toy_text
from processes import last_error, run_ok

import agentgym
from agentgym import EnvSpec, registry

agentgym.register(toy_text.SPEC)


def test_registering_the_same_again_changes_nothing():
    before = agentgym.registered()
    agentgym.register(replace(toy_text.SPEC))
    assert agentgym.registered() == before
    assert "ToyDoors-v0" in before
    assert "WebShop-v0" in before


def test_an_id_taken_by_another_entry_is_refused():
    with pytest.raises(ValueError, match=r"'ToyDoors-v0' is already registered for 'toy_text:Toy"):
        agentgym.register(replace(toy_text.SPEC, env="elsewhere:Env"))
    assert agentgym.spec("ToyDoors-v0") == toy_text.SPEC


def test_an_id_of_gymnasiums_own_is_refused():
    with pytest.raises(ValueError, match=r"'CartPole-v1' is already registered with Gymnasium"):
        agentgym.register(replace(toy_text.SPEC, id="CartPole-v1"))
    assert "CartPole-v1" not in agentgym.registered()
    assert "cartpole" in str(gym.spec("CartPole-v1").entry_point)


def test_a_malformed_id_leaves_no_trace():
    with pytest.raises(gym.error.Error, match="Malformed"):
        agentgym.register(replace(toy_text.SPEC, id="no spaces please-v0"))
    assert "no spaces please-v0" not in agentgym.registered()


@pytest.mark.parametrize("text", ["nothing", "a.b:", ":c", "a b:c", "a.b:c d", "a..b:c", ""])
@pytest.mark.parametrize("field", ["env", "prompt", "oracle", "vector_env", "vocabulary"])
def test_malformed_entry_points_are_refused_when_written(field, text):
    with pytest.raises(ValueError, match=f"{text!r} is not of the form 'package.module:name'"):
        replace(toy_text.SPEC, **{field: text})


def test_malformed_abstractions_too():
    with pytest.raises(ValueError, match="'x' is not of the form"):
        replace(toy_text.SPEC, abstractions={"blpo": "x"})


def test_an_unknown_id_is_told_what_exists():
    with pytest.raises(KeyError, match=r"unknown environment 'Nope-v3'; registered are .*WebShop"):
        agentgym.spec("Nope-v3")


def test_a_module_prefix_imports_that_module(tmp_path):
    (tmp_path / "their_envs.py").write_text(
        "import agentgym, toy_text\nfrom dataclasses import replace\n"
        "agentgym.register(replace(toy_text.SPEC, id='Theirs-v0'))\n"
    )
    code = (
        "import gymnasium as gym, agentgym\n"
        "print(agentgym.spec('their_envs:Theirs-v0').env)\n"
        "print(gym.make('their_envs:Theirs-v0').reset(seed=0)[1]['task_type'])"
    )
    assert run_ok(code, path=(tmp_path,)).split() == ["toy_text:ToyDoors", "doors"]


def test_spec_survives_json_and_pickle():
    env = gym.make("ToyDoors-v0", doors=5, max_steps=2)
    for revived in (
        gym.envs.registration.EnvSpec.from_json(env.spec.to_json()),
        pickle.loads(pickle.dumps(env.spec)),
    ):
        twin = gym.make(revived)
        assert (twin.doors, twin.max_steps) == (5, 2)
        assert twin.reset(seed=3) == env.reset(seed=3)
    json.loads(env.spec.to_json())


@pytest.mark.parametrize("mode", ["sync", "async", "vector_entry_point", None])
def test_make_vec(mode):
    envs = gym.make_vec("ToyDoors-v0", num_envs=2, vectorization_mode=mode)
    assert len(envs.reset(seed=0)[0]) == 2
    envs.close()


def test_a_vector_environment_of_its_own_is_used_where_there_is_one():
    native = replace(toy_text.SPEC, id="ToyNative-v0", vector_env="toy_text:vocabulary")
    agentgym.register(native)
    # The stand-in returns a list: what matters is which entry point was called, and with what.
    assert registry.make_vector_env("ToyNative-v0", num_envs=2) == toy_text.vocabulary()
    assert registry.make_vector_env("ToyDoors-v0", num_envs=2).num_envs == 2


def test_every_builtin_entry_point_resolves():
    for env_id in agentgym.registered():
        entry = agentgym.spec(env_id)
        points = [entry.env, entry.prompt, entry.oracle, entry.vocabulary]
        for point in [point for point in points if point is not None]:
            assert callable(registry.load(point, entry.extra)), point


def broken(tmp_path, missing: str, extra: str | None) -> str:
    (tmp_path / "needy.py").write_text(f"import {missing}\nclass Env: pass\n")
    code = (
        "import agentgym, gymnasium as gym\n"
        "from agentgym import EnvSpec, register\n"
        f"register(EnvSpec('Needy-v0', 'needy:Env', 'needy:P', extra={extra!r}))\n"
        "gym.make('Needy-v0')"
    )
    return last_error(code, path=(tmp_path,))


def test_a_missing_requirement_names_the_extra(tmp_path):
    assert broken(tmp_path, "no_such_library.part", "alfworld") == (
        "ImportError: 'no_such_library' is not installed; it comes with: "
        "pip install 'agentgym-suite[alfworld]'"
    )


def test_a_third_party_names_its_own_requirement(tmp_path):
    assert broken(tmp_path, "no_such_library", "their-envs[web]").endswith(
        "pip install 'their-envs[web]'"
    )


def test_without_an_extra_the_plain_error_stands(tmp_path):
    line = broken(tmp_path, "no_such_library", None)
    assert line == "ModuleNotFoundError: No module named 'no_such_library'"


def test_a_missing_module_of_the_environment_itself_is_no_missing_extra():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'toy_text\.deep"):
        registry.load("toy_text.deep:Env", "cli")
    with pytest.raises(AttributeError, match="Missing"):
        registry.load("toy_text:Missing")


def test_the_prefix_works_where_nothing_was_imported():
    code = (
        "import gymnasium as gym\n"
        "env = gym.make('agentgym:WebShop-v0', render_mode='ansi')\n"
        "observation, info = env.reset(seed=1)\n"
        "assert env.render() == observation\n"
        "print(info['split'])"
    )
    assert run_ok(code) == "train"


def test_entry_is_plain_data():
    entry = EnvSpec("A-v0", "a:B", "a:C", tiny={"difficulty": "small"})
    assert pickle.loads(pickle.dumps(entry)) == entry
    assert (entry.oracle, entry.vector_env, entry.extra, dict(entry.abstractions)) == (
        None, None, None, {},
    )  # fmt: skip
