"""The quickstart and the tutorials: files are written, commands typed on a terminal, and their output is compared."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from tests.docs.test_first_environment import changed
from tests.docs.test_run_pages import runnable, shell
from tests.support.pages import DOCS, FENCE, command_lines

pytestmark = pytest.mark.slow

TUTORIALS = [DOCS / "quickstart.md", *sorted((DOCS / "tutorials").glob("*.md"))]
# What differs between machines and moments: times, rates, shares, curves and what a policy has learned by then.
_MEASURED = re.compile(
    r"[\d.,]+ ?(?:(?:µs|ms|s)\b|(?=(?:times|rollouts/s|steps/s|cores|of \d+ slots)\b|%))|(?<=p99 )[\d.,]+"
    r"|[▁▂▃▄▅▆▇█ ]*[▁▂▃▄▅▆▇█] +\S+ to \S+"
    r"|(?<=return )[\d.]+|(?<=standard error )[\d.]+|(?<=ppo 196 200,000 )[\d, ]+"
)


def on_a_terminal(command: str, folder: Path) -> tuple[int, str]:
    """The exit code and everything that a reader sees, on a terminal of 100 columns without colour."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
    how = shell(command, folder)
    how["env"] |= {"NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(**how, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = bytearray()
        while chunk := read_some(ours):
            seen += chunk
        os.close(ours)
        return process.wait(), seen.decode().replace("\r\n", "\n")


def read_some(terminal: int) -> bytes:
    """What the terminal has next; nothing once its programs have ended."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def plain(text: str) -> str:
    """A text without its measurements, and without the widths of columns and lines."""
    return _MEASURED.sub("# ", " ".join(text.split()))


def says(printed: str, shown: str) -> bool:
    """Whether a terminal printed what the page shows; `…` there stands for anything."""
    rest = plain(printed)
    for part in plain(shown).split("…"):
        _, there, rest = rest.partition(part.strip()) if part.strip() else ("", " ", rest)
        if not there:
            return False
    return True


def play(text: str, folder: Path) -> tuple[int, int]:
    """Do what a page says; how many commands were run, and how many outputs compared."""
    printed, ran, compared = "", 0, 0
    for language, body in FENCE.findall(text):
        name, _, rest = body.partition("\n")
        path = folder / name.removeprefix("# ")
        if language in ("python", "yaml") and name.startswith("# "):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body)
        elif language == "diff":
            path.write_text(changed(path.read_text(), rest))
        elif language == "text":
            assert says(printed, body), printed
            compared += 1
        elif language == "bash":
            printed = ""
            for line in filter(runnable, command_lines(body)):
                code, seen = on_a_terminal(line.partition("  #")[0], folder)
                assert code in (0, 3), (line, seen)
                printed += seen
                ran += 1
    return ran, compared


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_does_as_it_says(page: Path, tmp_path: Path):
    ran, compared = play(page.read_text(), tmp_path)
    assert ran >= 3
    assert compared >= 1
