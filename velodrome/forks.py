"""Descriptors that forked processes must not inherit.

A lock of `flock` and an end of a pipe last until the last copy is closed. The forked processes of an environment
outlive a killed collector; with a copy of the descriptor they would keep the output locked.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from glob import iglob
from pathlib import Path
from weakref import WeakSet

_alone: set[int] = set()
_sockets: WeakSet[socket.socket] = WeakSet()


def keep_alone(fd: int) -> int:
    """Close this descriptor in every process forked from now on, and return it. Close it with `close_alone`."""
    _alone.add(fd)
    return fd


def keep_socket_alone(sock: socket.socket) -> None:
    """The same for a socket; close it as usual."""
    _sockets.add(sock)


def close_alone(fd: int) -> None:
    """Close a descriptor of `keep_alone`."""
    _alone.discard(fd)
    os.close(fd)


def _close_in_fork() -> None:
    """Close the descriptors in a forked process. Copies of objects may close the numbers later, so they stay in use."""
    for fd in {*_alone, *(sock.fileno() for sock in _sockets)}:
        with suppress(OSError):
            os.close(fd)
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd, inheritable=False)
                os.close(null)
    _alone.clear()
    _sockets.clear()


os.register_at_fork(after_in_child=_close_in_fork)


def lock_holders(path: Path) -> str:
    """The processes that hold a lock on this file, as ` (process 12)`; empty if the system does not show them."""
    pids = set()
    for info in iglob("/proc/[0-9]*/fdinfo/[0-9]*"):
        with suppress(OSError):
            if "FLOCK" in Path(info).read_text() and os.path.samefile(path, info.replace("fdinfo", "fd")):
                pids.add(int(info.split("/")[2]))
    return f" (process {', '.join(map(str, sorted(pids)))})" if pids else ""
