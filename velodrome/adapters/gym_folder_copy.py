"""`velo env add nemo_gym:FOLDER`: a resources-server folder of NeMo Gym's, checked, loaded and copied here as it is."""

from __future__ import annotations

import shutil
from pathlib import Path

from velodrome.errors import InputError
from velodrome.serving.connect import load_file, only_component
from velodrome.serving.folders.gym_imports import folder_problems, uses_nemo_gym
from velodrome.settings.names import RESOURCES

_LEFT = shutil.ignore_patterns("__pycache__", ".venv", "venv", "*.pyc", ".git")


def copy_gym_folder(source: Path, home: Path, *, overwrite: bool = False) -> list[Path]:
    """The config, the app and the data of the folder in its new home; one that is at home is only checked.

    What keeps it from running is an `InputError`.
    """
    entry, configs = source / "app.py", sorted((source / "configs").glob("*.y*ml"))
    if not entry.is_file() or not uses_nemo_gym(entry):
        raise InputError(f"{source}: not a resources server of NeMo Gym: it has no app.py that imports nemo_gym")
    if not configs:
        raise InputError(f"{source}: no configs/*.yaml, so no agent uses it (see docs/from-nemo-gym.md)")
    if source.resolve().name != home.name:
        raise InputError(f"{source}: a folder keeps its name, which its config has; leave --name out")
    moves = source.resolve() != home.resolve()
    if moves and home.exists() and not overwrite:
        raise InputError(f"{home} is there already; set overwrite to write it again")
    problems = folder_problems(entry)
    if problems:
        raise InputError(*problems)
    root = source.resolve().parents[1]
    only_component(load_file(entry.resolve(), f"velodrome_added_{home.name}", root), RESOURCES)
    if moves:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(source, home, ignore=_LEFT)
    data = sorted((home / "data").glob("*.jsonl"))
    return [*(home / "configs" / each.name for each in configs), home / "app.py", *data]
