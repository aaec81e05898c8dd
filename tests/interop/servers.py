"""Servers of real programs: each a process in a session of its own, ended with all it started."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.interop.programs import environment, inherited, process_group, surroundings

GRACE_S = 20  # between the two signals


@contextmanager
def serving(name: str, *arguments: str, port: int, ready: str, log: Path, **variables: str) -> Iterator[str]:
    """The address of `python ARGUMENTS` in a program's environment, once it answers on the path `ready`."""
    url = f"http://127.0.0.1:{port}"
    with (
        surroundings(**variables) as env,
        log.open("w") as output,
        process_group([str(environment(name)), *arguments], log.parent, env, stdout=output, stderr=output) as process,
    ):
        while not _answers(url + ready):
            assert process.poll() is None, f"{name} ended with {process.returncode}\n{log.read_text()[-4000:]}"
            time.sleep(0.2)
        try:
            yield url
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


@contextmanager
def gym_servers(folder: Path, servers: dict[str, dict[str, Any]]) -> Iterator[dict[str, str]]:
    """The addresses of servers of nemo-gym by name, and of the `head_server` that lists them."""
    script = Path(__file__).with_name("nemo_gym_servers.py")
    command = [str(environment("nemo_gym")), str(script), json.dumps(servers)]
    with (
        (folder / "servers.log").open("w") as log,
        process_group(command, folder, inherited(), stdin=subprocess.PIPE, stderr=log) as process,
    ):
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, (folder / "servers.log").read_text()
        yield json.loads(first)
