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
import sys
import tempfile
from importlib.machinery import PathFinder
from itertools import pairwise
from typing import IO, Any

import cloudpickle
import gymnasium
import numpy as np

from velodrome.children import ParentChannel, child_command, how_ended
from velodrome.errors import InputError, TrainError
from velodrome.forks import close_alone, keep_alone
from velodrome.training.envs.gymnasium_members import Members, registered
from velodrome.training.envs.interface import Allocate, Array, Spec, allocate_arrays
from velodrome.training.envs.spaces import MaskSource
from velodrome.training.settings import EnvSettings

_TARGET = "velodrome.training.envs.worker_pool:serve"
_ALIGNED = 64  # bytes: a cache line
_GRACE_S = 5.0  # for environments to close
_FAILED = b"!"  # starts the answer of a request that was not fulfilled; what follows is why


class WorkerPool:
    """Starts the workers, and makes them step together. A request is the seeds of a reset, or nothing for a step."""

    def __init__(self, settings: EnvSettings, spec: Spec, mask: MaskSource | None) -> None:
        self._where = f"env.name={settings.name}"
        size, workers = spec.num_envs, min(settings.workers, spec.num_envs)
        ends = [size * k // workers for k in range(workers + 1)]
        self._shares = [slice(*pair) for pair in pairwise(ends)]
        self._workers: list[_EnvWorker] = []
        plain = EnvSettings.model_validate(settings.model_dump(include=set(EnvSettings.model_fields)))
        entry = _portable(settings)
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            with _nameless_file() as memory:
                memory.truncate(sum(array.nbytes + _ALIGNED for array in allocate_arrays(spec)))
                self.arrays = allocate_arrays(spec, _arrays_in(mmap.mmap(memory.fileno(), 0)))
                for share in self._shares:
                    self._workers.append(_EnvWorker(memory.fileno(), (plain, spec, mask, entry, share)))
            self._answers()
            undo.pop_all()

    def reset(self, seeds: list[int]) -> None:
        self._ask([pickle.dumps(seeds[share]) for share in self._shares])

    def step(self) -> None:
        self._ask([b""] * len(self._workers))

    def _ask(self, requests: list[bytes]) -> None:
        for worker, request in zip(self._workers, requests, strict=True):
            with contextlib.suppress(OSError):  # it is gone, which its answer reports
                worker.channel.send(request)
        self._answers()

    def _answers(self) -> None:
        """Wait for all. The error names the environment that failed, or the worker that is gone."""
        for k, (worker, share) in enumerate(zip(self._workers, self._shares, strict=True), 1):
            answer = None
            with contextlib.suppress(ConnectionError):
                answer = worker.channel.receive()
            if answer is None:
                whose = f"worker {k} of {len(self._workers)}, with environments {share.start} to {share.stop - 1}"
                ending = how_ended(worker.wait(_GRACE_S))
                raise TrainError(f"{self._where}: {whose}, ended: {ending}; the last checkpoint is good")
            if answer.startswith(_FAILED):
                raise InputError(*answer[len(_FAILED) :].decode().splitlines())

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
        self.channel = ParentChannel(mine)
        try:
            self._process = subprocess.Popen(
                child_command(_TARGET, theirs.fileno(), lifeline),
                stdin=subprocess.DEVNULL,
                stdout=2,  # what an environment prints is no result
                pass_fds=(theirs.fileno(), lifeline, memory),
                start_new_session=True,
            )
        except BaseException:
            mine.close()
            close_alone(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        with contextlib.suppress(OSError):  # it is gone, which its answer reports
            self.channel.send(pickle.dumps((memory, *init)))

    def hang_up(self) -> None:
        """Its next request is the end of requests."""
        with contextlib.suppress(OSError):  # it is gone
            self.channel.socket.shutdown(socket.SHUT_RDWR)  # also if a forked process has it open
        self.channel.socket.close()

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


def _portable(settings: EnvSettings) -> bytes:
    """Gymnasium's entry of an id, pickled: a recipe's own file, or a notebook, may have made it."""
    entry = gymnasium.spec(registered(settings))
    module = sys.modules.get(getattr(entry.entry_point, "__module__", ""))
    alone = module is not None and PathFinder.find_spec(module.__name__.partition(".")[0]) is None
    try:
        if alone:  # a worker cannot import it, so its code is sent
            cloudpickle.register_pickle_by_value(module)
        return bytes(cloudpickle.dumps(entry))
    except (TypeError, pickle.PicklingError) as error:
        way = "register it in a module, and name it gymnasium:<module>:<id>"
        raise InputError(
            f"env.workers={settings.workers}: {entry.id} cannot be sent to workers ({error}); {way}"
        ) from error
    finally:
        if alone:
            cloudpickle.unregister_pickle_by_value(module)


def _arrays_in(memory: mmap.mmap) -> Allocate:
    """Places arrays in one memory, one after another."""
    start = 0

    def allocate(shape: tuple[int, ...], dtype: str) -> Array:
        nonlocal start
        array: Array = np.ndarray(shape, dtype, memory, start)
        start += -(-array.nbytes // _ALIGNED) * _ALIGNED
        return array

    return allocate


def _nameless_file() -> IO[bytes]:
    return os.fdopen(os.memfd_create("velodrome"), "rb+") if hasattr(os, "memfd_create") else tempfile.TemporaryFile()


def serve(channel: ParentChannel) -> None:
    """What a worker runs: the environments of its share, until no request comes."""
    memory, settings, spec, mask, entry, share = pickle.loads(channel.receive() or b"")
    arrays = allocate_arrays(spec, _arrays_in(mmap.mmap(memory, 0)))
    os.close(memory)
    own = pickle.loads(entry)
    gymnasium.registry.setdefault(own.id, own)
    try:
        runner = Members(settings, mask, arrays.rows(share.start, share.stop))
    except InputError as error:
        channel.send(_FAILED + str(error).encode())
        return
    with contextlib.closing(runner), contextlib.suppress(ConnectionError):  # its parent has not waited for an answer
        channel.send(b"")
        while (request := channel.receive()) is not None:
            channel.send(_answer(runner, request))


def _answer(runner: Members, request: bytes) -> bytes:
    try:
        if request:
            runner.reset(pickle.loads(request))
        else:
            runner.step()
        return b""
    except InputError as error:
        return _FAILED + str(error).encode()
