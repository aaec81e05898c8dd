"""A server of a real program: a process in a session of its own, ended with all it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from programs import environment, surroundings

GRACE_S = 20  # between the two signals


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def serving(name: str, *arguments: str, port: int, ready: str, log: Path, **variables: str) -> Iterator[str]:
    """The address of `python ARGUMENTS` in a program's environment, once it answers on the path `ready`."""
    command = [str(environment(name)), *arguments]
    with surroundings(**variables) as env, log.open("wb") as output:
        process = subprocess.Popen(
            command, env=env, stdout=output, stderr=output, cwd=log.parent, start_new_session=True
        )
        yield from _while_it_runs(name, process, f"http://127.0.0.1:{port}", ready, log)


def _while_it_runs(name: str, process: subprocess.Popen[bytes], url: str, ready: str, log: Path) -> Iterator[str]:
    try:
        while not _answers(url + ready):
            assert process.poll() is None, f"{name} ended with {process.returncode}\n{log.read_text()[-4000:]}"
            time.sleep(0.2)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(process.pid, signal.SIGKILL)  # what the first signal left
        except ProcessLookupError:
            pass
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
