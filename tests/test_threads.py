from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from typing import Any

import pytest

from tests.http.coroutines import in_a_loop
from tests.support.patience import DEADLINE_S
from velodrome.threads import Escaped, Exhausted, NoAnswer, Threads


def test_code_runs_off_the_loop_in_its_context_and_as_many_at_once_as_there_are_threads() -> None:
    together = threading.Barrier(4, timeout=DEADLINE_S)
    where = contextvars.ContextVar("where", default="nowhere")

    def call(number: int) -> tuple[int, str, int]:
        together.wait()
        return number, where.get(), threading.get_ident()

    async def main() -> list[tuple[int, str, int]]:
        threads = Threads(4)
        where.set("here")
        calls = [threads.run(lambda number=number: call(number), timeout_s=DEADLINE_S) for number in range(4)]
        return await asyncio.gather(*calls)

    result = asyncio.run(main())
    assert [each[:2] for each in result] == [(number, "here") for number in range(4)]
    assert len({threading.get_ident(), *(each[2] for each in result)}) == 5


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(), asyncio.CancelledError()])
@in_a_loop
async def test_what_would_end_a_process_comes_back_as_an_ordinary_error(error: BaseException) -> None:
    def leave() -> None:
        raise error

    threads = Threads(1)
    with pytest.raises(ZeroDivisionError):  # an ordinary error comes back as it is
        await threads.run(lambda: 1 // 0, timeout_s=DEADLINE_S)
    with pytest.raises(Escaped, match=type(error).__name__):
        await threads.run(leave, timeout_s=DEADLINE_S)
    assert await threads.run(lambda: "still here", timeout_s=DEADLINE_S) == "still here"


def test_a_call_that_hangs_is_given_up_and_its_thread_replaced() -> None:
    release = threading.Event()

    async def main() -> list[Any]:
        threads = Threads(1)
        with pytest.raises(NoAnswer, match=r"^no answer within 0\.05 s$"):
            await threads.run(release.wait, timeout_s=0.05)
        return await asyncio.gather(*[threads.run(lambda at=at: at, timeout_s=DEADLINE_S) for at in range(3)])

    try:
        assert asyncio.run(main()) == [0, 1, 2]
    finally:
        release.set()


def test_waiting_for_a_thread_is_not_counted_as_time_of_the_call() -> None:
    release = threading.Event()

    async def main(limit_s: float) -> list[Any]:
        threads = Threads(1)
        slow = asyncio.create_task(threads.run(release.wait, timeout_s=4 * limit_s))
        quick = asyncio.create_task(threads.run(lambda: "ran", timeout_s=limit_s))
        return await asyncio.gather(slow, quick, return_exceptions=True)

    limit_s = 0.05  # on a machine that is too busy to run a lambda within it, a longer one shows the same
    while (outcome := asyncio.run(main(limit_s)))[1] != "ran" and limit_s < 10:
        limit_s *= 4
    release.set()
    assert (type(outcome[0]), outcome[1]) == (NoAnswer, "ran")


def test_a_cancelled_call_frees_its_place_whether_it_runs_or_waits() -> None:
    release = threading.Event()

    async def main() -> tuple[str, list[str]]:
        threads = Threads(1)
        ran: list[str] = []
        started, loop = asyncio.Event(), asyncio.get_running_loop()
        running = asyncio.create_task(
            threads.run(lambda: (loop.call_soon_threadsafe(started.set), release.wait()), timeout_s=DEADLINE_S)
        )
        await started.wait()
        waiting = asyncio.create_task(threads.run(lambda: ran.append("waiting"), timeout_s=DEADLINE_S))
        await asyncio.sleep(0)
        for each in (waiting, running):
            each.cancel()
        await asyncio.gather(waiting, running, return_exceptions=True)
        return await threads.run(lambda: "next", timeout_s=DEADLINE_S), ran

    try:
        assert asyncio.run(main()) == ("next", [])
    finally:
        release.set()


def test_beyond_so_many_hanging_calls_new_ones_are_refused_until_one_returns() -> None:
    release = threading.Event()

    async def main() -> Any:
        threads = Threads(4, max_abandoned=2)
        hanging = [threads.run(release.wait, timeout_s=0.05) for _ in range(2)]
        await asyncio.gather(*hanging, return_exceptions=True)
        with pytest.raises(Exhausted, match="2 earlier calls still hang"):
            await threads.run(lambda: 1, timeout_s=DEADLINE_S)
        release.set()
        while True:
            try:
                return await threads.run(lambda: "again", timeout_s=DEADLINE_S)
            except Exhausted:
                await asyncio.sleep(0)

    assert asyncio.run(main()) == "again"


@in_a_loop
async def test_a_result_that_comes_after_its_caller_has_gone_is_handed_to_late() -> None:
    release = threading.Event()

    threads = Threads(1)
    came: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    with pytest.raises(NoAnswer):
        await threads.run(lambda: release.wait() and "state", timeout_s=0.02, late=came.set_result)
    release.set()
    assert await asyncio.wait_for(came, DEADLINE_S) == "state"


@pytest.mark.slow
def test_a_hung_function_does_not_hang_the_end_of_the_process() -> None:
    code = """
import asyncio, threading
from velodrome.threads import Threads, NoAnswer
async def main():
    try:
        await Threads(1).run(threading.Event().wait, timeout_s=0.05)
    except NoAnswer:
        print("given up")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "given up\n", "")
