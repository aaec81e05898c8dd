"""An extra that installs nothing on some interpreters is described so by the code that needs it."""

from __future__ import annotations

import platform
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from velodrome.errors import InputError
from velodrome.training.envs.env_names import KINDS, no_wheel
from velodrome.training.envs.make import make_env
from velodrome.training.settings import EnvSettings

EXTRAS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
MACHINES = [
    (python, system, machine)
    for python in ("3.11", "3.12", "3.13")
    for system, machine in (("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "arm64"))
]


def pretend(monkeypatch: pytest.MonkeyPatch, python: str, system: str, machine: str) -> None:
    monkeypatch.setattr(platform, "python_version_tuple", lambda: (*python.split("."), "0"))
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)


@pytest.mark.parametrize("machine", MACHINES, ids=" ".join)
@pytest.mark.parametrize("name", KINDS)
def test_what_has_no_wheel_is_what_the_extra_leaves_out(
    name: str, machine: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
):
    pretend(monkeypatch, *machine)
    python, system, processor = machine
    here = {"python_version": python, "sys_platform": system.lower(), "platform_machine": processor}
    needs = [Requirement(line) for line in EXTRAS[KINDS[name].extra]]
    installed = all(each.marker is None or each.marker.evaluate(here) for each in needs)
    assert (no_wheel(KINDS[name]) is None) == installed


def test_an_environment_without_a_wheel_says_for_which_python_there_is_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, KINDS["mettagrid"].module, None)  # as if what it imports were absent
    pretend(monkeypatch, "3.13", "Linux", "x86_64")
    with pytest.raises(InputError) as raised:
        make_env(EnvSettings(name="mettagrid:extractor_hub"), 0)
    message = str(raised.value)
    assert "no wheel for Python 3.13 on Linux x86_64" in message
    assert "only for Python 3.11" in message
    assert "pip install" not in message
