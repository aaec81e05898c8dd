from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
from typing import Any

import pytest
import uvloop
from patience import DEADLINE_S

from velodrome.threads import Escaped, Exhausted, NoAnswer, Threads


def test_the_result_and_the_context_come_through() -> None:
    where = contextvars.ContextVar("where", default="nowhere")

    async def main() -> list[Any]:
        threads = Threads(2)
        where.set("here")
        return await asyncio.gather(
            *[threads.run(lambda at=at: (at, where.get()), timeout_s=DEADLINE_S) for at in range(50)]
        )

    assert asyncio.run(main()) == [(at, "here") for at in range(50)]


def test_code_runs_off_the_loop_and_as_many_at_once_as_there_are_threads() -> None:
    together = threading.Barrier(4, timeout=DEADLINE_S)

    async def main() -> set[int]:
        threads = Threads(4)
        calls = [
            threads.run(lambda: (together.wait(), threading.get_ident())[1], timeout_s=DEADLINE_S) for _ in range(4)
        ]
        return set(await asyncio.gather(*calls))

    result = asyncio.run(main())
    assert len(result) == 4
    assert threading.get_ident() not in result


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
def test_what_would_end_a_process_comes_back_as_an_ordinary_error(error: BaseException) -> None:
    def leave() -> None:
        raise error

    async def main() -> Any:
        threads = Threads(1)
        with pytest.raises(Escaped, match=type(error).__name__):
            await threads.run(leave, timeout_s=DEADLINE_S)
        return await threads.run(lambda: "still here", timeout_s=DEADLINE_S)

    assert asyncio.run(main()) == "still here"


def test_an_ordinary_error_comes_back_as_it_is_and_stop_iteration_does_not_wedge_the_future() -> None:
    async def main() -> None:
        threads = Threads(1)
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0, timeout_s=DEADLINE_S)
        with pytest.raises(Escaped, match="StopIteration"):
            await threads.run(lambda: next(iter(())), timeout_s=DEADLINE_S)

    asyncio.run(main())


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


def test_a_result_that_comes_after_its_caller_has_gone_is_handed_to_late() -> None:
    release = threading.Event()

    async def main() -> Any:
        threads = Threads(1)
        came: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        with pytest.raises(NoAnswer):
            await threads.run(lambda: release.wait() and "state", timeout_s=0.02, late=came.set_result)
        release.set()
        return await asyncio.wait_for(came, DEADLINE_S)

    assert asyncio.run(main()) == "state"


def test_the_same_pool_serves_one_loop_after_another() -> None:
    threads = Threads(2)
    result = [
        asyncio.run(threads.run(lambda: 1, timeout_s=DEADLINE_S)),
        uvloop.run(threads.run(lambda: 2, timeout_s=DEADLINE_S)),
    ]
    threads.close()
    assert [*result, asyncio.run(threads.run(lambda: 3, timeout_s=DEADLINE_S))] == [1, 2, 3]


def test_threads_end_when_the_pool_is_closed() -> None:
    async def main() -> list[threading.Thread]:
        threads = Threads(3, name="ending")
        await asyncio.gather(*[threads.run(lambda: None, timeout_s=DEADLINE_S) for _ in range(9)])
        mine = [each for each in threading.enumerate() if each.name == "velodrome-ending"]
        threads.close()
        return mine

    mine = asyncio.run(main())
    for each in mine:
        each.join(DEADLINE_S)
    assert [1 <= len(mine) <= 3, any(each.is_alive() for each in mine)] == [True, False]


def test_the_thread_of_a_cancelled_call_ends_with_its_code_when_the_pool_is_closed() -> None:
    async def main() -> list[threading.Thread]:
        threads, started, go_on = Threads(3, name="cancelled"), threading.Event(), threading.Event()
        call = asyncio.create_task(threads.run(lambda: (started.set(), go_on.wait(DEADLINE_S)), timeout_s=DEADLINE_S))
        await asyncio.to_thread(started.wait, DEADLINE_S)
        call.cancel()
        await asyncio.wait([call])
        mine = [each for each in threading.enumerate() if each.name == "velodrome-cancelled"]
        threads.close()
        go_on.set()
        return mine

    mine = asyncio.run(main())
    for each in mine:
        each.join(DEADLINE_S)
    assert [len(mine), any(each.is_alive() for each in mine)] == [1, False]


def test_a_result_is_not_kept_alive_by_the_thread_that_made_it() -> None:
    class Big:
        alive = 0

        def __init__(self) -> None:
            Big.alive += 1

        def __del__(self) -> None:
            Big.alive -= 1

    async def main() -> None:
        threads = Threads(1)
        await threads.run(Big, timeout_s=DEADLINE_S)
        await threads.run(lambda: None, timeout_s=DEADLINE_S)

    asyncio.run(main())
    gc.collect()
    assert Big.alive == 0


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
