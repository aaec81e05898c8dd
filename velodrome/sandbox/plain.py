"""Boxes without namespaces: programs confined by sandlock (Landlock) and seccomp, or, if that is allowed, not at all.

The supervisor runs as an ordinary child of this process, in a temporary folder that is the scratch. What this does not
hold, and a namespace does, is listed in docs/sandbox.md.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from velodrome.sandbox.bubblewrap import box_user
from velodrome.sandbox.seccomp import filter_program
from velodrome.sandbox.started import Started
from velodrome.sandbox.visible import mounts

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_TRY = "import sys, sandlock; sandlock.confine(sandlock.Sandbox(fs_readable=['/']))"


@cache
def sandlock_problem() -> str | None:
    """Why sandlock cannot be used here, or None."""
    if importlib.util.find_spec("sandlock") is None:
        return 'sandlock is not installed (pip install "velodrome[sandbox]")'
    if not filter_program(network=False):
        return "the system calls of this machine are not known"
    closed = [path for path, _ in mounts() if not _open_to_others(path)] if os.geteuid() == 0 else []
    if closed:
        return f"programs would have to run as root, because other users cannot read {closed[0]}"
    tried = subprocess.run([sys.executable, "-c", _TRY], capture_output=True, text=True, errors="replace", check=False)
    return (tried.stderr.strip().splitlines() or ["it failed"])[-1] if tried.returncode else None


def start_confined(code: str, theirs: socket.socket, disk_mb: int) -> Started:
    """A box whose programs are confined by Landlock and seccomp, and are not root."""
    user = box_user()
    confined = {
        "packages": str(Path(str(importlib.util.find_spec("sandlock").origin)).parent.parent),  # type: ignore[union-attr]
        "readable": [*(path for path, _ in mounts()), *_DEVICES],
        "filter": filter_program(network=False),
    }
    return _start(code, theirs, {"user": user, "own_user": bool(user), "confined": confined})


def start_unsafe(code: str, theirs: socket.socket, disk_mb: int) -> Started:
    """A box in name only: limits hold, but programs can read, write and reach all that this process can."""
    return _start(code, theirs, {"user": 0, "own_user": False, "confined": None})


def _start(code: str, theirs: socket.socket, settings: dict[str, Any]) -> Started:
    folder = tempfile.TemporaryDirectory(prefix="velodrome-box-", ignore_cleanup_errors=True)
    scratch, programs = os.path.join(folder.name, "work"), os.path.join(folder.name, "bin")
    os.chmod(folder.name, 0o711)
    os.mkdir(scratch, 0o700)
    os.mkdir(programs, 0o755)
    for name in ("python", "python3"):
        os.symlink(_python(), os.path.join(programs, name))
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": scratch, "LANG": "C.UTF-8"}
    if "LD_LIBRARY_PATH" in os.environ:  # the interpreter may need it to start
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    try:
        process = subprocess.Popen(
            [_python(), "-I", "-S", "-c", code],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
        )
    except BaseException:
        folder.cleanup()
        raise
    return Started(process, settings | {"scratch": scratch, "environment": environment}, remove=lambda: _remove(folder))


def _python() -> str:
    return str(os.path.realpath(sys._base_executable))  # type: ignore[attr-defined]


def _open_to_others(path: str) -> bool:
    """Whether any user can read a file, as far as its mode and those of its folders say."""
    inner = Path(path)
    return bool(inner.stat().st_mode & 0o004) and all(folder.stat().st_mode & 0o001 for folder in inner.parents)


def _remove(folder: tempfile.TemporaryDirectory[str]) -> None:
    try:
        folder.cleanup()
    except RecursionError:  # a program nested a thousand folders
        subprocess.run(["rm", "-rf", folder.name], check=False)
