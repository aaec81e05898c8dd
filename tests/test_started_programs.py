"""Commands of others: their streams, their last words, and that none outlives the process that started it."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

import velodrome
from tests.support.patience import DEADLINE_S
from velodrome.children import start_program

pytestmark = pytest.mark.slow
ECHO = "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)\nsys.exit('no more')"
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "1000"])
print(child.pid, flush=True)
time.sleep(1000)
"""


def ended(pid: int) -> bool:
    """Whether a process ends in time; one that nobody waits for is a zombie until init does."""
    handle = os.pidfd_open(pid) if os.path.exists(f"/proc/{pid}") else None
    if handle is None:
        return True
    try:
        return bool(select.select([handle], [], [], DEADLINE_S)[0])
    finally:
        os.close(handle)


def test_its_lines_come_back_and_its_last_words_are_kept():
    async def main() -> tuple[bytes, str, str | None]:
        program = await start_program([sys.executable, "-c", ECHO], env=os.environ)
        program.writer.write(b"hello\n")
        line = await program.reader.readline()
        program.writer.write_eof()
        said = await program.ended()
        await program.close()
        return line, said, program.ending

    assert uvloop.run(main()) == (b"HELLO\n", "exit code 1: no more", "exit code 1")


def test_one_that_does_not_end_is_killed_with_what_it_started():
    async def main() -> tuple[int, str | None]:
        program = await start_program([sys.executable, "-c", STUBBORN], env=os.environ)
        child = int(await program.reader.readline())
        await program.close(grace_s=0.0)
        return child, program.ending

    child, ending = uvloop.run(main())
    assert ending == "signal SIGKILL"
    assert ended(child)


def test_they_end_with_a_killed_parent_also_if_a_process_that_it_forked_lives_on():
    script = f"""
import asyncio, os, sys, time
from velodrome.children import start_program
async def main():
    program = await start_program([sys.executable, "-c", {STUBBORN!r}], env=os.environ)
    line = await program.reader.readline()
    orphan = os.fork()
    while orphan == 0:
        time.sleep(1000)
    print(program.pid, int(line), orphan, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        *pids, orphan = [int(word) for word in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    try:
        assert all(ended(pid) for pid in pids)
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_no_python_that_is_started_looks_for_modules_in_the_working_directory():
    starts = re.compile(r"sys\.executable, (?!\*safe|\"-[PI]\")[^)\n]*")
    package = Path(velodrome.__file__).parent
    assert [
        (path.name, found[0]) for path in package.rglob("*.py") for found in starts.finditer(path.read_text())
    ] == []
