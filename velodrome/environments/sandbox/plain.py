"""A box in name only, if the user allows it: limits hold, but programs can read, write and reach all that he can.

The supervisor runs as an ordinary child of this process, in a temporary folder that is the scratch.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile

from velodrome.environments.sandbox.link import Started


def start(code: str, theirs: socket.socket, disk_mb: int) -> Started:
    """A process that runs this Python with the socket as its stdin, without any protection."""
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
    settings = {"scratch": scratch, "user": 0, "own_user": False, "environment": environment}
    return Started(process, settings, remove=lambda: _remove(folder))


def _python() -> str:
    return str(os.path.realpath(sys._base_executable))  # type: ignore[attr-defined]


def _remove(folder: tempfile.TemporaryDirectory[str]) -> None:
    try:
        folder.cleanup()
    except RecursionError:  # a program nested a thousand folders
        subprocess.run(["rm", "-rf", folder.name], check=False)
