"""A digest of the code behind a component: two runs with another digest may score the same answer differently."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from velodrome.errors import InputError

_NOT_CODE = frozenset(("tests", "__pycache__", "venv", "node_modules"))


def source_digest(entry: Path) -> str:
    """Sixteen hex digits of the `.py` files beside and below an implementation's entry file, tests left out."""
    made = hashlib.blake2b(digest_size=8)
    try:
        for path in sorted({entry.resolve(), *_code_below(entry.parent.resolve())}):
            data = path.read_bytes()
            made.update(f"{os.path.relpath(path, entry.parent.resolve())}\0{len(data)}\0".encode(errors="replace"))
            made.update(data)
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return made.hexdigest()


def _code_below(folder: Path) -> list[Path]:
    code = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_CODE and not name.startswith(".")]
        code += [Path(place, name) for name in files if name.endswith(".py") and not _is_test(name)]
    return code


def _is_test(name: str) -> bool:
    return name.startswith((".", "test_")) or name.endswith("_test.py") or name == "conftest.py"
