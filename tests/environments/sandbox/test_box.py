"""What a box does for its user: files in and out, programs run and asked, limits named."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.patience import DEADLINE_S
from velodrome.environments.sandbox import Limits, Sandbox, SandboxEnded, Sandboxes

T = TypeVar("T")
pytestmark = pytest.mark.slow


def in_a_box(act: Callable[[Sandbox], Awaitable[T]], limits: Limits | None = None, **files: str) -> T:
    async def do() -> T:
        boxes = Sandboxes(limits=limits or Limits(wall_s=60, cpu_s=60), warm=0)
        try:
            return await act(await boxes.open({name.replace("_", "."): text for name, text in files.items()}))
        finally:
            await boxes.aclose()

    return asyncio.run(do())


def test_a_program_gets_its_files_and_its_input_and_its_output_comes_back():
    code = "import sys\nprint(input().upper())\nprint('careful', file=sys.stderr)\nsys.exit(3)"
    ran = in_a_box(lambda box: box.run(["python3", "main.py"], stdin="hello\n"), main_py=code)
    assert (ran.stdout, ran.stderr, ran.exit_code, ran.stopped) == ("HELLO\n", "careful\n", 3, "")
    assert ran.cpu_s > 0


def test_whatever_a_program_does_its_output_and_its_end_are_known():
    large = "x" * (1 << 20)
    programs = [
        ("import os; os.kill(os.getpid(), 11)", "", (-11, "")),
        ("import sys; sys.stdout.buffer.write(b'a\\xffb')", "", (0, "a\ufffdb")),
        ("import sys; sys.stdout.write(sys.stdin.read())", large, (0, large)),
        ("print(1)", large, (0, "1\n")),  # and reads no input
    ]
    commands = [["no-such-program"], ["python3", "\ud800"], ["a\0b"], []]

    async def act(box: Sandbox):
        ran = [await box.run(["python3", "-c", code], stdin=stdin) for code, stdin, _ in programs]
        assert [(each.exit_code, each.stdout) for each in ran] == [end for *_, end in programs]
        failed = [await box.run(command) for command in commands]
        assert [each.exit_code for each in failed] == [127] * len(commands)
        assert "no-such-program" in failed[0].stderr

    in_a_box(act)


def test_files_remain_from_run_to_run_and_are_seen_outside():
    async def act(box: Sandbox) -> object:
        await box.write("deep/er/in.txt", "one")
        await box.run(["sh", "-c", "cat deep/er/in.txt > out.txt; echo two >> out.txt"])
        return await box.read("out.txt"), await box.files(), await box.read("none.txt"), await box.read("out.txt", 2)

    assert in_a_box(act) == (b"onetwo\n", ["deep/er/in.txt", "out.txt"], None, b"on")


def test_a_path_outside_the_scratch_is_refused():
    async def act(box: Sandbox):
        for path in ("../out", "/tmp/out", "", ".", "a/../../b", "a//b", "a\0b", "\ud800", "x" * 5000):
            with pytest.raises(OSError):
                await box.write(path, "x")
            assert await box.read(path) is None, path

    in_a_box(act)


def test_a_program_is_asked_line_by_line_and_no_other_runs_beside_it():
    async def act(box: Sandbox) -> object:
        program = await box.start(["python3", "-u", "main.py"])
        with pytest.raises(RuntimeError, match="a program runs"):
            await box.run(["true"])
        answers = [await program.ask(b"x = 20\n"), await program.ask(b"x += 1\n")]
        return answers, (await program.stop()).stopped, (await box.run(["true"])).exit_code

    code = "import sys\nscope = {}\nfor line in sys.stdin: exec(line, scope); print(scope.get('x'))"
    assert in_a_box(act, main_py=code) == ([b"20\n", b"21\n"], "ended", 0)


@pytest.mark.parametrize(
    ("code", "stopped", "exit_code"),
    [
        ("import time; time.sleep(1000)", "time", -9),
        ("input(); raise SystemExit(4)", "", 4),
        ("while True: print('x' * 1000, end='')", "output", -9),
    ],
)
def test_a_talking_program_that_takes_too_long_ends_or_says_too_much_is_over(code: str, stopped: str, exit_code: int):
    async def act(box: Sandbox):
        program = await box.start(["python3", "-c", code])
        with pytest.raises(SandboxEnded) as raised:
            await program.ask(b"\n", timeout_s=1.0 if stopped == "time" else 60)
        assert (raised.value.stopped, raised.value.ran.exit_code) == (stopped, exit_code)

    in_a_box(act)


def test_each_box_has_files_of_its_own_and_a_closed_one_is_over():
    async def act(one: Sandbox):
        async with await Sandboxes(warm=0).open({"b": "2"}) as two:
            assert (await one.files(), await two.files()) == (["a"], ["b"])
        with pytest.raises(SandboxEnded):
            await two.run(["true"])

    in_a_box(act, a="1")


def test_links_are_not_followed_from_outside():
    async def act(box: Sandbox) -> object:
        await box.write("real/file", "inside")
        await box.run(["sh", "-c", "ln -s real/file soft; ln -s real folder; ln -s /proc/1 deep; mkdir dir"])
        await box.run(["python3", "-c", "import os; os.mkfifo('p')"])
        read = [await box.read(path) for path in ("soft", "folder/file", "deep/environ", "p", "dir", "real/file")]
        with pytest.raises(OSError):
            await box.write("folder/new", "x")
        await box.write("soft", "new")
        return read, await box.read("real/file"), await box.read("soft"), await box.files()

    read, kept, replaced, files = in_a_box(act)
    assert read == [None, None, None, None, None, b"inside"]
    assert (kept, replaced, files) == (b"inside", b"new", ["real/file", "soft"])


DAEMON = """
import fcntl, os, signal
lock = open("lock", "w")
reader, writer = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        for number in (1, 2, 3, 15):
            signal.signal(number, signal.SIG_IGN)
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(writer, b"x")
        while True:
            signal.pause()
os.read(reader, 1)
"""
LOCKED = "import fcntl; fcntl.flock(open('lock'), fcntl.LOCK_EX | fcntl.LOCK_NB); print('free')"


def test_a_daemon_ends_with_the_program_that_started_it():
    async def act(box: Sandbox) -> str:
        await box.run(["python3", "main.py"])
        return (await box.run(["python3", "-c", LOCKED])).stdout

    assert in_a_box(act, main_py=DAEMON) == "free\n"


def test_a_run_that_is_cancelled_leaves_the_box_free():
    async def act(box: Sandbox) -> int:
        task = asyncio.create_task(box.run(["python3", "-c", "open('started', 'w'); import time; time.sleep(1000)"]))
        while await box.read("started") is None:
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await box.run(["true"])).exit_code

    assert in_a_box(act) == 0


def test_a_box_whose_opener_is_cancelled_is_for_the_next_one():
    async def act() -> bool:
        boxes = Sandboxes(warm=0)
        opening = asyncio.create_task(boxes.open())
        while not boxes._open:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        (box,) = boxes._open
        try:
            return await boxes.open() is box
        finally:
            await boxes.aclose()

    assert asyncio.run(act())


def descendants(pid: int) -> list[int]:
    children = [
        int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
    ]
    return [found for child in children for found in (child, *descendants(child))]


def test_a_box_ends_with_the_process_that_opened_it(tmp_path: Path):
    """Even if that process has no chance to close it, and one that it forked lives on."""
    script = tmp_path / "host.py"
    script.write_text(
        "import asyncio, os, signal, time\nfrom velodrome.environments.sandbox import Sandboxes\n"
        "async def main():\n"
        "    boxes = Sandboxes(warm=1)\n"
        "    box = await boxes.open()\n"
        "    orphan = os.fork()\n"
        "    while orphan == 0:\n"
        "        time.sleep(1000)\n"
        "    print(orphan, flush=True)\n"
        "    await box.run(['sleep', '1000'])\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        orphan = int(process.stdout.readline())
        watched = [os.pidfd_open(pid) for pid in descendants(process.pid) if pid != orphan]
        process.kill()
    assert len(watched) >= 2  # bubblewrap, and the supervisor in it
    try:
        for end in watched:
            assert select.select([end], [], [], DEADLINE_S)[0] == [end]
            os.close(end)
    finally:
        os.kill(orphan, signal.SIGKILL)


DEEP = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\nopen('deep', 'w').close()"


def test_files_are_listed_whatever_a_program_made_of_the_scratch():
    async def act(box: Sandbox) -> object:
        await box.run(["python3", "-c", DEEP])
        await box.run(["python3", "-c", "import os\nopen(b'\\xff\\n', 'w').close(); os.mkdir('locked', 0)"])
        return await box.files(), await box.read("main.py")

    assert in_a_box(act, main_py="1") == (["main.py", "\udcff\n"], b"1")
