"""What a backend hands over: a process that waits for its code, and how it is to set itself up."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple


class Started(NamedTuple):
    process: subprocess.Popen[bytes]
    settings: dict[str, Any]  # arguments of `enter` in inside.py
    info: BinaryIO | None = None  # where bubblewrap says which process is the first in its namespace, if there is one
    remove: Callable[[], None] = lambda: None


Start = Callable[[str, socket.socket, int], Started]  # the line of Python to run, its stdin, megabytes of scratch
