"""The user's own code, in one folder that is sent to the nodes of a cluster: components and imported modules.

Components are the folders `resources_servers/`, `responses_api_agents/` and `responses_api_models/` of the working
directory. A module is one that is imported here and is not installed; what `__main__` defines is sent by value.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from velodrome.errors import InputError, is_own
from velodrome.settings.names import KINDS

_MOST_BYTES = 100 << 20
_NOT_CODE = shutil.ignore_patterns("__pycache__", ".*", "venv", "node_modules", "*.jsonl", "*.jsonl.zst")


@contextmanager
def shipped_code() -> Iterator[Path | None]:
    """A folder with a copy of the code, as long as the block runs; None if there is none."""
    places = dict(_places())
    if not places:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="velo-code-") as folder:
        room = _MOST_BYTES
        for name, source in places.items():
            room -= _size(source)
            if room < 0:
                raise InputError(
                    f"ray: {source}: too large to be sent to nodes, more than {_MOST_BYTES >> 20} MB; "
                    "hint: keep data elsewhere, at a path that every node has"
                )
            _copy(source, Path(folder, name))
        yield Path(folder)


def _places() -> Iterator[tuple[str, Path]]:
    """What to send, by its name in the folder."""
    for kind in KINDS:
        if Path(kind).is_dir():
            yield kind, Path(kind)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." not in name and name != "__main__" and file and is_own(file) and not name.startswith("velodrome"):
            path = Path(file)
            yield (name, path.parent) if path.name == "__init__.py" else (path.name, path)


def _size(source: Path) -> int:
    if source.is_file():
        return source.stat().st_size
    total = 0
    for place, folders, files in os.walk(source):
        left_out = _NOT_CODE(place, folders + files)
        folders[:] = [name for name in folders if name not in left_out]
        total += sum(os.lstat(Path(place, name)).st_size for name in files if name not in left_out)
    return total


def _copy(source: Path, target: Path) -> None:
    try:
        if source.is_file():
            shutil.copyfile(source, target)
        else:
            shutil.copytree(source, target, ignore=_NOT_CODE)
    except (OSError, shutil.Error) as error:
        raise InputError(f"ray: {source}: cannot be copied to be sent to nodes: {error}") from error
