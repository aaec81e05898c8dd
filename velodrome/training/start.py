"""What training needs before it starts: a recipe, torch, and under `uv run` what is not installed yet."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velodrome.errors import InputError
from velodrome.training.recipes import Recipe, find, make_recipe
from velodrome.training.run.dashboard import never, silent
from velodrome.training.settings import RunSettings

if TYPE_CHECKING:  # they need torch
    from velodrome.training.loop import TrainingResult

_NEEDED = ("torch", "numba", "numpy")
_WAYS = '"make train-setup", or pip install -c constraints.txt -e ".[train]"'
_BY_UV = "UV_RUN_RECURSION_DEPTH"  # set by `uv run`


def _run(command: Sequence[str]) -> int:
    """Run a command; what it prints on stdout goes nowhere: that is for the result."""
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


def recipe_of(recipe: str | Callable[..., RunSettings]) -> Recipe:
    """A recipe by its name, its file or its function."""
    if isinstance(recipe, str):
        return find(recipe)
    if not (callable(recipe) and hasattr(recipe, "__name__")):
        raise InputError(f"recipe: expected a name, a file or a function, not {recipe!r:.80}")
    return make_recipe(recipe.__name__, recipe)


def train_settings(
    settings: RunSettings,
    *,
    say: Callable[[str], None] = silent,
    stop: Callable[[], bool] = never,
    watch: Callable[[dict[str, Any]], None] = silent,
) -> TrainingResult:
    """Train with settings that are resolved. It prints nothing and handles no signals."""
    refuse_without_torch("training")
    from velodrome.training.loop import run_training

    return run_training(settings, say, stop=stop, watch=watch)


def refuse_without_torch(what: str) -> None:
    """One line if the extra is not installed."""
    if missing := _missing():
        raise InputError(f"{what} needs {', '.join(missing)}: in the source tree, {_WAYS}")


def set_up(say: Callable[[str], None], install: Callable[[Sequence[str]], int] = _run) -> None:
    """Install what training lacks, under `uv run` in the source tree: uv itself installs no extra.

    By pip, because uv does not read pip's settings, and without them takes gigabytes of CUDA packages.
    """
    missing, pins = _missing(), Path(__file__).resolve().parents[2] / "constraints.txt"
    own = sys.prefix != sys.base_prefix and _BY_UV in os.environ
    if not missing or not own or not pins.is_file():
        return
    say(f"setting up {sys.prefix}, once: {', '.join(missing)} and what else the extra train needs (some minutes)")
    pip = [sys.executable, "-P", "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-c", str(pins)]
    has_pip = find_spec("pip") is not None or install([sys.executable, "-P", "-m", "ensurepip"]) == 0
    if not has_pip or install([*pip, "velodrome[train]"]) != 0:
        raise InputError(f"training needs {', '.join(missing)}, and they could not be installed; hint: {_WAYS}")
    invalidate_caches()


def _missing() -> list[str]:
    return [name for name in _NEEDED if find_spec(name) is None]
