"""Environments in worker processes that write their rows into memory shared by all.

A worker steps its share, one environment after another, so the results are those of one process. The memory has no
name and workers end with their parent: nothing is left behind, however a process ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velodrome.children import ParentChannel, child_command, how_ended
from velodrome.errors import InputError, TrainError
from velodrome.forks import close_alone, keep_alone
from velodrome.training.envs.env_arrays import Allocate, allocate_arrays
from velodrome.training.envs.gymnasium_members import EnvPlan, Members
from velodrome.training.envs.interface import Array, Spec
from velodrome.training.settings import EnvSettings

_TARGET = "velodrome.training.envs.worker_pool:serve"
_ALIGNED = 64  # bytes: a cache line
_GRACE_S = 5.0  # for environments to close
_STEP = b""  # a request; others are pickled
_FAILED = b"!"  # starts the answer of a request that was not fulfilled; what follows is why


class WorkerPool:
    """Starts the workers, and makes them step together."""

    def __init__(self, settings: EnvSettings, spec: Spec, plan: EnvPlan) -> None:
        self._where = f"env.name={settings.name}"
        self._shares = [
            share.tolist() for share in np.array_split(range(spec.num_envs), settings.workers) if len(share)
        ]
        self._workers: list[_EnvWorker] = []
        plain = EnvSettings.model_validate(settings.model_dump(include=set(EnvSettings.model_fields)))
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            with _new_memory(spec) as memory:
                self.arrays = allocate_arrays(spec, _arrays_in(mmap.mmap(memory, 0)))
                for share in self._shares:
                    self._workers.append(_EnvWorker(memory, (plain, spec, plan, share)))
            self._answers()
            undo.pop_all()

    def reset(self, seeds: list[int]) -> None:
        self._ask([pickle.dumps(("reset", [seeds[e] for e in share])) for share in self._shares])

    def step(self) -> None:
        self._ask([_STEP] * len(self._workers))

    def picture(self, env: int) -> NDArray[np.uint8] | None:
        k = next(k for k, share in enumerate(self._shares) if env in share)
        self._workers[k].send(pickle.dumps(("picture", env - self._shares[k][0])))
        picture: NDArray[np.uint8] | None = pickle.loads(self._answer(k))
        return picture

    def _ask(self, requests: list[bytes]) -> None:
        for worker, request in zip(self._workers, requests, strict=True):
            worker.send(request)
        self._answers()

    def _answers(self) -> None:
        for k in range(len(self._workers)):
            self._answer(k)

    def _answer(self, k: int) -> bytes:
        """What a worker answered. It names the environment if that failed, or if the process is gone."""
        answer = self._workers[k].receive()
        if answer is None:
            envs, ending = self._shares[k], how_ended(self._workers[k].wait(_GRACE_S))
            whose = f"worker {k + 1} of {len(self._workers)}, with environments {envs[0]} to {envs[-1]}"
            raise TrainError(f"{self._where}: {whose}, ended: {ending}; the last checkpoint is good")
        if answer.startswith(_FAILED):
            raise InputError(*answer[len(_FAILED) :].decode().splitlines())
        return answer

    def close(self) -> None:
        """End all workers at once, those that do not end by force."""
        for worker in self._workers:
            worker.hang_up()
        for worker in self._workers:
            worker.wait(_GRACE_S)
        self._workers = []


class _EnvWorker:
    """A worker process, seen from its parent."""

    def __init__(self, memory: int, init: tuple[Any, ...]) -> None:
        lifeline, self._lifeline = os.pipe()
        keep_alone(self._lifeline)
        mine, theirs = socket.socketpair()
        fds = (theirs.fileno(), lifeline, memory)
        try:
            self._process = subprocess.Popen(
                child_command(_TARGET, theirs.fileno(), lifeline),
                stdin=subprocess.DEVNULL,
                stdout=2,  # what an environment prints is no result
                pass_fds=fds,
                start_new_session=True,
            )
        except BaseException:
            mine.close()
            close_alone(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        self._channel = ParentChannel(mine)
        self.send(pickle.dumps((memory, *init)))

    def send(self, request: bytes) -> None:
        with contextlib.suppress(OSError):  # it is gone, which `receive` reports
            self._channel.send(request)

    def receive(self) -> bytes | None:
        try:
            return self._channel.receive()
        except ConnectionError:
            return None

    def hang_up(self) -> None:
        """Its next request is the end of requests."""
        with contextlib.suppress(OSError):  # it is gone
            self._channel.socket.shutdown(socket.SHUT_RDWR)  # also if a forked process has it open
        self._channel.socket.close()

    def wait(self, grace_s: float) -> int:
        """Its return code; after `grace_s` it is killed."""
        try:
            return self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            if self._lifeline >= 0:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)  # what it may have started
                close_alone(self._lifeline)
                self._lifeline = -1


def _arrays_in(memory: mmap.mmap) -> Allocate:
    """Places arrays in one memory, one after another."""
    start = 0

    def allocate(shape: tuple[int, ...], dtype: str) -> Array:
        nonlocal start
        array: Array = np.ndarray(shape, dtype, memory, start)
        start += -(-array.nbytes // _ALIGNED) * _ALIGNED
        return array

    return allocate


@contextlib.contextmanager
def _new_memory(spec: Spec) -> Iterator[int]:
    """The number of a file without a name that has room for the arrays."""
    with contextlib.ExitStack() as undo:
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("velodrome")
            undo.callback(os.close, fd)
        else:
            fd = undo.enter_context(tempfile.TemporaryFile()).fileno()
        os.ftruncate(fd, sum(array.nbytes + _ALIGNED for array in allocate_arrays(spec, np.empty)))
        yield fd


def serve(channel: ParentChannel) -> None:
    """What a worker runs: the environments of its share, until no request comes."""
    memory, settings, spec, plan, share = pickle.loads(channel.receive() or b"")
    arrays = allocate_arrays(spec, _arrays_in(mmap.mmap(memory, 0)))
    os.close(memory)
    runner: Members | None = None
    try:
        runner = Members(settings, plan, arrays.rows(share[0], share[-1] + 1))
        answer = b""
    except InputError as error:
        answer = _FAILED + str(error).encode()
    with contextlib.suppress(ConnectionError):  # its parent has not waited for the last answer
        channel.send(answer)
        while runner is not None and (request := channel.receive()) is not None:
            try:
                channel.send(_fulfilled(runner, request))
            except InputError as error:
                channel.send(_FAILED + str(error).encode())
    if runner is not None:
        runner.close()


def _fulfilled(runner: Members, request: bytes) -> bytes:
    if request == _STEP:
        runner.step()
        return b""
    what, argument = pickle.loads(request)
    if what == "picture":
        return pickle.dumps(runner.picture(argument))
    runner.reset(argument)
    return b""
