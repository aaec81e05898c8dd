"""What the children of test_children.py run."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import subprocess
import sys
import threading

from velodrome.children import ParentChannel, read_frame, write_frame


def echo(channel: ParentChannel) -> None:
    while (data := channel.receive()) is not None:
        channel.send(data)


def echo_on_a_loop(channel: ParentChannel) -> None:
    async def serve() -> None:
        reader, writer = await asyncio.open_unix_connection(sock=channel.socket)
        while (data := await read_frame(reader)) is not None:
            write_frame(writer, data)
            await writer.drain()
        writer.close()

    asyncio.run(serve())


def end(channel: ParentChannel) -> None:
    """Send a frame, then end as the init says."""
    way = channel.receive()
    channel.send(b"last words")
    if way == b"segfault":
        ctypes.string_at(0)
    elif way == b"exit":
        os._exit(3)
    elif way == b"raise":
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - its traceback is not part of the test's output
        raise RuntimeError("no")


def ignore_all(channel: ParentChannel) -> None:
    """Say that it is there, and read nothing more."""
    channel.receive()
    channel.send(b"here")
    threading.Event().wait()


def spin(channel: ParentChannel) -> None:
    """Start a process that holds the file of the init open, then hold the interpreter's lock."""
    held = os.open(channel.receive() or os.devnull, os.O_WRONLY)
    subprocess.Popen(["sleep", "1000000"], stdin=held)
    channel.send(b"spinning")
    re.match(r"(a+)+b", "a" * 100)


def fork(channel: ParentChannel) -> None:
    """Leave a forked process behind, in a session of its own."""
    channel.receive()
    child = os.fork()
    if child == 0:
        os.setsid()
        threading.Event().wait()
    channel.send(str(child).encode())


def show_path(channel: ParentChannel) -> None:
    channel.receive()
    channel.send("\n".join([*sys.argv, *sys.path]).encode())
