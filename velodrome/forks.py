"""Descriptors that belong to this process alone: a process that it forks does not have them.

A lock of `flock` and the end of a pipe last until the last copy is closed. An environment's pool of forked processes
outlives a collector that is killed; with a copy it would keep the output locked.
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
    """This descriptor, which forked processes do not have from now on. `close_alone` closes it."""
    _alone.add(fd)
    return fd


def keep_socket_alone(sock: socket.socket) -> None:
    """The same for a socket, which is closed as any other."""
    _sockets.add(sock)


def close_alone(fd: int) -> None:
    """Close a descriptor of `keep_alone`."""
    _alone.discard(fd)
    os.close(fd)


def _let_go() -> None:
    """In a forked process. Its copies of our objects may close the numbers, so they stay taken."""
    for fd in {*_alone, *(sock.fileno() for sock in _sockets)}:
        with suppress(OSError):
            os.close(fd)
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != fd:
                os.dup2(nothing, fd, inheritable=False)
                os.close(nothing)
    _alone.clear()
    _sockets.clear()


os.register_at_fork(after_in_child=_let_go)


def lock_holders(path: Path) -> str:
    """` (process 12)`: who holds a lock on this file; nothing where the system does not show it."""
    pids = set()
    for info in iglob("/proc/[0-9]*/fdinfo/[0-9]*"):
        with suppress(OSError):
            if "FLOCK" in Path(info).read_text() and os.path.samefile(path, info.replace("fdinfo", "fd")):
                pids.add(int(info.split("/")[2]))
    return f" (process {', '.join(map(str, sorted(pids)))})" if pids else ""
