"""What a box does for its user: files in and out, programs run and asked, limits named."""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from patience import DEADLINE_S

from velodrome.sandbox import Limits, Ran, Sandbox, SandboxEnded, Sandboxes

T = TypeVar("T")


@asynccontextmanager
async def a_box(limits: Limits | None = None, **files: str) -> AsyncIterator[Sandbox]:
    boxes = Sandboxes(limits=limits or Limits(wall_s=60, cpu_s=60), warm=0)
    try:
        yield await boxes.open({name.replace("_", "."): text for name, text in files.items()})
    finally:
        await boxes.aclose()


def in_a_box(act: Callable[[Sandbox], Awaitable[T]], limits: Limits | None = None, **files: str) -> T:
    async def do() -> T:
        async with a_box(limits, **files) as box:
            return await act(box)

    return asyncio.run(do())


def python(code: str, limits: Limits | None = None, stdin: str = "") -> Ran:
    return in_a_box(lambda box: box.run(["python3", "main.py"], stdin=stdin), limits, main_py=code)


def test_a_program_gets_its_files_and_its_input_and_its_output_comes_back():
    ran = python("import sys\nprint(input().upper())\nprint('careful', file=sys.stderr)\nsys.exit(3)", stdin="hello\n")
    assert (ran.stdout, ran.stderr, ran.exit_code, ran.stopped) == ("HELLO\n", "careful\n", 3, "")
    assert ran.cpu_s > 0


def test_a_signal_is_a_negative_exit_code():
    assert python("import os; os.kill(os.getpid(), 11)").exit_code == -11


def test_a_program_that_does_not_exist_is_an_exit_code():
    ran = in_a_box(lambda box: box.run(["no-such-program"]))
    assert ran.exit_code == 127
    assert "no-such-program" in ran.stderr


def test_bytes_that_are_no_text_are_replaced():
    assert python("import sys; sys.stdout.buffer.write(b'a\\xffb')").stdout == "a\ufffdb"


def test_a_megabyte_goes_in_and_comes_out():
    text = "x" * (1 << 20)
    ran = python("import sys; sys.stdout.write(sys.stdin.read())", stdin=text)
    assert (len(ran.stdout), ran.stopped) == (len(text), "")


def test_a_program_that_reads_no_input_ends():
    assert python("print(1)", stdin="x" * (1 << 20)).stdout == "1\n"


def test_files_remain_from_run_to_run_and_are_seen_outside():
    async def act(box: Sandbox) -> object:
        await box.write("deep/er/in.txt", "one")
        await box.run(["sh", "-c", "cat deep/er/in.txt > out.txt; echo two >> out.txt"])
        return await box.read("out.txt"), await box.files(), await box.read("none.txt"), await box.read("out.txt", 2)

    assert in_a_box(act) == (b"onetwo\n", ["deep/er/in.txt", "out.txt"], None, b"on")


@pytest.mark.parametrize("path", ["../out", "/tmp/out", "", ".", "a/../../b", "a//b", "a\0b", "\ud800", "x" * 5000])
def test_a_path_outside_the_scratch_is_refused(path: str):
    async def act(box: Sandbox) -> bytes | None:
        with pytest.raises(OSError):
            await box.write(path, "x")
        return await box.read(path)

    assert in_a_box(act) is None


def test_a_program_is_asked_line_by_line():
    async def act(box: Sandbox) -> object:
        program = await box.start(["python3", "-u", "main.py"])
        answers = [await program.ask(b"x = 20\n"), await program.ask(b"x += 1\n")]
        return answers, (await program.stop()).stopped

    code = "import sys\nscope = {}\nfor line in sys.stdin: exec(line, scope); print(scope.get('x'))"
    assert in_a_box(act, main_py=code) == ([b"20\n", b"21\n"], "ended")


def test_a_program_that_takes_too_long_or_ends_says_so():
    async def act(box: Sandbox) -> list[str]:
        stopped = []
        for code in ("import time; time.sleep(1000)", "input(); raise SystemExit(4)"):
            program = await box.start(["python3", "-c", code])
            with pytest.raises(SandboxEnded) as raised:
                await program.ask(b"\n", timeout_s=1.0 if "sleep" in code else 60)
            stopped.append((raised.value.stopped, raised.value.ran.exit_code))
        return stopped

    assert in_a_box(act) == [("time", -9), ("", 4)]


def test_each_box_has_files_of_its_own_and_a_closed_one_is_over():
    async def act() -> object:
        boxes = Sandboxes(warm=1)
        one, two = await boxes.open({"a": "1"}), await boxes.open({"b": "2"})
        seen = await one.files(), await two.files()
        await one.close()
        with pytest.raises(SandboxEnded):
            await one.run(["true"])
        await boxes.aclose()
        return seen

    assert asyncio.run(act()) == (["a"], ["b"])


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


def test_one_program_at_a_time():
    async def act(box: Sandbox) -> None:
        program = await box.start(["python3", "-c", "input()"])
        with pytest.raises(RuntimeError, match="a program runs"):
            await box.run(["true"])
        await program.stop()
        assert (await box.run(["true"])).exit_code == 0

    in_a_box(act)


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


def test_the_output_of_a_talking_program_is_limited_between_questions():
    async def act(box: Sandbox) -> str:
        program = await box.start(["python3", "-c", "while True: print('x' * 1000, end='')"])
        with pytest.raises(SandboxEnded) as raised:
            await program.ask(b"", timeout_s=60)
        return raised.value.stopped

    assert in_a_box(act) == "output"


def descendants(pid: int) -> list[int]:
    children = [
        int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
    ]
    return [found for child in children for found in (child, *descendants(child))]


def test_a_box_ends_with_the_process_that_opened_it(tmp_path: Path):
    """Even if that process has no chance to close it."""
    script = tmp_path / "host.py"
    script.write_text(
        "import asyncio, os, signal\nfrom velodrome.sandbox import Sandboxes\n"
        "async def main():\n"
        "    boxes = Sandboxes(warm=1)\n"
        "    box = await boxes.open()\n"
        "    print('open', flush=True)\n"
        "    await box.run(['sleep', '1000'])\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        watched = [os.pidfd_open(pid) for pid in descendants(process.pid)]
        process.kill()
    assert len(watched) >= 2  # bubblewrap, and the supervisor in it
    for end in watched:
        assert select.select([end], [], [], DEADLINE_S)[0] == [end]
        os.close(end)


def test_a_warm_box_that_was_killed_is_not_given_out():
    async def act() -> object:
        boxes = Sandboxes(warm=1)
        await boxes.open()
        waiting = await boxes._ready[0]
        await waiting._link.close()
        box = await boxes.open({"a": "1"})
        seen = box is waiting, await box.files()
        await boxes.aclose()
        return seen

    assert asyncio.run(act()) == (False, ["a"])


def test_a_cancelled_opening_leaves_its_box_to_the_next():
    async def act() -> object:
        boxes = Sandboxes(warm=0)
        opening = asyncio.create_task(boxes.open())
        while not boxes._open and not opening.done():
            await asyncio.sleep(0)
            opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        box = await boxes.open()
        count = len(boxes._open)
        await boxes.aclose()
        return count, box.ended

    assert asyncio.run(act()) == (1, True)


DEEP = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\nopen('deep', 'w').close()"


def test_files_are_listed_whatever_a_program_made_of_the_scratch():
    async def act(box: Sandbox) -> object:
        await box.run(["python3", "-c", DEEP])
        await box.run(["python3", "-c", "import os\nopen(b'\\xff\\n', 'w').close(); os.mkdir('locked', 0)"])
        return await box.files(), await box.read("main.py")

    assert in_a_box(act, main_py="1") == (["main.py", "\udcff\n"], b"1")


def test_text_that_cannot_be_an_argument_is_an_exit_code():
    assert in_a_box(lambda box: box.run(["python3", "\ud800"])).exit_code == 127
    assert in_a_box(lambda box: box.run(["a\0b"])).exit_code == 127
    assert in_a_box(lambda box: box.run([])).exit_code == 127
