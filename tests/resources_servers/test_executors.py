"""Code that leaks, crashes, exits, spins or raises, in each executor: what it costs, and what it cannot cost."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.resources_servers.playing import opened
from tests.support.patience import DEADLINE_S
from velodrome import Environment, Model, tool
from velodrome.errors import InputError, RolloutError, TaskError, ToolError, VerifyError
from velodrome.resources_servers import code_workers
from velodrome.resources_servers.math_with_judge.app import MathWithJudge
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.timing import elsewhere
from velodrome.timing.spans import root, span
from velodrome.timing.tables import Cost, merged

pytestmark = pytest.mark.slow
HERE = Path(__file__).name
LEAKED: list[bytes] = []
ERRORS = {
    "interrupt": KeyboardInterrupt(),
    "raise": KeyError("expected"),
    "value": ValueError("no such thing"),
    "task": TaskError("no answer to compare with"),
}
DEEDS: dict[str, Callable[[], Any]] = {
    "segfault": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(3),
    "leave": lambda: sys.exit(3),
    "spin": lambda: re.match(r"(a+)+b", "a" * 100),  # holds the interpreter's lock
    "hang": lambda: threading.Event().wait(),
    "leak": lambda: LEAKED.append(b"x" * (600 << 20)),
    "devour": lambda: (DEEDS["leak"](), DEEDS["hang"]()),
}


class Misbehaves(Environment):
    """Does what the task says; the reward tells in which process."""

    setting: str = "as it is"

    def setup(self):
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
        if what in ERRORS:
            raise ERRORS[what]
        if what in DEEDS:
            DEEDS[what]()
        if what == "nothing":
            return {}
        return {"reward": 0.5, "pid": os.getpid(), "calls": self.calls, "setting": self.setting}


def scored(environment: Environment, *tasks: str, serial: bool = True) -> list[Any]:
    """The score of each task, or its error."""

    async def one(task: str) -> Any:
        try:
            return await environment.score(await environment.open({}), {"do": task}, {"output": []})
        except RolloutError as error:
            return error

    async def main() -> list[Any]:
        try:
            return [await one(task) for task in tasks] if serial else list(await asyncio.gather(*map(one, tasks)))
        finally:
            await environment.aclose()

    return asyncio.run(main())


def used_elsewhere(
    environment: Any, task: Any, text: str = "", *, times: int = 1, clock: str = "cpu"
) -> dict[str, Cost]:
    """What a profile has of other processes, by function, after some scores."""
    said = {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]}

    async def score() -> None:
        try:
            await asyncio.gather(*(environment.score("", task, said) for _ in range(times)), return_exceptions=True)
        finally:
            await environment.aclose()

    elsewhere.activate(clock)
    try:
        asyncio.run(score())
        table = merged(clock, elsewhere.measured())
    finally:
        elsewhere.activate(None)
    return {key.name.rpartition(".")[2]: row.cost for key, row in table.rows.items()}


@pytest.mark.parametrize(
    ("environment", "task", "calls"),
    [(Misbehaves(executor="process"), {}, 2), (MathWithJudge(), {"expected_answer": "1"}, 0)],  # 0: yappi counts them
    ids=["executor: process", "processes of its own"],
)
def test_a_profile_has_the_cpu_that_verify_used_in_other_processes(environment: Any, task: Any, calls: int):
    rows = used_elsewhere(environment, task, times=2)
    other, verify = rows["another process"], rows["verify"]
    assert (other.ncall, verify.ncall, verify.ttot) == (2, calls, pytest.approx(other.ttot))
    assert other.ttot > 0


def test_a_profile_has_the_cpu_of_a_verify_that_was_ended_and_its_time_on_the_wall_clock():
    spun = used_elsewhere(Misbehaves(executor="process", verify_timeout_s=1.0), {"do": "spin"})
    assert spun["verify"].ttot == spun["another process"].ttot > 0
    hung = used_elsewhere(Misbehaves(executor="process", verify_timeout_s=1.0), {"do": "hang"}, clock="wall")
    assert (hung["verify"].ncall, hung["verify"].ttot > 1.0) == (1, True)
    library = MathWithJudge(library_timeout_s=0.3, fast_mode=False)
    endless = used_elsewhere(library, {"expected_answer": "7"}, r"\boxed{9^{9^{9^{9}}} - 9^{9^{9^{9}}} + 7}")
    assert (endless["verify"].ttot, endless["another process"].ttot) == (0.3, 0.3)


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_the_score_and_its_errors_are_the_same_wherever_the_code_runs(executor: Any):
    environment = Misbehaves(executor=executor, setting="another")
    tasks = ["", "raise", "nothing", "task", "leave"]
    fine, raised, nothing, unusable, left = scored(environment, *tasks)
    assert (fine["reward"], fine["setting"]) == (0.5, "another")
    assert (fine["pid"] == os.getpid()) == (executor != "process")
    assert [(type(each), str(each)) for each in (raised, unusable, left)] == [
        (VerifyError, "verify: KeyError: 'expected'"),
        (TaskError, "no answer to compare with"),
        (VerifyError, "verify: SystemExit: 3"),
    ]
    assert isinstance(nothing, VerifyError)
    assert 'no "reward"' in str(nothing)
    assert all(HERE in str(each.place) for each in (raised, nothing, left))


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
    assert before["pid"] != after["pid"] == again["pid"]
    assert (after["calls"], again["calls"], LEAKED) == (1, 2, [])


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_a_tools_text_is_the_same_wherever_it_runs(executor: Any):
    environment = Misbehaves(executor=executor, tell_tool_errors=True)
    faults = [{"what": "value"}, {"what": "raise"}, {"what": 1, "more": 2}]
    for name in ("act", "act_async"):
        assert opened(environment, {}, *((name, arguments) for arguments in faults)) == [
            "error: no such thing",
            f"error: {name}: KeyError: 'expected'",
            f"error: {name}: more: Extra inputs are not permitted",
        ]


def test_a_worker_serves_one_event_loop_after_another_and_is_replaced_after_so_many_calls():
    environment = Misbehaves(executor="process", worker_processes=1, worker_calls=2)
    interrupted, after = scored(environment, "interrupt", "")
    assert (type(interrupted), str(interrupted)) == (VerifyError, "verify: KeyboardInterrupt")
    results = [after, *scored(environment, *[""] * 3), *scored(environment, "")]
    assert [each["calls"] for each in results] == [2, 1, 2, 1, 1]


def test_calls_beside_one_that_breaks_are_kept():
    environment = Misbehaves(executor="process", worker_processes=2)
    results = scored(environment, *["", "segfault", "", "exit", "", ""], serial=False)
    assert [isinstance(each, VerifyError) for each in results] == [False, True, False, True, False, False]


def test_a_tool_that_breaks_fails_the_rollout_or_is_told_to_the_model():
    with pytest.raises(ToolError, match="act: its process ended with signal SIGSEGV"):
        opened(Misbehaves(executor="process"), {}, ("act", {"what": "segfault"}))
    told = opened(Misbehaves(executor="process", tell_tool_errors=True), {}, ("act_async", {"what": "exit"}))
    assert told == ["error: act_async: its process ended with exit code 3"]


def test_a_process_that_a_call_leaves_with_too_much_memory_is_replaced_before_the_next(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(code_workers, "_LOOK_S", DEADLINE_S)  # so that it is not ended while it leaks
    environment = Misbehaves(executor="process", worker_processes=1, worker_memory_mb=400)
    results = scored(environment, "leak", "", "")
    assert [each["calls"] for each in results] == [1, 1, 2]


@asynccontextmanager
async def until_it_ends(pid: int) -> AsyncIterator[None]:
    """Waits at the end of the block for the end of this process."""
    process, ended = os.pidfd_open(pid), asyncio.Event()
    asyncio.get_running_loop().add_reader(process, ended.set)
    yield
    await ended.wait()
    asyncio.get_running_loop().remove_reader(process)
    os.close(process)


def test_the_cancellation_of_a_call_ends_its_process_and_no_process_is_left():
    async def main():
        environment = Misbehaves(executor="process", worker_processes=1)
        session = await environment.open({})
        pid = (await environment.score(session, {}, {}))["pid"]
        call = asyncio.create_task(environment.score(session, {"do": "hang"}, {}))
        await asyncio.sleep(0)
        async with until_it_ends(pid):
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        after = await environment.score(session, {}, {})
        await environment.aclose()
        with pytest.raises(ProcessLookupError):
            os.kill(after["pid"], 0)

    asyncio.run(main())


def test_an_idle_process_that_ended_is_not_used():
    async def main() -> dict[str, Any]:
        environment = Misbehaves(executor="process", worker_processes=1)
        session = await environment.open({})
        pid = (await environment.score(session, {}, {}))["pid"]
        async with until_it_ends(pid):
            os.kill(pid, 9)
        [idle] = environment._workers._idle  # type: ignore[union-attr]
        while idle.result().child.running:  # noqa: ASYNC110 - the loop learns of it in its own time
            await asyncio.sleep(0)
        try:
            return await environment.score(session, {}, {})
        finally:
            await environment.aclose()

    assert asyncio.run(main())["calls"] == 1


def test_a_limit_below_what_a_process_needs_at_all_is_named():
    [error] = scored(Misbehaves(executor="process", worker_memory_mb=1), "")
    assert "before the first call; raise worker_memory_mb, which is 1" in str(error)


def test_a_class_of_a_function_goes_by_value_and_its_cpu_and_the_wait_for_it_are_told_apart_from_this_process():
    class Local(Environment):
        unit: Literal["C", "F"] = "C"

        @tool
        def read(self, city: Literal["Oslo", "Lima"]) -> str:
            """Read.

            city: where
            """
            sum(range(1_000_000))
            return f"{city} {self.unit} {os.getpid() != here}"

        def verify(self, task: Any, response: Any) -> float:
            return 1.0

    here = os.getpid()
    with root("rollout") as spans, span("tool"):
        assert opened(Local(executor="process", unit="F"), {}, ("read", {"city": "Oslo"})) == ["Oslo F True"]
    [call] = spans.children
    assert set(call.counts or {}) == {"worker_cpu_us"}
    assert (call.counts or {})["worker_cpu_us"] > 0
    assert [each.name for each in call.children] == ["limit:workers"]  # until the first worker had started


class Stateful(Misbehaves):
    @tool
    def add(self, by: int, session: Any) -> int:
        """Add."""
        return 0


class OwnScore(Environment):
    async def score(self, session: str, task: Any, response: Any) -> dict[str, Any]:
        return {"reward": 1.0}


class Linked(Environment):
    judge: Model | None = None
    lock: Any = None

    def setup(self):
        if self.executor == "inline":
            raise RuntimeError("no licence here")

    async def verify(self, task: Any, response: Any) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Misbehaves(executor="proces"), "executor"),  # type: ignore[arg-type]
        (lambda: Misbehaves(worker_processes=0), "worker_processes"),
        (lambda: Misbehaves(cache="often"), "cache"),  # type: ignore[arg-type]
        (lambda: Stateful(executor="process"), "add takes the session"),
        (lambda: OwnScore(executor="process"), "a score of its own"),
        (lambda: Linked(executor="process", judge=ScriptedModel(answers=["x"])), '"judge" is a model'),
        (lambda: Linked(executor="process", lock=threading.Lock()), "Linked.lock cannot be sent"),
    ],
)
def test_what_cannot_be_is_one_line(make: Any, told: str):
    with pytest.raises(InputError, match=rf"\A.*{told}.*\Z"):
        make()


def test_a_copy_that_cannot_be_made_says_why_with_each_call():
    errors = scored(Linked(executor="process"), "", "")
    assert [str(each) for each in errors] == [
        "verify: its process cannot be started: RuntimeError: no licence here"
    ] * 2
    assert all("in Linked.setup" in str(each.place) for each in errors)
