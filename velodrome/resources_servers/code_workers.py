"""Processes that run an environment's code, so that whatever the code does costs one call and nothing else.

A worker runs one call at a time. It is started before it is needed, used again, and replaced when it ends, when it
takes too long or too much memory, and after so many calls. Waiting for a free one is a span of its own, as is the wait
for a thread. Memory is the resident size, looked at from outside: a limit of the address space would refuse what
numpy, torch and others only reserve.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import pickle
import sys
import time
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, get_type_hints

from velodrome import scope
from velodrome.children import ChildProcess, spawn
from velodrome.errors import InputError, blame
from velodrome.resources_servers.code_worker import TARGET, WorkerAnswer, WorkerCopy, memory_mb
from velodrome.threads import WORTH_RECORDING_S, NoAnswer
from velodrome.timing import spans

_LOOK_S = 0.1  # how often time and memory are looked at; meanwhile a process may take a few hundred MB more
_START_S = 120.0
_CLOSING_S = 1.0


class WorkerEnded(Exception):
    """The process could not be started, ended before it answered, or was ended because of its memory."""

    def __init__(self, message: str, place: str | None = None) -> None:
        super().__init__(message)
        self.place = place


class _CodeWorker:
    __slots__ = ("calls", "child", "deadline", "fault", "timeout_s")

    def __init__(self, child: ChildProcess) -> None:
        self.child = child
        self.calls = 0
        self.deadline = self.timeout_s = 0.0
        self.fault: Exception | None = None

    def fail(self, fault: Exception) -> None:
        """End it; whoever waits for its answer gets the fault."""
        self.fault = fault
        self.child.kill()

    def ended(self) -> Exception:
        """Why there is no answer."""
        ending = self.child.ending or "killed"
        hint = " (out of memory?)" if ending == "signal SIGKILL" else ""
        return self.fault or WorkerEnded(f"its process ended with {ending}{hint}")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_copy(owner: type, settings: Mapping[str, Any]) -> WorkerCopy:
    """What a worker makes its environment from. What cannot be sent is an InputError that names it."""
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
    """Types in the place of hints that are texts: a class that goes by value does not take along what they name."""
    classes = [each for each in owner.__mro__ if each.__module__ == owner.__module__]
    holders: list[Any] = [value for each in classes for value in vars(each).values() if inspect.isfunction(value)]
    before = [(holder, dict(inspect.get_annotations(holder))) for holder in (*holders, *classes)]
    try:
        for holder, hints in before:
            with contextlib.suppress(NameError, TypeError, AttributeError, SyntaxError):
                resolved = get_type_hints(holder, include_extras=True)
                holder.__annotations__.update({name: resolved[name] for name in hints})
        yield
    finally:
        for holder, hints in before:
            holder.__annotations__.update(hints)


class CodeWorkers:
    """Up to `size` workers with a copy of one environment each, on one event loop."""

    def __init__(self, copy: WorkerCopy, size: int, most_memory_mb: int, most_calls: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._init = pickle.dumps(copy)
        self._size = size
        self._most_memory_mb = most_memory_mb
        self._most_calls = most_calls
        self._workers: set[_CodeWorker] = set()
        self._idle: list[_CodeWorker] = []
        self._busy: set[_CodeWorker] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._new: set[ChildProcess] = set()  # of those that start
        self._closing: set[asyncio.Task[None]] = set()
        self._waiting: deque[asyncio.Future[_CodeWorker]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = False

    async def ask(self, method: str, arguments: tuple[Any, ...], timeout_s: float) -> Any:
        """The result of a method of the environment. The clock starts when a worker is free."""
        request = pickle.dumps((method, arguments))
        queued = time.perf_counter()
        worker = await self._take()
        worker.timeout_s, began = timeout_s, time.perf_counter()
        worker.deadline = began + timeout_s
        if began - queued >= WORTH_RECORDING_S:
            spans.record("limit:workers", queued, began, {"worker_processes": self._size})
        self._busy.add(worker)
        self._watch()
        answer: WorkerAnswer | None = None
        try:
            worker.child.send(request)
            data = await worker.child.receive()
            answer = None if data is None else pickle.loads(data)
        finally:
            self._busy.discard(worker)
            self._give_back(worker, answer)
        if answer is None:
            raise worker.ended()
        if answer.cpu_us >= WORTH_RECORDING_S * 1e6:
            spans.tally("worker_cpu_us", answer.cpu_us)
        return answer.value()

    def warm(self) -> None:
        """Start one more worker, as far as the size allows, for the calls of a rollout that begins."""
        self._open()
        if self._count < self._size and not self._idle:
            self._start()

    async def aclose(self) -> None:
        """End the idle workers; those in use end with the calls that use them. A later call starts new ones."""
        self._is_open = False
        while self._idle:
            self._retire(self._idle.pop())
        for child in () if self._waiting else self._new:
            child.kill()
        while ending := (*self._starting, *self._closing):
            await asyncio.gather(*ending, return_exceptions=True)

    @property
    def _count(self) -> int:
        return len(self._workers) + len(self._starting)

    def _open(self) -> None:
        self._is_open = True
        call_scope = scope.current()
        if call_scope is not None:
            call_scope.get(self, lambda: self)  # a call of the API leaves no process behind

    async def _take(self) -> _CodeWorker:
        self._open()
        while self._idle:
            worker = self._idle.pop()
            if worker.child.running:
                return worker
            self._retire(worker)
        if self._count < self._size:
            self._start()
        future: asyncio.Future[_CodeWorker] = self.loop.create_future()
        self._waiting.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._offer(future.result())
            raise

    def _offer(self, worker: _CodeWorker) -> None:
        """To the first that waits for one; else it is idle, or ends if all were closed meanwhile."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(worker)
                return
        if self._is_open:
            self._idle.append(worker)
        else:
            self._retire(worker)

    def _start(self) -> None:
        self._run(self._make(), self._starting)

    async def _make(self) -> None:
        try:
            child = await spawn(TARGET, self._init)
        except OSError as error:
            self._refuse(WorkerEnded(f"its process cannot be started: {error}"))
            return
        self._new.add(child)
        if not self._is_open:
            child.kill()
        try:
            async with asyncio.timeout(_START_S):
                fault = self._start_fault(child, await child.receive())
        except TimeoutError:
            fault = WorkerEnded(f"its process cannot be started: not ready after {_START_S:g} s")
        finally:
            self._new.discard(child)
        if fault is not None:
            await child.close(0)
            self._refuse(fault)
            return
        worker = _CodeWorker(child)
        self._workers.add(worker)
        self._offer(worker)

    def _refuse(self, fault: WorkerEnded) -> None:
        """There is no worker for those that wait. The next call tries again."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(fault)

    def _start_fault(self, child: ChildProcess, data: bytes | None) -> WorkerEnded | None:
        if data is None:
            return WorkerEnded(f"its process ended with {child.ending} before the first call")
        answer: WorkerAnswer = pickle.loads(data)
        if answer.message:
            return WorkerEnded(f"its process cannot be started: {answer.message}", answer.place)
        if answer.memory_mb > self._most_memory_mb:
            needs = f"its process needs {answer.memory_mb:.0f} MB before the first call"
            return WorkerEnded(f"{needs}; raise worker_memory_mb, which is {self._most_memory_mb}")
        return None

    def _give_back(self, worker: _CodeWorker, answer: WorkerAnswer | None) -> None:
        """Use it again, or replace it at once."""
        worker.calls += 1
        if answer is None:
            worker.child.kill()
        elif worker.calls < self._most_calls and answer.memory_mb <= self._most_memory_mb and self._is_open:
            self._offer(worker)
            return
        self._retire(worker)
        if self._is_open:
            self._start()

    def _retire(self, worker: _CodeWorker) -> None:
        self._workers.discard(worker)
        self._run(worker.child.close(_CLOSING_S), self._closing)

    def _run(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = self.loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """End what takes too long or too much."""
        self._timer = None
        now = time.perf_counter()
        for worker in self._busy:
            if worker.fault is not None:
                continue
            if now >= worker.deadline:
                worker.fail(NoAnswer(worker.timeout_s))
            elif (used_mb := memory_mb(worker.child.pid)) > self._most_memory_mb:
                took = f"its process took {used_mb:.0f} MB of memory"
                worker.fail(WorkerEnded(f"{took}; worker_memory_mb is {self._most_memory_mb}"))
        if self._busy:
            self._watch()
