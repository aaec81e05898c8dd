from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from tests.support.patience import DEADLINE_S
from velodrome.children import spawn, start_program

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
@pytest.mark.parametrize("target", ["tests.support.child_mains:echo", "tests.support.child_mains:echo_on_a_loop"])
def test_frames_of_any_size_come_back_whole_and_in_order_the_init_first(run, target: str):
    frames = [b"", b"x", os.urandom(3 << 20), b"last"]

    async def main() -> tuple[list[bytes | None], str | None]:
        child = await spawn(target, b"init")
        for frame in frames:
            child.send(frame)
        answers = [await child.receive() for _ in range(1 + len(frames))]
        assert child.ending is None
        await child.close(DEADLINE_S)
        assert await child.receive() is None
        return answers, child.ending

    assert run(main()) == ([b"init", *frames], "exit code 0")


@pytest.mark.parametrize(
    ("way", "ending"),
    [
        (b"segfault", "signal SIGSEGV"),
        (b"exit", "exit code 3"),
        (b"raise", "exit code 1"),
        (b"return", "exit code 0"),
    ],
)
def test_what_it_sent_before_its_end_arrives_and_then_how_it_ended(way: bytes, ending: str):
    async def main() -> list[object]:
        child = await spawn("tests.support.child_mains:end", way)
        result = [await child.receive(), await child.receive(), child.ending]
        child.send(b"to nobody")
        await child.close()
        return [*result, await child.receive()]

    assert uvloop.run(main()) == [b"last words", None, ending, None]


def test_a_child_that_does_not_end_is_killed_after_its_grace_with_what_it_started(tmp_path: Path):
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)

    async def main() -> str | None:
        child = await spawn("tests.support.child_mains:spin", bytes(tmp_path / "held"))
        await child.receive()
        await child.close(grace_s=0.01)
        return child.ending

    assert uvloop.run(main()) == "signal SIGKILL"
    os.set_blocking(held, True)
    assert os.read(held, 1) == b""  # which comes when the last process that has it open is gone
    os.close(held)


def test_a_child_that_is_to_end_gets_no_frame_any_more_and_is_not_waited_for_if_that_is_cancelled():
    async def main() -> str | None:
        child = await spawn("tests.support.child_mains:ignore_all", b"")
        await child.receive()
        closing = asyncio.ensure_future(child.close(DEADLINE_S))
        await asyncio.sleep(0)
        child.send(b"too late")
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        return child.ending

    assert uvloop.run(main()) == "signal SIGKILL"


def test_a_number_that_may_be_another_process_by_now_is_not_killed(monkeypatch: pytest.MonkeyPatch):
    """Numbers come round after 32,768 processes, and a child may have ended long before anybody asks."""
    killed: list[int] = []

    async def main() -> None:
        child = await spawn("tests.support.child_mains:end", b"exit")
        program = await start_program(["true"], env={})
        await program.ended()
        async with asyncio.timeout(DEADLINE_S):
            while child.ending is None:  # noqa: ASYNC110 - nobody receives, so nothing tells
                await asyncio.sleep(0.01)
        monkeypatch.setattr(os, "killpg", lambda pid, number: killed.append(pid))
        child.kill()
        await child.close()
        await program.close()

    uvloop.run(main())
    assert killed == []


def test_a_process_that_it_forked_and_left_does_not_hide_its_end():
    async def main() -> str | None:
        child = await spawn("tests.support.child_mains:fork", b"")
        left = int(await child.receive() or b"0")
        assert await child.receive() is None
        os.kill(left, signal.SIGKILL)
        return child.ending

    assert uvloop.run(main()) == "exit code 0"


PARENT = """
import asyncio
from velodrome.children import spawn, start_program

async def main():
    children = [await spawn("tests.support.child_mains:spin", b""), await spawn("tests.support.child_mains:echo", b"")]
    for child in children:
        await child.receive()
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_children_end_with_a_killed_parent_also_while_one_holds_the_interpreters_lock():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    parent.kill()
    assert parent.stdout.read() == b""  # which ends with the last process that has it open
    parent.stdout.close()
    assert parent.wait(DEADLINE_S) == -signal.SIGKILL


def test_it_searches_for_modules_where_its_parent_does_and_its_arguments_hold_nothing():
    async def main() -> list[str]:
        child = await spawn("tests.support.child_mains:show_path", b"")
        data = await child.receive()
        await child.close()
        assert data is not None
        return data.decode().split("\n")

    assert uvloop.run(main()) == ["tests.support.child_mains:show_path", *sys.path]


NOWHERE = """
import asyncio, os, resource, sys
from velodrome.children import spawn

async def main():
    try:
        await spawn("tests.support.child_mains:echo", b"")
    except FileNotFoundError:
        print("not started")

async def many():
    child = await spawn("tests.support.child_mains:echo", b"init")
    print((await child.receive()).decode())
    await child.close()

resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
asyncio.run(many())
before = len(os.listdir("/proc/self/fd"))
sys.executable = "/nowhere/python"
asyncio.run(main())
print(len(os.listdir("/proc/self/fd")) - before)
"""


def test_a_child_starts_beside_a_thousand_open_files_and_one_that_cannot_be_started_leaves_none_open():
    command = [sys.executable, "-c", NOWHERE]  # a process in which no other test opens files meanwhile
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout.split("\n") == ["init", "not started", "0", ""]
