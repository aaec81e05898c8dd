"""What a backend hands over: a process that waits for its code, and how it is to set itself up."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from typing import Any, NamedTuple


class Started(NamedTuple):
    process: subprocess.Popen[bytes]
    settings: dict[str, Any]  # arguments of `enter` in inside.py
    namespace: bool  # whether all processes of the box end with the first one
    remove: Callable[[], None] = lambda: None


Start = Callable[[str, socket.socket, int], Started]  # the line of Python to run, its stdin, megabytes of scratch
