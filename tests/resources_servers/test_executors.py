"""Code that leaks, crashes, exits, spins or raises, in each executor: what it costs, and what it cannot cost."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any, Literal

import pytest
from patience import DEADLINE_S

from velodrome import Environment, Model, tool
from velodrome.errors import InputError, RolloutError, TaskError, ToolError, VerifyError
from velodrome.resources_servers import code_workers
from velodrome.timing.spans import Span, root, span

EVERYWHERE = pytest.mark.parametrize("executor", ["inline", "thread", "process"])
HERE = Path(__file__).name
LEAKED: list[bytes] = []


class Misbehaves(Environment):
    """Does what the task says; the reward tells in which process."""

    setting: str = "as it is"

    def setup(self) -> None:
        self.calls = 0

    @tool
    def act(self, what: str) -> dict[str, Any]:
        """Do it."""
        return self.verify({"do": what}, None)

    @tool
    async def act_async(self, what: str) -> dict[str, Any]:
        """Do it."""
        return self.verify({"do": what}, None)

    def verify(self, task: dict[str, Any], response: Any) -> dict[str, Any]:
        self.calls += 1
        what = task.get("do")
        if what == "segfault":
            ctypes.string_at(0)
        elif what == "exit":
            os._exit(3)
        elif what == "leave":
            sys.exit(3)
        elif what == "interrupt":
            raise KeyboardInterrupt
        elif what == "spin":
            re.match(r"(a+)+b", "a" * 100)  # holds the interpreter's lock
        elif what == "hang":
            threading.Event().wait()
        elif what == "devour":
            LEAKED.append(b"x" * (600 << 20))
            threading.Event().wait()
        elif what == "leak":
            LEAKED.append(b"x" * (600 << 20))
        elif what == "raise":
            raise KeyError("expected")
        elif what == "value":
            raise ValueError("no such thing")
        elif what == "task":
            raise TaskError("no answer to compare with")
        elif what == "nothing":
            return {}
        return {"reward": 0.5, "pid": os.getpid(), "calls": self.calls, "setting": self.setting}


def scored(environment: Environment, *tasks: str, serial: bool = True) -> list[dict[str, Any] | RolloutError]:
    """The score of each task, or its error."""

    async def one(task: str) -> dict[str, Any] | RolloutError:
        try:
            return await environment.score(await environment.open({}), {"do": task}, {"output": []})
        except RolloutError as error:
            return error

    async def main() -> list[dict[str, Any] | RolloutError]:
        try:
            return [await one(task) for task in tasks] if serial else list(await asyncio.gather(*map(one, tasks)))
        finally:
            await environment.aclose()

    return asyncio.run(main())


def called(environment: Environment, name: str, *arguments: dict[str, Any]) -> list[str]:
    async def main() -> list[str]:
        try:
            session = await environment.open({})
            return [await environment.call(session, name, each) for each in arguments]
        finally:
            await environment.aclose()

    return asyncio.run(main())


@EVERYWHERE
def test_the_score_and_its_errors_are_the_same_wherever_the_code_runs(executor: Any):
    environment = Misbehaves(executor=executor, setting="another")
    fine, raised, nothing, unusable, left = scored(environment, "", "raise", "nothing", "task", "leave")
    assert isinstance(fine, dict)
    assert (fine["reward"], fine["setting"]) == (0.5, "another")
    assert (fine["pid"] == os.getpid()) == (executor != "process")
    assert [(type(each), str(each)) for each in (raised, unusable, left)] == [
        (VerifyError, "verify: KeyError: 'expected'"),
        (TaskError, "no answer to compare with"),
        (VerifyError, "verify: SystemExit: 3"),
    ]
    assert isinstance(nothing, VerifyError)
    assert 'no "reward"' in str(nothing)
    assert all(HERE in str(each.place) for each in (raised, nothing, left))  # type: ignore[union-attr]


@EVERYWHERE
@pytest.mark.parametrize("name", ["act", "act_async"])
def test_a_tools_text_is_the_same_wherever_it_runs(executor: Any, name: str):
    environment = Misbehaves(executor=executor, tell_tool_errors=True)
    calls = [{"what": "value"}, {"what": "raise"}, {"what": 1, "more": 2}]
    told = called(environment, name, *calls)
    assert told == [
        "error: no such thing",
        f"error: {name}: KeyError: 'expected'",
        f"error: {name}: more: Extra inputs are not permitted",
    ]


FAULTS = {
    "segfault": "verify: its process ended with signal SIGSEGV",
    "exit": "verify: its process ended with exit code 3",
    "spin": "verify: no answer within 2 s",
    "hang": "verify: no answer within 2 s",
    "devour": "MB of memory; worker_memory_mb is 400",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_in_a_process_a_verifier_that_breaks_costs_one_call_and_its_worker_is_replaced(fault: str):
    environment = Misbehaves(executor="process", worker_processes=1, verify_timeout_s=2.0, worker_memory_mb=400)
    if fault not in ("spin", "hang"):
        environment.verify_timeout_s = DEADLINE_S
    before, broken, after, again = scored(environment, "", fault, "", "")
    assert isinstance(broken, VerifyError)
    assert FAULTS[fault] in str(broken)
    assert f"{HERE}:" in str(broken.place)
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert isinstance(again, dict)
    assert before["pid"] != after["pid"] == again["pid"]
    assert (after["calls"], again["calls"], LEAKED) == (1, 2, [])


def test_an_interrupt_that_code_raises_in_a_process_is_its_error_and_ends_no_worker():
    interrupted, after = scored(Misbehaves(executor="process", worker_processes=1), "interrupt", "")
    assert (type(interrupted), str(interrupted)) == (VerifyError, "verify: KeyboardInterrupt")
    assert isinstance(after, dict)
    assert after["calls"] == 2


def test_calls_beside_one_that_breaks_are_kept():
    environment = Misbehaves(executor="process", worker_processes=2)
    results = scored(environment, *["", "segfault", "", "exit", "", ""], serial=False)
    assert [isinstance(each, VerifyError) for each in results] == [False, True, False, True, False, False]


def test_a_tool_that_breaks_fails_the_rollout_or_is_told_to_the_model():
    with pytest.raises(ToolError, match="act: its process ended with signal SIGSEGV"):
        called(Misbehaves(executor="process"), "act", {"what": "segfault"})
    told = called(Misbehaves(executor="process", tell_tool_errors=True), "act_async", {"what": "exit"})
    assert told == ["error: act_async: its process ended with exit code 3"]


def test_a_process_that_a_call_leaves_with_too_much_memory_is_replaced_before_the_next(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(code_workers, "_LOOK_S", DEADLINE_S)  # so that it is not ended while it leaks
    environment = Misbehaves(executor="process", worker_processes=1, worker_memory_mb=400)
    results = scored(environment, "leak", "", "")
    assert [each["calls"] for each in results] == [1, 1, 2]  # type: ignore[index]


def test_a_process_is_replaced_after_so_many_calls():
    environment = Misbehaves(executor="process", worker_processes=1, worker_calls=2)
    results = scored(environment, *[""] * 5)
    assert [each["calls"] for each in results] == [1, 2, 1, 2, 1]  # type: ignore[index]


def test_a_process_that_is_ready_as_its_environment_closes_is_ended_too():
    """Its first answer is here and not yet looked at."""

    async def main() -> tuple[list[int], int]:
        environment = Misbehaves(executor="process", worker_processes=1)
        await environment.score(await environment.open({}), {"do": ""}, {"output": []})
        workers = environment.__dict__["_workers"]
        await workers.aclose()
        workers.warm()
        while not workers._new:  # noqa: ASYNC110 - to the step
            await asyncio.sleep(0)
        [child] = workers._new
        while not child._reader._buffer:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await workers.aclose()
        return [each.child.pid for each in workers._workers], child.pid

    left, pid = asyncio.run(main())
    assert left == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_in_this_process_a_leak_stays(executor: Any):
    """Here with a small one; a crash and an exit end the process: tests/collector/test_cpu_bound.py."""

    class Leaks(Environment):
        kept: Any = None

        def verify(self, task: Any, response: Any) -> float:
            self.kept.append(b"x")
            return 1.0

    kept: list[bytes] = []
    scored(Leaks(executor=executor, kept=kept), "", "")
    assert kept == [b"x", b"x"]


def test_in_a_thread_a_call_that_hangs_fails_after_its_time_and_inline_nothing_can_end_it():
    [failed, fine] = scored(Misbehaves(executor="thread", verify_timeout_s=0.05), "hang", "")
    assert str(failed) == "verify: no answer within 0.05 s"
    assert isinstance(fine, dict)

    class Slow(Environment):
        def verify(self, task: Any, response: Any) -> float:
            threading.Event().wait(0.05)
            return 1.0

    assert scored(Slow(executor="inline", verify_timeout_s=0.001), "") == [{"reward": 1.0}]  # as long as it takes


def test_the_cancellation_of_a_call_ends_its_process_and_no_process_is_left():
    async def main() -> None:
        environment = Misbehaves(executor="process", worker_processes=1)
        session = await environment.open({})
        pid = (await environment.score(session, {}, {}))["pid"]
        call = asyncio.create_task(environment.score(session, {"do": "hang"}, {}))
        await asyncio.sleep(0)
        process = os.pidfd_open(pid)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process, ended.set)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await ended.wait()
        asyncio.get_running_loop().remove_reader(process)
        os.close(process)
        after = await environment.score(session, {}, {})
        await environment.aclose()
        with pytest.raises(ProcessLookupError):
            os.kill(after["pid"], 0)

    asyncio.run(main())


def test_one_environment_serves_one_event_loop_after_another():
    environment = Misbehaves(executor="process", worker_processes=1)
    assert [each["calls"] for each in scored(environment, "", "") + scored(environment, "")] == [1, 2, 1]  # type: ignore[index]


def test_an_idle_process_that_ended_is_not_used():
    async def main() -> dict[str, Any]:
        environment = Misbehaves(executor="process", worker_processes=1)
        session = await environment.open({})
        pid = (await environment.score(session, {}, {}))["pid"]
        process = os.pidfd_open(pid)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process, ended.set)
        os.kill(pid, 9)
        await ended.wait()
        asyncio.get_running_loop().remove_reader(process)
        os.close(process)
        [worker] = environment._workers._idle  # type: ignore[union-attr]
        while worker.child.running:  # noqa: ASYNC110 - the loop learns of it in its own time
            await asyncio.sleep(0)
        try:
            return await environment.score(session, {}, {})
        finally:
            await environment.aclose()

    assert asyncio.run(main())["calls"] == 1


def test_a_class_of_a_function_goes_by_value_with_the_types_of_its_hints():
    class Local(Environment):
        unit: Literal["C", "F"] = "C"

        @tool
        def read(self, city: Literal["Oslo", "Lima"]) -> str:
            """Read.

            city: where
            """
            return f"{city} {self.unit} {os.getpid() != here}"

        def verify(self, task: Any, response: Any) -> float:
            return 1.0

    here = os.getpid()
    environment = Local(executor="process", unit="F")
    assert called(environment, "read", {"city": "Oslo"}) == ["Oslo F True"]


def counts(spans: Span) -> tuple[dict[str, float], list[str]]:
    [call] = spans.children
    return call.counts or {}, [each.name for each in call.children]


def test_the_cpu_of_the_worker_and_the_wait_for_it_are_told_apart_from_this_process():
    class Burns(Environment):
        def verify(self, task: Any, response: Any) -> float:
            sum(range(1_000_000))
            return 1.0

    async def main() -> Span:
        environment = Burns(executor="process", worker_processes=1)
        with root("rollout") as spans, span("verify"):
            await environment.score("", {}, {})
        await environment.aclose()
        return spans

    tallied, below = counts(asyncio.run(main()))
    assert set(tallied) == {"worker_cpu_us"}
    assert tallied["worker_cpu_us"] > 0
    assert below == ["limit:workers"]  # until the first worker had started


def test_inline_code_is_charged_with_the_time_it_keeps_the_loop():
    class Waits(Environment):
        def verify(self, task: Any, response: Any) -> float:
            threading.Event().wait(0.01)
            return 1.0

    async def main() -> Span:
        environment = Waits(executor="inline")
        with root("rollout") as spans, span("verify"):
            await environment.score("", {}, {})
        return spans

    assert set(counts(asyncio.run(main()))[0]) == {"held_us"}


class Stateful(Environment):
    def seed_session(self, task: Any) -> dict[str, int]:
        return {"count": 0}

    @tool
    def add(self, by: int, session: Any) -> int:
        """Add."""
        session["count"] += by
        return int(session["count"])

    def verify(self, task: Any, response: Any) -> float:
        return 1.0


class OwnScore(Environment):
    async def score(self, session: str, task: Any, response: Any) -> dict[str, Any]:
        return {"reward": 1.0}


class Judged(Environment):
    judge: Model

    async def verify(self, task: Any, response: Any) -> float:
        return 1.0


class Locked(Environment):
    lock: Any = None

    def verify(self, task: Any, response: Any) -> float:
        return 1.0


class Answers:
    async def respond(self, request: Any) -> Any:
        return {}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Misbehaves(executor="proces"), "executor"),  # type: ignore[arg-type]
        (lambda: Misbehaves(worker_processes=0), "worker_processes"),
        (lambda: Misbehaves(worker_memory_mb="much"), "worker_memory_mb"),  # type: ignore[arg-type]
        (lambda: Misbehaves(worker_calls=-1), "worker_calls"),
        (lambda: Misbehaves(cache="often"), "cache"),  # type: ignore[arg-type]
        (lambda: Stateful(executor="process"), "add takes the session"),
        (lambda: Stateful(cache=True), "add takes the session"),
        (lambda: OwnScore(executor="process"), "a score of its own"),
        (lambda: Judged(executor="process", judge=Answers()), '"judge" is a model'),  # type: ignore[arg-type]
        (lambda: Locked(executor="process", lock=threading.Lock()), "Locked.lock cannot be sent"),
    ],
)
def test_what_cannot_be_is_one_line(make: Any, told: str):
    with pytest.raises(InputError) as refused:
        make()
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


class CannotStart(Environment):
    def setup(self) -> None:
        if self.executor == "inline":
            raise RuntimeError("no licence here")

    def verify(self, task: Any, response: Any) -> float:
        return 1.0


def test_a_copy_that_cannot_be_made_says_why_with_each_call():
    errors = scored(CannotStart(executor="process"), "", "")
    assert [str(each) for each in errors] == [
        "verify: its process cannot be started: RuntimeError: no licence here"
    ] * 2
    assert all("in CannotStart.setup" in str(each.place) for each in errors)  # type: ignore[union-attr]


def test_a_limit_below_what_a_process_needs_at_all_is_named():
    [error] = scored(Misbehaves(executor="process", worker_memory_mb=1), "")
    assert "before the first call; raise worker_memory_mb, which is 1" in str(error)
