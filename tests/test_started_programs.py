"""Commands of others: their streams, their last words, and that none outlives the process that started it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from patience import DEADLINE_S

from velodrome.children import start_program

LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
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


@LOOPS
def test_its_lines_come_back_and_its_last_words_are_kept(run: Callable[..., Any]):
    async def main() -> tuple[bytes, str, str | None]:
        program = await start_program([sys.executable, "-c", ECHO], env=os.environ)
        program.writer.write(b"hello\n")
        line = await program.reader.readline()
        program.writer.write_eof()
        said = await program.ended()
        await program.close()
        return line, said, program.ending

    assert run(main()) == (b"HELLO\n", "exit code 1: no more", "exit code 1")


@LOOPS
def test_a_command_that_is_not_there_says_so(run: Callable[..., Any]):
    async def main() -> str:
        program = await start_program(["no-such-command"], env=os.environ)
        said = await program.ended()
        await program.close()
        return said

    assert run(main()) == "exit code 1: no-such-command: No such file or directory"


@LOOPS
def test_one_that_does_not_end_is_killed_with_what_it_started(run: Callable[..., Any]):
    async def main() -> tuple[int, str | None]:
        program = await start_program([sys.executable, "-c", STUBBORN], env=os.environ)
        child = int(await program.reader.readline())
        await program.close(grace_s=0.0)
        return child, program.ending

    child, ending = run(main())
    assert ending == "signal SIGKILL"
    assert ended(child)


def test_they_end_with_a_killed_parent():
    script = f"""
import asyncio, os, sys
from velodrome.children import start_program
async def main():
    program = await start_program([sys.executable, "-c", {STUBBORN!r}], env=os.environ)
    print(program.pid, (await program.reader.readline()).decode(), flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        parent.send_signal(signal.SIGKILL)
    assert len(pids) == 2
    assert all(ended(pid) for pid in pids)


@LOOPS
def test_a_folder_that_is_not_there_is_an_os_error_and_leaves_nothing_open(run: Callable[..., Any]):
    async def main() -> None:
        await start_program([sys.executable], env=os.environ, cwd="/no/such/folder")

    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No such file or directory"):
        run(main())
    assert len(os.listdir("/proc/self/fd")) <= before
