"""The imports of a file for NeMo Gym, and whether it can run here, without loading it.

`velo env add nemo_gym:FOLDER` checks a folder, loads it and copies it here as it is.
"""

from __future__ import annotations

import ast
import importlib.util
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from velodrome.errors import InputError
from velodrome.serving.components import load_file, only_component
from velodrome.settings.names import RESOURCES

EXTRA = 'pip install "velodrome[nemo-gym]"'
_NOT_COPIED = shutil.ignore_patterns("__pycache__", ".venv", "venv", "*.pyc", ".git")
SEE = "docs/from-nemo-gym.md#what-a-folder-may-use"


@contextmanager
def prepared_imports(entry: Path) -> Iterator[None]:
    """Make the imports of a folder possible while its code is loaded. Raises if names are missing here.

    As in NeMo Gym, the files beside it are top-level modules.
    """
    if not uses_nemo_gym(entry):
        yield
        return
    problems = folder_problems(entry)
    if problems:
        raise InputError(*problems)
    from velodrome.connect.nemo_gym.names import stand_in

    stand_in()
    folder = entry.parent.resolve()
    _forget_namesakes(entry, folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if str(folder) not in sys.path:
            sys.path.append(str(folder))  # for imports in functions


def _forget_namesakes(entry: Path, folder: Path) -> None:
    """Remove modules of other folders with the name of a file beside this one. Their importers keep them."""
    imported = {name.partition(".")[0] for name, _ in _imports(entry)} - sys.stdlib_module_names
    for name in imported:
        if (folder / f"{name}.py").is_file() or (folder / name).is_dir():
            for loaded in [each for each in sys.modules if each.partition(".")[0] == name]:
                del sys.modules[loaded]


def uses_nemo_gym(entry: Path) -> bool:
    """Whether a file imports from `nemo_gym`; False for a file that is not Python."""
    try:
        return b"nemo_gym" in entry.read_bytes() and any(
            name.split(".")[0] == "nemo_gym" for name, _ in _imports(entry)
        )
    except (OSError, SyntaxError, ValueError):
        return False


def folder_problems(entry: Path) -> list[str]:
    """A line for each reason why this `app.py` cannot run here, with what to do."""
    absent = [name for name in ("fastapi", "itsdangerous") if importlib.util.find_spec(name) is None]
    if absent:
        return [f"{entry}: a server of NeMo Gym's shape needs {' and '.join(absent)}: {EXTRA}"]
    from velodrome.connect.nemo_gym.names import METRICS_MODULE, MODULES, is_installed

    if is_installed():
        return []
    problems = []
    for name, line in _imports(entry):
        _, module, *attribute = (*name.split("."), "")
        if not name.startswith("nemo_gym.") or module == METRICS_MODULE:
            continue
        if module not in MODULES or (attribute[0] and attribute[0] not in MODULES[module]):
            problems.append(
                f"{entry}:{line}: {name} is not among the names that Velodrome has a stand-in for; leave it out, or run"
                f" the folder with the nemo-gym package and give its url ({SEE})"
            )
    return problems


def _imports(entry: Path) -> Iterator[tuple[str, int]]:
    """The names that a file imports anywhere, with their lines."""
    for node in ast.walk(ast.parse(entry.read_bytes())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def copy_gym_folder(source: Path, home: Path, *, overwrite: bool = False) -> list[Path]:
    """Copy a folder and return its configs, app and data. A folder that is in its place already is only checked.

    Raises `InputError` if it cannot run here.
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
        shutil.copytree(source, home, ignore=_NOT_COPIED)
    data = sorted((home / "data").glob("*.jsonl"))
    return [*(home / "configs" / each.name for each in configs), home / "app.py", *data]
