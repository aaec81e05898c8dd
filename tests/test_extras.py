"""What works without the packages of extras, and what is said where one is missing."""

from __future__ import annotations

import platform
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import velodrome
from tests.test_layers import drawn
from velodrome.errors import InputError
from velodrome.training.envs.env_names import KINDS, no_wheel
from velodrome.training.envs.make import make_env
from velodrome.training.settings import EnvSettings

PACKAGE = Path(velodrome.__file__).parent
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
    parts = ("no wheel for Python 3.13 on Linux x86_64", "only for Python 3.11", "pip install")
    assert [part in message for part in parts] == [True, True, False]


WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split():
            raise ModuleNotFoundError(name=name)
sys.meta_path.insert(0, Absent())
from velodrome.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


def modules_of(extra: str) -> str:
    """The modules of the packages of an extra."""
    known = {"markdown-it-py": "markdown_it"}
    names = [Requirement(line).name for line in EXTRAS[extra]]
    return " ".join(known.get(name, name.replace("-", "_")) for name in names)


@pytest.mark.slow
def test_the_core_needs_no_package_of_an_extra_and_a_missing_one_is_a_line_with_what_to_install(tmp_path: Path):
    absent = f"{modules_of('viewer')} {modules_of('zst')}"

    def run(command: str) -> tuple[int, str]:
        words = [sys.executable, "-c", WITHOUT, absent, *command.split()]
        done = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path)}
        )
        return done.returncode, done.stderr

    for command in (
        "collect calculator scripted_model -n 2 -o r.jsonl",
        "show r.jsonl",
        "metrics r.jsonl",
        "check r.jsonl",
        "profile r.jsonl",
        "export sft r.jsonl --to s.jsonl",
    ):
        assert run(command)[0] == 0, command
    for command, extra in (
        ("view r.jsonl", "viewer"),
        ("profile r.jsonl --html", "viewer"),
        ("show r.jsonl.zst", "zst"),
    ):
        (tmp_path / "r.jsonl.zst").touch()
        code, says = run(command)
        assert (code, says.count("\n"), f'pip install "velodrome[{extra}]"' in says) == (2, 1, True), says


@pytest.mark.slow
def test_without_the_wings_the_core_works_and_their_verbs_are_not_there(tmp_path: Path):
    (tmp_path / "velodrome").mkdir()
    wings = set().union(*drawn("wings"))
    for each in PACKAGE.iterdir():
        if each.stem not in wings:
            (tmp_path / "velodrome" / each.name).symlink_to(each)

    def velo(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "velodrome.cli.main", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
        return done.returncode, done.stderr + done.stdout

    for command in ("collect calculator scripted_model -n 2 -o r.jsonl", "metrics r.jsonl", "profile r.jsonl"):
        code, says = velo(*command.split())
        assert code == 0, says
    code, says = velo("--help")
    assert (code, "collect " in says, "train " in says, "export " in says) == (0, True, False, False)
    assert velo("view", "r.jsonl")[0] == 2
    code, says = velo("profile", "r.jsonl", "--html")
    assert (code, says.count("\n"), "velodrome.viewer" in says) == (2, 1, True), says
