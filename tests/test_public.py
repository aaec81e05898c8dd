"""The public names, and how little they cost until they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import velodrome

HEAVY = "aiohttp hydra numpy omegaconf pydantic ray starlette torch uvicorn xllamacpp yappi"
CALLS = (
    "check collect compare examine export judgements load_policy merge metrics profile read recorded rollout serve "
    "sweep train verify view"
)
COMPONENTS = {"Environment", "LocalModel", "OpenAI", "ScriptedModel", "SimpleAgent", "TurnEnvironment", "tool"}
RECORDS = {"Response", "Rollout", "Task", "ToolCall"}
PROTOCOLS = {"Agent", "Model", "Resources"}


def test_the_public_names_are_these():
    assert set(velodrome.__all__) == set(CALLS.split()) | COMPONENTS | RECORDS | PROTOCOLS | {"errors"}
    assert velodrome.__all__ == sorted(velodrome.__all__)
    assert set(velodrome.__all__) <= set(dir(velodrome))


def test_every_public_name_is_there_under_its_own_name_and_explained():
    for name in velodrome.__all__:
        value = getattr(velodrome, name)
        assert (value.__name__.rpartition(".")[2], bool(value.__doc__)) == (name, True)
        assert getattr(value, "__module__", value.__name__).startswith("velodrome.")


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="did you mean 'collect'"):
        _ = velodrome.colect


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import velodrome; velodrome.Response; velodrome.Model",
        "from velodrome.cli.main import main; main(['--help'])",
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code: str):
    probe = f"import sys; {code}; print([n for n in {HEAVY.split()} if n in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"
