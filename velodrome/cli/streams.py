"""The standard streams, which may be closed, on a full disk, or a pipe without a reader.

Printing never fails a rollout. A failed write to stderr is ignored. A failed write to stdout makes the exit code 1.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

ESCAPED = "velodrome.escaped"
PATIENCE_S = 2.0
EVERY_S = 5.0
WIDEST_HELP = 100


_typed: dict[str, str] = {}


def kept_path(path: Path) -> Path:
    """The absolute path, because an environment may change the working directory. Messages show the typed path."""
    kept, typed = (str(each).removesuffix(".zst").removesuffix(".jsonl") for each in (path.absolute(), path))
    _typed[kept] = typed
    return path.absolute()


def as_typed(text: str) -> str:
    """Text with paths as they were typed."""
    for kept, typed in _typed.items():  # also in colour, but not inside another path
        text = typed.join(re.split(rf"(?:(?<=\x1b\[\dm)|(?<![\w./~-])){re.escape(kept)}", text))
    return text


def typed_path(path: Path) -> Path:
    """A path of `kept_path`, or one below it, as it was typed."""
    return Path(as_typed(str(path)))


def say(line: str) -> None:
    """Print a line to stderr; stdout is for the result."""
    from velodrome.timing.screen import fitted, page_width

    print(fitted(as_typed(line), page_width(sys.stderr)), file=sys.stderr, flush=True)


@contextmanager
def still_working(what: str) -> Iterator[Callable[[str], None]]:
    """Report long work and its duration, after two seconds and then every five.

    Yields a function that sets the current step.
    """
    doing = [""]
    over = threading.Event()
    began = time.monotonic()

    def keep_reporting() -> None:
        wait_s = PATIENCE_S
        while not over.wait(wait_s):
            say(f"{what}: {doing[0]}{time.monotonic() - began:.0f} s so far")
            wait_s = EVERY_S

    reporter = threading.Thread(target=keep_reporting, daemon=True)
    reporter.start()
    try:
        yield lambda step: doing.__setitem__(0, f"{step}, ")
    finally:
        over.set()
        reporter.join()


def help_width() -> int:
    """The width of help: the terminal, up to a readable width; 80 columns on a pipe."""
    from velodrome.timing.screen import screen_width

    return min(screen_width(sys.stdout), WIDEST_HELP)


@contextmanager
def within_page() -> Iterator[None]:
    """Limit tables and pictures to the width of the terminal."""
    from velodrome.timing.screen import page, page_width

    before = page.set(page_width(sys.stdout))
    try:
        yield
    finally:
        page.reset(before)


class _SafeStream(io.FileIO):
    """One descriptor. The error of a failed write is in `problem`; with `piped`, a pipe without a reader raises."""

    def __init__(self, fd: int, *, piped: bool) -> None:
        super().__init__(fd, "w", closefd=False)
        self.problem: OSError | None = None
        self._piped = piped

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if self._piped and isinstance(error, BrokenPipeError):
                raise
            self.problem = error
            return len(data)


def escape(error: UnicodeError) -> tuple[str, int]:
    """An error handler: escape characters that the encoding lacks as in JSON, so that JSON stays valid."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)), error.end


codecs.register_error(ESCAPED, escape)


def mend_streams() -> None:
    """Open closed standard streams, so that no file gets their numbers, and replace stdout and stderr."""
    for fd, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):  # so that a write to a closed stdout fails
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest free number: this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_SafeStream(1, piped=True), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_SafeStream(2, piped=False), sys.stderr)


def _text(raw: _SafeStream, before: TextIO | None) -> TextIO:
    """The text stream that Python makes by default, over this descriptor."""
    through = bool(getattr(before, "write_through", False))
    return io.TextIOWrapper(
        raw if through else io.BufferedWriter(raw),  # unbuffered, as Python does it
        encoding=before.encoding if before else "utf-8",
        errors=before.errors if before and before.errors not in ("strict", "surrogateescape") else ESCAPED,
        line_buffering=raw.isatty() or raw.fileno() == 2,
        write_through=through,
    )


def exit_code_after_flush(code: int) -> int:
    """Flush stdout. Returns the exit code, which is 1 if the result could not be written."""
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if not isinstance(raw, _SafeStream) or raw.problem is None:
        return code
    print(f"velo: stdout: {raw.problem.strerror}; the result could not be printed", file=sys.stderr)
    raw.problem = None
    return 1
