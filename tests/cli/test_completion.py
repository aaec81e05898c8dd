"""Completion in real shells: verbs, options, settings and their values, names of configs, files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.screens import Screen
from velodrome.cli.main import VERBS

SHELLS = ("bash", "zsh", "fish")
LINES = {
    "velo colle": {"collect"},
    "velo collect calcul": {"calculator"},
    "velo collect local_m": {"local_model"},
    "velo collect my_t": {"my_tasks.jsonl"},
    "velo collect --paral": {"--parallel"},
    "velo collect +num_rep": {"+num_repeats="},
    "velo check r.jsonl --fail-on w": {"warning"},
    "velo export nemo": {"nemo_gym"},
    "velo data diff": {"difficulty"},
    "velo train cartp": {"cartpole"},
    "velo completion fi": {"fish"},
}


@pytest.fixture
def scripts(velo: Any, tmp_path: Path) -> dict[str, Path]:
    """The script of each shell, as it is installed; and a folder with a file to complete."""
    paths = {shell: tmp_path / f"velo.{shell}" for shell in SHELLS}
    for shell, path in paths.items():
        done = velo("completion", shell)
        assert (done.code, done.err) == (0, "")
        path.write_text(done.out)
    (tmp_path / "my_tasks.jsonl").touch()
    (tmp_path / "sub").mkdir()
    return paths


def need(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} on the PATH (scripts/test_needs.py)")
    return path


def bash_words(line: str) -> list[str]:
    """The words as bash breaks them: "=" is one of its own."""
    return line.replace("=", " = ").split(" ") if not line.endswith("=") else [*line[:-1].split(" "), "="]


def completed_in_bash(script: Path, words: Sequence[str]) -> set[str]:
    code = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _velo; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        [need("bash"), "--norc", "-c", code, str(script), *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=script.parent,
    )
    return set(done.stdout.split())


def test_bash_completes_verbs_options_settings_values_names_and_files(scripts: dict[str, Path]):
    script = scripts["bash"]
    assert {line: completed_in_bash(script, line.split(" ")) for line in LINES} == LINES
    more = {
        "velo collect +executor=": {"local", "ray"},
        "velo collect +executor=r": {"ray"},
        "velo collect +input_jsonl_fpath=my": {"my_tasks.jsonl"},
        "velo show su": {"sub"},
        "velo train trainer.batch_s": {"trainer.batch_size="},
        "ng_collect_rollouts +num_samples_in_par": {"+num_samples_in_parallel="},
    }
    assert {line: completed_in_bash(script, bash_words(line)) for line in more} == more
    assert completed_in_bash(script, ["velo", ""]) == {*VERBS, "--help", "--version"}


@pytest.mark.parametrize(
    ("command", "before"),
    [
        (("bash", "--norc", "--noprofile", "-i"), "true"),
        (("zsh", "-f", "-i"), "autoload -Uz compinit && compinit -u -D"),
    ],
    ids=("bash", "zsh"),
)
def test_a_tab_completes_the_command_that_is_typed(scripts: dict[str, Path], command: Sequence[str], before: str):
    shell, *flags = command
    script = scripts[shell]
    with Screen([need(shell), *flags], cwd=script.parent, env={"PS1": "> "}) as screen:
        screen.type(f"{before} && source {script}; velo() {{ echo \"ran: $*\"; }}; echo re''ady\n")
        screen.wait_for("ready")
        screen.type("velo colle\tcalcul\t+num_rep\t4 my_t\t\n")
        screen.wait_for("ran: collect calculator +num_repeats=4 my_tasks.jsonl")


def test_fish_completes_verbs_options_settings_values_names_and_files(scripts: dict[str, Path]):
    fish = need("fish")

    def completed(line: str) -> set[str]:
        code = f"source {scripts['fish']}; complete -C '{line}'"
        done = subprocess.run(
            [fish, "--no-config", "-c", code], capture_output=True, text=True, check=True, cwd=scripts["fish"].parent
        )
        return {each.partition("\t")[0] for each in done.stdout.splitlines()}

    assert {line: completed(line) for line in LINES} == LINES


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_what_the_help_says_installs_it_in_an_empty_home(shell: str, velo: Any, tmp_path: Path):
    lines = [line.strip() for line in velo("completion", "--help").out.splitlines()]
    script = next(n for n, line in enumerate(lines) if line.startswith(f"velo completion {shell} > "))
    commands = "set -e; velo() { echo script; }\n" + "\n".join(lines[script - 1 : script + 1])
    subprocess.run(["bash", "-c", commands], env={"HOME": str(tmp_path), "PATH": os.defpath}, check=True)
    assert [path.read_text() for path in tmp_path.rglob("velo*") if path.is_file()] == ["script\n"]


def test_another_shell_is_refused(velo: Any):
    done = velo("completion", "tcsh")
    assert (done.code, "bash, zsh or fish" in done.err) == (2, True)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_config_whose_name_a_shell_would_run_is_not_completed(
    velo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
):
    folder = tmp_path / "resources_servers" / "mine" / "configs"
    folder.mkdir(parents=True)
    for name in ("fine", "$(touch pwned)", "(touch pwned)", "`touch pwned`", "a b", "-x", "\x1b[2J"):
        (folder / f"{name}.yaml").write_text("{}")
    monkeypatch.chdir(tmp_path)
    script = velo("completion", shell).out
    assert "fine" in script
    assert "pwned" not in script
    assert "\x1b" not in script
