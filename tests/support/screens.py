"""A real terminal of a given width: a pseudo-terminal in which a program runs, and what it wrote there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.patience import DEADLINE_S

SET_HERE = ("COLUMNS", "NO_COLOR", "FORCE_COLOR")
PAINT = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Screen:
    """A program in a terminal of so many columns; the variables of `env` are set, those that are None removed."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        columns: int = 80,
        env: Mapping[str, str | None] | None = None,
        stdout_only: bool = False,
    ) -> None:
        self._main, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        plain = {name: value for name, value in os.environ.items() if name not in SET_HERE}
        wanted = {**plain, "TERM": "xterm-256color", "PYTHONUTF8": "1", **(env or {})}
        self._process = subprocess.Popen(
            command,
            stdin=child,
            stdout=child,
            stderr=subprocess.DEVNULL if stdout_only else child,
            cwd=cwd,
            env={name: value for name, value in wanted.items() if value is not None},
            start_new_session=True,
        )
        os.close(child)
        self.text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._main)

    def type(self, keys: str) -> None:
        os.write(self._main, keys.encode())

    def wait_for(self, text: str) -> None:
        """Read until the text is on the screen."""
        while text not in PAINT.sub("", self.text).replace("\x07", ""):
            assert self._read(), f"{text!r} never came: {self.text!r}"

    def _read(self) -> bool:
        ready, _, _ = select.select([self._main], [], [], DEADLINE_S)
        try:
            data = os.read(self._main, 65536) if ready else b""
        except OSError:  # the other end is closed
            return False
        self.text += data.decode(errors="replace")
        return bool(data)

    def end(self) -> int:
        """Read until the program ends; its exit code."""
        while self._read():
            pass
        return self._process.wait()


class Shown(NamedTuple):
    """How a command ended, what it wrote, and the same as lines without colours."""

    code: int
    text: str
    lines: list[str]


def velo_on_screen(
    *words: str, cwd: Path, columns: int = 80, env: Mapping[str, str | None] | None = None, stdout_only: bool = False
) -> Shown:
    """A verb in a terminal of its own."""
    command = [sys.executable, "-m", "velodrome.cli.main", *words]
    with Screen(command, cwd=cwd, columns=columns, env=env, stdout_only=stdout_only) as screen:
        code = screen.end()
    text = screen.text.replace("\r\n", "\n")
    lines = [line.rpartition("\r")[2] for line in PAINT.sub("", text).splitlines()]
    return Shown(code, text, lines)
