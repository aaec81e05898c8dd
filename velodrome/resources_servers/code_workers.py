"""Processes that run an environment's code, so that a crash or a hang costs one call.

A worker runs one call at a time. It is started early, reused, and replaced when it ends, when it takes too long or too
much memory, and after `most_calls` calls. Waiting for a free worker is a separate span, like waiting for a thread.
Memory is the resident size, measured from outside: a limit of the address space would also count memory that numpy,
torch and others reserve but do not use.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import pickle
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from velodrome import scope
from velodrome.children import Child, spawn
from velodrome.errors import InputError, blame
from velodrome.resources_servers.code_worker import TARGET, WorkerAnswer, WorkerCopy, cpu_s, memory_mb
from velodrome.threads import WORTH_RECORDING_S, NoAnswer
from velodrome.timing import elsewhere, spans

_LOOK_S = 0.1  # how often time and memory are checked; in between, a process may take a few hundred MB more
_START_S = 120.0
_CLOSING_S = 1.0


class WorkerEnded(Exception):
    """The process could not be started, ended before it answered, or was killed because of its memory."""

    def __init__(self, message: str, place: str | None = None) -> None:
        super().__init__(message)
        self.place = place


class _CodeWorker:
    """A process with a copy of the environment, and the number of calls it has answered."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.calls = 0
        self.charged_s = cpu_s(child.pid)  # the CPU time of its start and of its answered calls

    async def ask(self, request: bytes, timeout_s: float, most_memory_mb: int) -> WorkerAnswer:
        """Run one call. Raises `NoAnswer` or `WorkerEnded` if it takes too much time or memory."""
        self.child.send(request)
        receiving, until = asyncio.ensure_future(self.child.receive()), time.perf_counter() + timeout_s
        try:
            while not (await asyncio.wait({receiving}, timeout=min(_LOOK_S, until - time.perf_counter())))[0]:
                if time.perf_counter() >= until:
                    raise NoAnswer(timeout_s)
                if (used_mb := memory_mb(self.child.pid)) > most_memory_mb:
                    excess = f"its process took {used_mb:.0f} MB of memory"
                    raise WorkerEnded(f"{excess}; worker_memory_mb is {most_memory_mb}")
        finally:
            receiving.cancel()
        data = receiving.result()
        if data is None:
            hint = " (out of memory?)" if self.child.ending == "signal SIGKILL" else ""
            raise WorkerEnded(f"its process ended with {self.child.ending}{hint}")
        answer: WorkerAnswer = pickle.loads(data)
        return answer


def make_copy(owner: type, settings: Mapping[str, Any]) -> WorkerCopy:
    """The recipe from which a worker creates its environment. An `InputError` names what cannot be pickled."""
    import cloudpickle

    module = sys.modules.get(owner.__module__)
    file = None if owner.__module__ == "__main__" else getattr(module, "__file__", None)
    for name, value in settings.items():
        with blame(InputError, f"{owner.__name__}.{name} cannot be sent to another process (executor: process)"):
            cloudpickle.dumps(value)
    try:
        inspect.signature(owner).bind(**settings)
    except TypeError as error:
        raise InputError(
            f"{owner.__name__}: executor: process makes copies from its settings, which its __init__ does not take"
            f" ({error}); hint: declare settings as attributes, prepare in setup()"
        ) from error
    by_value = file is None or "<locals>" in owner.__qualname__
    hints = _resolved_hints(owner) if by_value else contextlib.nullcontext()
    with blame(InputError, f"{owner.__name__} cannot be sent to another process (executor: process)"), hints:
        return WorkerCopy(cloudpickle.dumps((owner, dict(settings))), owner.__module__, file)


@contextlib.contextmanager
def _resolved_hints(owner: type) -> Iterator[None]:
    """Replace type hints that are strings by types: a class pickled by value leaves out the names they refer to."""
    classes = [each for each in owner.__mro__ if each.__module__ == owner.__module__]
    functions: list[Any] = [value for each in classes for value in vars(each).values() if inspect.isfunction(value)]
    original_hints = [(annotated, dict(inspect.get_annotations(annotated))) for annotated in (*functions, *classes)]
    try:
        for annotated, hints in original_hints:
            with contextlib.suppress(NameError, TypeError, AttributeError, SyntaxError):
                resolved = get_type_hints(annotated, include_extras=True)
                annotated.__annotations__.update({name: resolved[name] for name in hints})
        yield
    finally:
        for annotated, hints in original_hints:
            annotated.__annotations__.update(hints)


class CodeWorkers:
    """Up to `size` workers, each with a copy of one environment. Every event loop has its own workers."""

    def __init__(self, copy: WorkerCopy, size: int, most_memory_mb: int, most_calls: int) -> None:
        self._init = pickle.dumps(copy)
        self._size = size
        self._most_memory_mb = most_memory_mb
        self._most_calls = most_calls
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[asyncio.Future[_CodeWorker]] = []  # some are being started
        self._closing: set[asyncio.Task[None]] = set()
        self._is_open = False

    async def ask(self, method: str, arguments: tuple[Any, ...], timeout_s: float) -> Any:
        """Call a method of the environment. The time limit starts when a worker is free."""
        request = pickle.dumps((method, arguments))
        queued = time.perf_counter()
        self._open()
        async with self._places:
            self._busy += 1
            try:
                worker = await self._free_worker()
                began = time.perf_counter()
                if began - queued >= WORTH_RECORDING_S:
                    spans.record("limit:workers", queued, began, {"worker_processes": self._size})
                answer = await self._ask_worker(worker, request, timeout_s)
            finally:
                self._busy -= 1
        elsewhere.charge(answer.cpu_us / 1e6)
        if answer.cpu_us >= WORTH_RECORDING_S * 1e6:
            spans.tally("worker_cpu_us", answer.cpu_us)
        return answer.value()

    async def _ask_worker(self, worker: _CodeWorker, request: bytes, timeout_s: float) -> WorkerAnswer:
        """The answer of a worker, which then becomes idle again, or is replaced."""
        is_reusable = False
        try:
            answer = await worker.ask(request, timeout_s, self._most_memory_mb)
            worker.calls += 1
            worker.charged_s += answer.cpu_us / 1e6
            is_reusable = answer.memory_mb <= self._most_memory_mb and worker.calls < self._most_calls
            return answer
        except BaseException:  # also if cancelled
            elsewhere.charge(max(0.0, cpu_s(worker.child.pid) - worker.charged_s))
            worker.child.kill()
            raise
        finally:
            if is_reusable and self._is_open:
                self._idle.append(asyncio.get_running_loop().create_future())
                self._idle[-1].set_result(worker)
            else:
                self._retire(worker)
                if self._is_open:
                    self._idle.append(asyncio.get_running_loop().create_task(self._start()))

    def warm(self) -> None:
        """Start a worker for a new rollout if none is idle and the size allows it."""
        self._open()
        if not self._idle and self._busy < self._size:
            self._idle.append(asyncio.get_running_loop().create_task(self._start()))

    async def aclose(self) -> None:
        """End the idle workers; busy workers end after their calls. A later call starts new ones."""
        self._is_open = False
        if self._loop is not asyncio.get_running_loop():
            return
        idle, self._idle = self._idle, []
        for starting in idle:
            if not starting.cancel() and starting.exception() is None:
                self._retire(starting.result())
        await asyncio.gather(*idle, *self._closing, return_exceptions=True)

    def _open(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._places = asyncio.Semaphore(self._size)
            self._busy, self._idle, self._closing = 0, [], set()
        self._is_open = True
        call_scope = scope.current()
        if call_scope is not None:
            call_scope.get(self, lambda: self)  # a call of the API leaves no process behind

    async def _free_worker(self) -> _CodeWorker:
        """Take an idle worker that still runs, or start one."""
        while True:
            starting = self._idle.pop() if self._idle else asyncio.get_running_loop().create_task(self._start())
            try:
                worker = await asyncio.shield(starting)
            except asyncio.CancelledError:
                if self._is_open:
                    self._idle.append(starting)
                else:
                    starting.cancel()
                raise
            if worker.child.running:
                return worker
            self._retire(worker)

    async def _start(self) -> _CodeWorker:
        try:
            child = await spawn(TARGET, self._init)
        except OSError as error:
            raise WorkerEnded(f"its process cannot be started: {error}") from error
        try:
            async with asyncio.timeout(_START_S):
                self._check_start(child, await child.receive())
        except TimeoutError:
            await child.close(0)
            raise WorkerEnded(f"its process cannot be started: not ready after {_START_S:g} s") from None
        except BaseException:  # also if cancelled
            await child.close(0)
            raise
        return _CodeWorker(child)

    def _check_start(self, child: Child, data: bytes | None) -> None:
        if data is None:
            raise WorkerEnded(f"its process ended with {child.ending} before the first call")
        answer: WorkerAnswer = pickle.loads(data)
        if answer.message:
            raise WorkerEnded(f"its process cannot be started: {answer.message}", answer.place)
        if answer.memory_mb > self._most_memory_mb:
            needs = f"its process needs {answer.memory_mb:.0f} MB before the first call"
            raise WorkerEnded(f"{needs}; raise worker_memory_mb, which is {self._most_memory_mb}")

    def _retire(self, worker: _CodeWorker) -> None:
        task = asyncio.get_running_loop().create_task(worker.child.close(_CLOSING_S))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
