"""A cancelled call closes every session it opened before it ends; a second cancellation does not wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.leaks import nothing_left
from tests.support.patience import DEADLINE_S
from velodrome.api.collecting import collect, rollout, verify
from velodrome.collector.agents import LiveAgents
from velodrome.collector.collection import Surface
from velodrome.collector.collection import collect as run_collection
from velodrome.collector.pace import Stop
from velodrome.collector.settings import CollectSettings
from velodrome.resources_servers.environment import Environment
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.scope import Scope

TASKS = [f"q {number}" for number in range(12)]


class Counted(Environment):
    """Counts its sessions. `busy` says that something is held, which `hold` lets go on."""

    def setup(self) -> None:
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.hold = threading.Event()
        self.busy = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def seed_session(self, task: Any) -> int:
        self.opened.append(len(self.opened))
        return self.opened[-1]

    def close_session(self, session: int) -> Any:
        self.closed.append(session)

    def verify(self, task: Any, response: Any) -> float:
        return 1.0

    def wait_in_a_thread(self) -> None:
        self.loop.call_soon_threadsafe(self.busy.set)
        self.hold.wait(DEADLINE_S)


class ClosesSlowly(Counted):
    async def close_session(self, session: int) -> None:
        self.busy.set()
        while not self.hold.is_set():  # noqa: ASYNC110 - the other kinds wait for it in threads
            await asyncio.sleep(0)
        self.closed.append(session)


class ClosesInThreads(Counted):
    def close_session(self, session: int) -> None:
        self.wait_in_a_thread()
        self.closed.append(session)


class SeedsSlowly(Counted):
    def seed_session(self, task: Any) -> int:
        self.wait_in_a_thread()
        return super().seed_session(task)


def agent(environment: Environment) -> SimpleAgent:
    return SimpleAgent(model=ScriptedModel(answers=["hi"]), environment=environment)


async def cancelled(call: asyncio.Task[Any], environment: Counted, *, release: bool = True) -> None:
    await environment.busy.wait()
    call.cancel()
    loop = asyncio.get_running_loop()
    if release:
        loop.call_later(0.01, environment.hold.set)
    else:
        loop.call_later(0.01, call.cancel)
    with pytest.raises(asyncio.CancelledError):
        await call


def run(main: Callable[[], Any]) -> Any:
    async def watched() -> Any:
        async with nothing_left():
            return await main()

    return asyncio.run(asyncio.wait_for(watched(), DEADLINE_S))


@pytest.mark.parametrize("kind", [ClosesSlowly, ClosesInThreads, SeedsSlowly])
@pytest.mark.parametrize("call", ["collect", "rollout", "agent", "verify"])
def test_a_cancelled_call_closes_every_session_it_opened(kind: type[Counted], call: str, tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"

    async def main() -> Counted:
        environment = kind(threads=2)
        if call == "collect":
            work = collect(TASKS, agent(environment), progress=False)
        elif call == "verify":
            await collect(TASKS, agent(Counted()), out=path, progress=False)
            work = verify(path, environment, progress=False)
        else:
            work = rollout("q", agent(environment)) if call == "rollout" else agent(environment).run("q")
        await cancelled(asyncio.create_task(work), environment)
        environment._threads.close()
        return environment

    environment = run(main)
    assert environment.opened
    assert sorted(environment.closed) == environment.opened


@pytest.mark.slow
def test_a_second_cancellation_or_interrupt_does_not_wait_for_a_session_that_does_not_close(tmp_path: Path) -> None:
    async def cancelled_twice() -> Counted:
        environment = ClosesSlowly()
        call = asyncio.create_task(collect(TASKS, agent(environment), progress=False))
        await cancelled(call, environment, release=False)
        return environment

    async def interrupted_twice() -> int:
        environment, stop = ClosesSlowly(), Stop()
        settings = CollectSettings(output=tmp_path / "r.jsonl", drain_s=2 * DEADLINE_S)
        async with Scope():
            agents = LiveAgents(agent(environment))
            call = asyncio.create_task(run_collection(settings, agents, TASKS, Surface(stop=stop)))
            await environment.busy.wait()
            stop.interrupt()
            stop.interrupt()
            return (await call).left

    environment = run(cancelled_twice)
    assert (bool(environment.opened), environment.closed) == (True, [])
    assert run(interrupted_twice) == len(TASKS)
