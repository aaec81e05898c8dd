"""Jobs from an iterable that is read as the collection goes: a generator, a curriculum, a queue.

Its tasks are not known in advance, so a bad task is a failure of its rollouts, and `requested` grows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import Any

from velodrome.collector.keys import Earlier
from velodrome.collector.plan import (
    Job,
    Names,
    Plan,
    TaskSelection,
    check_agent,
    check_selection,
    failing_jobs,
    key_conflict_error,
    task_jobs,
)
from velodrome.collector.tasks import encoded_task
from velodrome.errors import InputError
from velodrome.records.task import digest, own_id, parse_task

Json = dict[str, Any]

_AHEAD = 64  # tasks of an asynchronous iterable that are read in advance


class TaskStream:
    """The jobs of any iterable, in its order, and a plan that grows with them."""

    def __init__(self, tasks: Iterable[Any] | AsyncIterable[Any], selection: TaskSelection, earlier: Earlier) -> None:
        check_selection(selection)
        self.plan = Plan(
            selection.repeats, repeated=selection.repeats > 1 or earlier.rows > 0, agents=set(selection.agents)
        )
        self._selection = selection
        self._earlier = earlier
        self._names = Names(self.plan, earlier, allow_mixed=selection.allow_mixed)
        self._source = tasks if isinstance(tasks, AsyncIterable) else None
        self._tasks: Iterator[Any] = iter(()) if isinstance(tasks, AsyncIterable) else iter(tasks)
        self._waiting: deque[Any] = deque()
        self._jobs: deque[Job] = deque()
        self._room = asyncio.Event()
        self._tasks_read = 0
        self._exhausted = False
        self._fault: Exception | None = None

    @property
    def asynchronous(self) -> bool:
        """Whether `feed` must run beside the jobs."""
        return self._source is not None

    @property
    def ended(self) -> bool:
        """Whether there are no more jobs."""
        return self._exhausted and not self._jobs and not self._waiting

    def take(self) -> Job | None:
        """The next job, or None if there is none yet."""
        while not self._jobs:
            if self._waiting:
                task = self._waiting.popleft()
                self._room.set()
            elif self._source is None and not self._exhausted and self._below_limit():
                try:
                    task = next(self._tasks)
                except StopIteration:
                    self._exhausted = True
                    return None
                except Exception as error:  # noqa: BLE001 - raised as it is, by `raise_fault`
                    self._fault, self._exhausted = error, True
                    return None
            else:
                self._exhausted = self._exhausted or self._source is None
                return None
            self._jobs.extend(self._add(task))
        return self._jobs.popleft()

    def raise_fault(self) -> None:
        """Raise the error of the iterable, if it had one. Called after the rollouts in flight have finished."""
        if self._fault is not None:
            raise self._fault

    async def feed(self, wake: Callable[[], None]) -> None:
        """Read an asynchronous iterable, at most `_AHEAD` tasks in advance."""
        assert self._source is not None
        try:
            async for task in self._source:
                self._waiting.append(task)
                wake()
                while len(self._waiting) >= _AHEAD:
                    self._room.clear()
                    await self._room.wait()
                self._tasks_read += 1
                if not self._below_limit():
                    break
        finally:
            self._exhausted = True
            wake()

    def _below_limit(self) -> bool:
        limit = self._selection.limit
        return limit is None or self._tasks_read < limit

    def _add(self, task: Any) -> Iterator[Job]:
        self._tasks_read += self._source is None
        index = self.plan.tasks
        try:
            line = encoded_task(task)
            row = parse_task(line)
            check_agent(self._selection.agent_for(row), self._selection.agents)
            name = self._names.add(index + 1, own_id(row), digest(row))
            if name is None:
                raise key_conflict_error([self._names.conflicts.pop()], "tasks:{}".format, self._earlier.output)
        except (ValueError, InputError) as error:
            return self._failing_jobs(index, str(error).removeprefix(f"tasks:{index + 1}: "))
        return task_jobs(self.plan, self._selection, index, name, row, line, range(self.plan.repeats))

    def _failing_jobs(self, index: int, problem: str) -> Iterator[Job]:
        self.plan.add(0, "0", [])
        problem = f"tasks:{index + 1}: {problem}"
        return failing_jobs(self.plan, index, f"task {index + 1}", problem, range(self.plan.repeats))
