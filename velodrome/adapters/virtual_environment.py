"""A virtual environment for somebody else's package: their pins and ours exclude each other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree, which

from velodrome.errors import InputError

_KEPT = 1000
_ERRORS = ("ERROR", "error", "×")
_STEPS = ("Collecting", "Downloading", "Installing", "Successfully", "Resolved", "Prepared", "Installed", "Built")


def make_virtual_environment(folder: Path, requirements: Sequence[str], say: Callable[[str], None]) -> Path:
    """Its interpreter, with the requirements installed. A folder that was there is made again."""
    rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    say(f"a virtual environment in {folder} with {', '.join(requirements)}")
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], "cannot make a virtual environment", say)
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in _constraints()))
    what = f"{requirements[0]} cannot be installed"
    try:
        _run([*_installer(folder), "-c", str(constraints), *requirements], what, say)
    except BaseException:  # interrupted, too: half an environment is none
        rmtree(folder, ignore_errors=True)
        raise
    return folder / "bin" / "python"


def _installer(folder: Path) -> list[str]:
    """uv where there is one, which takes seconds; else pip of this interpreter, which installs elsewhere too."""
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--no-progress", "--python", str(folder)]
    if find_spec("pip") is None:
        raise InputError("there is neither uv nor pip to install with: pip install uv")
    return [sys.executable, "-m", "pip", "--python", str(folder), "install", "--progress-bar", "off"]


def _constraints() -> list[str]:
    """The torch that is here, if one is: another one may bring gigabytes of CUDA."""
    try:
        return [f"torch=={metadata.version('torch').partition('+')[0]}"]
    except metadata.PackageNotFoundError:
        return []


def _run(command: Sequence[str], what: str, say: Callable[[str], None]) -> None:
    """Run it; its lines are the progress, and those from the first error on are the reason if it fails."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ran:
        assert ran.stdout is not None
        last = ""
        reasons: list[str] = []
        for line in ran.stdout:
            last = line.strip()[:_KEPT] or last
            if reasons or last.startswith(_ERRORS):
                reasons.append(last.strip("×│╰─▶ "))
            elif last.startswith(_STEPS):
                say(f"  {last[:120]}")
    if ran.returncode:
        reason = " ".join(reasons)[:_KEPT] or last or f"exit code {ran.returncode}"
        raise InputError(f"{what}: {reason}")
