"""A box whose supervisor has been taken over: whatever it says, the host gets bounded bytes or the end of the box."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from typing import Any

import pytest

from velodrome.environments.sandbox.box import Sandbox
from velodrome.environments.sandbox.inside import DONE, LINES, REPLY
from velodrome.environments.sandbox.link import Limits, Link, Start, Started
from velodrome.errors import SandboxEnded

pytestmark = pytest.mark.slow
HELLO = REPLY.pack(0, DONE, 0, 0, 0.0, 0.0, 0, 0)
NAN = float("nan")


def forged(said: bytes, *, once: bool) -> Start:
    """Starts a process that is no supervisor: it greets, waits for a request, then says this, once or for ever."""
    loop = "" if once else "while True: "
    code = (
        "import os, time\n"
        "def take(size):\n"
        "    data = b''\n"
        "    while len(data) < size: data += os.read(0, size - len(data))\n"
        "    return data\n"
        "def request(): take(int.from_bytes(take(4), 'little'))\n"
        f"request(); request(); os.write(0, {HELLO!r}); request()\n{loop}os.write(0, {said!r})\ntime.sleep(1000)"
    )

    def start(_: str, theirs: socket.socket, disk_mb: int) -> Started:
        return Started(subprocess.Popen([sys.executable, "-c", code], stdin=theirs.fileno()), {})

    return start


def replies(said: bytes, *, once: bool = True, talk: bool = False) -> Any:
    async def act() -> Any:
        link = await Link.open(forged(said, once=once), 1)
        box = Sandbox(link, Limits(output_bytes=1000, wall_s=100), lambda box: None)
        try:
            if talk:
                return await (await box.start(["x"])).ask(b"x", timeout_s=100)
            return await box.run(["x"])
        finally:
            link.started.process.kill()
            await box.close()

    return asyncio.run(act())


def test_a_reply_that_fits_is_taken_and_numbers_that_make_no_sense_are_replaced():
    ran = replies(REPLY.pack(1, DONE, 3, 0, 1.0, 0.5, 2, 1) + b"abc")
    assert (ran.stdout, ran.stderr, ran.exit_code, ran.wall_s, ran.cpu_s) == ("ab", "c", 3, 1.0, 0.5)
    ran = replies(REPLY.pack(1, DONE, 0, 200, NAN, -1.0, 0, 0))
    assert (ran.stopped, ran.wall_s, ran.cpu_s) == ("ended", 0.0, 0.0)


FORGED = {
    "larger than what was asked for": REPLY.pack(1, DONE, 0, 0, 0.0, 0.0, 0xFFFFFFFF, 0xFFFFFFFF),
    "to a request that was not made": REPLY.pack(7, DONE, 0, 0, 0.0, 0.0, 0, 0),
    "lines of a program that is not talked to": REPLY.pack(1, LINES, 0, 0, 0.0, 0.0, 1, 0) + b"x",
    "noise": b"\xff" * 1000,
}


@pytest.mark.parametrize("said", FORGED.values(), ids=FORGED)
def test_a_reply_that_cannot_be_ends_the_box(said: bytes):
    assert replies(said).stopped == "ended"


def test_endless_lines_end_the_box():
    with pytest.raises(SandboxEnded):
        replies(REPLY.pack(1, LINES, 0, 0, 0.0, 0.0, 100, 0) + b"x" * 100, once=False, talk=True)
