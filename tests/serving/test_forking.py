"""Components that start processes: a worker's end is seen at once, whatever its children hold."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import running

COMPONENT = """
import multiprocessing, os, time

from velodrome.errors import InputError
from velodrome.resources_servers.environment import Environment


def work(pids):
    with open(pids, "a") as file:
        file.write(f"{os.getpid()}\\n")
    while True:
        time.sleep(60)


def fork(pids, session):
    if os.fork() == 0:
        if session:
            os.setsid()
        work(pids)


class Forking(Environment):
    pids: str
    how: str

    def setup(self):
        os.mkfifo(self.pids)
        if self.how == "pool":
            self._pool = multiprocessing.get_context("fork").Pool(1)
            self._job = self._pool.apply_async(work, [self.pids])
        else:
            fork(self.pids, session=self.how == "setsid")
        if self.how == "raise":
            raise InputError("how: it cannot be so")
        with open(self.pids) as file:  # opens when the other process opens its end
            pid = file.read()
        os.remove(self.pids)
        with open(self.pids + ".all", "a") as file:
            file.write(pid)

    async def verify(self, task, response):
        return 1.0
"""


def forking(cwd: Path, how: str) -> running.Session:
    running.write_component(cwd, "resources_servers", "forking", COMPONENT)
    (cwd / "forking.yaml").write_text(
        f"forking: {{resources_servers: {{forking: {{how: {how}, pids: '{cwd / 'pids'}'}}}}}}\n"
    )
    return running.Session(cwd, "+config_paths=[forking.yaml]", "+health_timeout_s=3600", "+drain_s=2")


@contextlib.contextmanager
def ending(pids: Path) -> Iterator[None]:
    """What is in a session of its own outlives the servers; not the test."""
    try:
        yield
    finally:
        for pid in pids.read_text().split() if pids.exists() else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pool", "setsid"])
def test_a_worker_that_forked_is_restarted_when_it_is_killed_and_ends_when_the_run_is_stopped(tmp_path: Path, how: str):
    pids = tmp_path / "pids.all"
    with ending(pids), forking(tmp_path, how) as session:
        before = session.up().instances()["forking"]["pid"]
        os.kill(before, signal.SIGKILL)
        session.expect("forking: restarted")
        after = session.instances()["forking"]
        assert (after["pid"] != before, after["status"], after["last_exit"]) == (True, "ok", "signal SIGKILL")
        assert session.ends(signal.SIGINT) == 0
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind((after["host"], after["port"]))
        forked = [int(pid) for pid in pids.read_text().split()]
        assert len(forked) == 2
        if how == "pool":
            assert all(running.gone(pid) for pid in forked)


@pytest.mark.slow
def test_a_mistake_that_is_raised_after_a_fork_is_reported_as_one(tmp_path: Path):
    with forking(tmp_path, "raise") as session:
        assert session.ends() == 2
    assert "how: it cannot be so" in session.said
