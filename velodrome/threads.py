"""Runs synchronous code beside the event loop, in daemon threads that nothing waits for.

The code can never stop the loop. A call that hangs costs a thread, not the process; its exception, even `SystemExit`,
is raised in its caller. The time limit of a call starts with its code, so a full pool is not mistaken for a slow
function.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any
from weakref import WeakSet

from velodrome import scope
from velodrome.errors import describe
from velodrome.timing import spans

_CLOSING_S = 1.0
WORTH_RECORDING_S = 100e-6  # shorter times are not visible in a profile, and each span costs time


class NoAnswer(Exception):
    """The code did not return within its time limit."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"no answer within {timeout_s:g} s")


class Escaped(Exception):
    """The code raised an exception that would end a process or a loop, such as `SystemExit` or a stray cancellation."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(describe(error))
        self.__cause__ = error  # with the line that raised


class Exhausted(Exception):
    """Too many calls hang, so no further call can start."""


def _safe_for_loop(error: BaseException) -> Exception:
    """Wrap exceptions that a future refuses (`StopIteration`) or that would stop the loop."""
    return error if isinstance(error, Exception) and not isinstance(error, StopIteration) else Escaped(error)


class _Mailbox:
    """Finished calls for one event loop. The loop is woken once for all waiting calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waiting: deque[_Call] = deque()
        self.woken = False
        self.open = 0
        self.shortest_s = float("inf")
        self.timer: asyncio.TimerHandle | None = None

    def post(self, call: _Call) -> None:
        self.waiting.append(call)
        if not self.woken:
            self.woken = True
            try:
                self.loop.call_soon_threadsafe(self.deliver)
            except RuntimeError:  # the loop is closed, so nothing awaits the call
                pass

    def deliver(self) -> None:
        self.woken = False  # before reading: a later call wakes the loop again
        while self.waiting:
            call = self.waiting.popleft()
            self.open -= not call.abandoned
            if call.future.done():
                if call.late is not None and call.error is None:
                    call.late(call.result)
            elif call.error is None:
                call.future.set_result(call.result)
            else:
                call.future.set_exception(call.error)


class _Call:
    __slots__ = (
        "abandoned",
        "context",
        "cpu_s",
        "error",
        "function",
        "future",
        "late",
        "mailbox",
        "queued_at",
        "result",
        "started",
        "timeout_s",
    )

    def __init__(
        self, function: Callable[[], Any], timeout_s: float, mailbox: _Mailbox, late: Callable[[Any], None] | None
    ) -> None:
        self.function = function
        self.timeout_s = timeout_s
        self.mailbox = mailbox
        self.late = late
        self.future: asyncio.Future[Any] = mailbox.loop.create_future()
        self.context = contextvars.copy_context()
        self.queued_at = time.perf_counter()
        self.started: float | None = None
        self.cpu_s = 0.0
        self.abandoned = False
        self.result: Any = None
        self.error: Exception | None = None


def _record_times(call: _Call, size: int) -> None:
    """Record the wait for a thread and the CPU time of the code."""
    started = call.started
    if started is not None and started - call.queued_at >= WORTH_RECORDING_S:
        spans.record("limit:threads", call.queued_at, started, {"threads": size})
    if call.cpu_s >= WORTH_RECORDING_S:
        spans.tally("cpu_us", round(call.cpu_s * 1e6))


class Threads:
    """A pool of up to `size` threads, besides up to `max_abandoned` threads that hang. With more, calls are refused."""

    def __init__(self, size: int = 32, *, name: str = "environment", max_abandoned: int = 256) -> None:
        self._size = size
        self._name = name
        self._max_abandoned = max_abandoned
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._mailbox: _Mailbox | None = None
        self._running: set[_Call] = set()
        self._threads: WeakSet[threading.Thread] = WeakSet()
        self._open = 0
        self._serving = 0
        self._abandoned = 0

    async def run(
        self, function: Callable[[], Any], *, timeout_s: float, late: Callable[[Any], None] | None = None
    ) -> Any:
        """The result of `function()`. `late` is called with a result that arrives after the caller stopped waiting."""
        if self._abandoned >= self._max_abandoned:
            raise Exhausted(
                f"{self._abandoned} earlier calls still hang in their threads; make them return, or restart"
            )
        loop = asyncio.get_running_loop()
        call_scope = scope.current()
        if call_scope is not None:
            call_scope.get(self, lambda: self)  # an API call leaves no threads behind
        mailbox = self._mailbox
        if mailbox is None or mailbox.loop is not loop:
            mailbox = self._mailbox = _Mailbox(loop)
        call = _Call(function, timeout_s, mailbox, late)
        mailbox.open += 1
        if timeout_s < mailbox.shortest_s or mailbox.timer is None:
            mailbox.shortest_s = min(mailbox.shortest_s, timeout_s)
            self._set_timer(mailbox, mailbox.shortest_s)
        with self._lock:
            self._open += 1
        self._queue.put(call)
        self._add_thread()
        try:
            return await call.future
        except asyncio.CancelledError:
            self._abandon(call)
            raise
        finally:
            _record_times(call, self._size)

    def close(self) -> None:
        """Let the idle threads end; a later call starts new ones."""
        with self._lock:
            count, self._serving = self._serving, 0
        for _ in range(count):
            self._queue.put(None)

    async def aclose(self) -> None:
        """Let the idle threads end, and wait a moment until they have."""
        self.close()
        deadline = time.monotonic() + _CLOSING_S
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    def _add_thread(self) -> None:
        """Start a thread if there are more calls than threads."""
        if self._serving >= self._size or self._serving >= self._open:
            return
        with self._lock:
            self._serving += 1
        thread = threading.Thread(target=self._run_calls, name=f"velodrome-{self._name}", daemon=True)
        self._threads.add(thread)
        thread.start()

    def _run_calls(self) -> None:
        while (call := self._queue.get()) is not None:
            with self._lock:
                if call.abandoned:  # abandoned in the queue
                    continue
                call.started = time.perf_counter()
                self._running.add(call)
            cpu_started = time.thread_time()
            try:
                call.result = call.context.run(call.function)
            except BaseException as error:  # noqa: BLE001 - raised in the caller: foreign code must not end a thread
                call.error = _safe_for_loop(error)
            call.cpu_s = time.thread_time() - cpu_started
            with self._lock:
                self._running.discard(call)
                stay = True
                if call.abandoned:
                    self._abandoned -= 1
                    stay = self._serving < min(self._size, self._open)
                    self._serving += stay
                else:
                    self._open -= 1
            call.mailbox.post(call)
            del call  # do not hold it until the next call
            if not stay:
                return

    def _abandon(self, call: _Call) -> None:
        """Abandon a call: skip it if it is queued, replace its thread if it runs."""
        with self._lock:
            if call.abandoned or (call.started is not None and call not in self._running):
                return
            call.abandoned = True
            call.mailbox.open -= 1
            self._open -= 1
            if call.started is None:
                return
            self._abandoned += 1
            self._serving = max(0, self._serving - 1)  # zero after `close`
        self._add_thread()

    def _set_timer(self, mailbox: _Mailbox, delay_s: float) -> None:
        if mailbox.timer is not None:
            mailbox.timer.cancel()
        mailbox.timer = mailbox.loop.call_later(delay_s, self._check_timeouts, mailbox)

    def _check_timeouts(self, mailbox: _Mailbox) -> None:
        """Abandon calls beyond their time limit, and set the timer for the next check.

        A call that starts later has at least the shortest time limit left, so one timer is enough for all.
        """
        mailbox.timer = None
        now = time.perf_counter()
        with self._lock:
            running = [call for call in self._running if call.mailbox is mailbox and not call.abandoned]
        next_s = mailbox.shortest_s
        for call in running:
            left_s = (call.started or now) + call.timeout_s - now
            if left_s > 0:
                next_s = min(next_s, left_s)
            else:
                self._abandon(call)
                if not call.future.done():
                    call.future.set_exception(NoAnswer(call.timeout_s))
        if mailbox.open > 0:
            self._set_timer(mailbox, max(next_s, 0.001))
