"""`collect`, `rollout` and `verify` from Python: any source of tasks, any agent, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from socket import socket
from typing import Any

import orjson
import pytest

from tests.support.leaks import nothing_left
from tests.support.patience import DEADLINE_S
from velodrome.api.collecting import collect, rollout, verify
from velodrome.contracts import as_response
from velodrome.errors import InputError, RolloutError
from velodrome.resources_servers.environment import Environment
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.scripted import ScriptedServer

Json = dict[str, Any]


class Echo(Environment):
    """Rewards an answer with the right word."""

    word: str = "hi"

    def verify(self, task: Any, response: Any) -> float:
        """Whether the word is in the answer."""
        return float(self.word in response.text)


def agent(answer: str = "hi there", **settings: Any) -> SimpleAgent:
    return SimpleAgent(model=ScriptedModel(answers=[answer]), environment=Echo(**settings))


async def plain(task: Json) -> Json:
    """An agent that is a function."""
    text = task["responses_create_params"]["input"]
    if "bad" in text:
        raise ValueError("no luck")
    return {"output": f"you said {text}", "reward": float(len(text))}


def run(work: Any) -> Any:
    """In a loop that must be as empty afterwards as before."""

    async def main() -> Any:
        async with nothing_left():
            return await asyncio.wait_for(work, DEADLINE_S)

    return asyncio.run(main())


async def slowly(*tasks: Any) -> AsyncIterator[Any]:
    for task in tasks:
        await asyncio.sleep(0)
        yield task


SOURCES: dict[str, Callable[[Path], Any]] = {
    "a list": lambda folder: ["one", {"id": "x", "responses_create_params": {"input": "three"}}],
    "a generator": lambda folder: (text for text in ("one", "three")),
    "an asynchronous one": lambda folder: slowly("one", "three"),
    "a file": lambda folder: folder / "tasks.jsonl",
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_tasks_come_from_anywhere_and_without_an_output_rollouts_stay_in_memory(
    source: Callable[[Path], Any], tmp_path: Path
):
    rows = [{"responses_create_params": {"input": text}} for text in ("one", "three")]
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    result = run(collect(source(tmp_path), plain, repeats=2, progress=False))
    assert (result.requested, result.kept, result.failed, result.stopped) == (4, 4, 0, None)
    assert sorted(row["reward"] for row in result.rollouts) == [3.0, 3.0, 5.0, 5.0]
    assert result.metrics["reward"] == 4.0
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.jsonl"]


@pytest.mark.parametrize("source", list(SOURCES.values())[:3], ids=list(SOURCES)[:3])
def test_the_same_call_again_continues(source: Callable[[Path], Any], tmp_path: Path):
    out = tmp_path / "r.jsonl"
    first = run(collect(source(tmp_path), plain, out=out, limit=1, progress=False))
    again = run(collect(source(tmp_path), plain, out=out, progress=False))
    assert (first.kept, again.requested, again.kept, len(again.rollouts)) == (1, 2, 2, 2)
    assert again.metrics["rollouts/kept"] == 2


def test_a_bad_task_of_a_list_is_refused_and_of_a_stream_a_failure_while_others_continue(
    capfd: pytest.CaptureFixture[str],
):
    bad = {"responses_create_params": {}}
    with pytest.raises(InputError, match="tasks:2"):
        run(collect(["good", bad], plain, progress=False))
    result = run(collect(iter(["good", bad, "bad", "fine"]), plain, progress=False))
    assert (result.kept, result.failed, result.metrics["rollouts/failed"]) == (2, 2, 2)
    assert {failure["boundary"] for failure in result.failures} == {"input", "agent"}
    assert capfd.readouterr() == ("", "")
    run(collect(["a"], plain))
    printed = capfd.readouterr()
    assert (printed.out, "Collecting rollouts" in printed.err) == ("", True)


def test_an_endless_source_is_read_up_to_the_limit_or_the_budget():
    result = run(
        collect((str(number) for number in count()), plain, limit=5, parallel=2, max_failures=0.0, progress=False)
    )
    assert (result.kept, result.stopped, len({row["meta"]["key"] for row in result.rollouts})) == (5, None, 5)
    stopped = run(collect((f"bad {number}" for number in count()), plain, max_failures=3, progress=False))
    assert (stopped.failed < 100, "max_failures" in stopped.stopped) == (True, True)


async def echo_model(request: Any) -> str:
    return "hi there"


class Answering:
    async def respond(self, request: Any) -> Any:
        return as_response("hi there", "answering", request)

    async def aclose(self) -> None: ...


def test_the_settings_models_and_code_of_an_agent_are_on_record(tmp_path: Path):
    def kept(tasks: list[str], environment: Environment, model: Any, **settings: Any) -> int:
        live = SimpleAgent(model=model, environment=environment)
        return run(collect(tasks, live, out=tmp_path / "r.jsonl", progress=False, **settings)).kept

    class Echo_(Environment):
        word: str = "hi"

        def verify(self, task: Any, response: Any) -> float:
            return 0.0

    Echo_.__name__ = "Echo"
    assert kept(["a"], Echo(), Answering()) == 1
    assert kept(["a", "b"], Echo(), Answering()) == 2  # made again, it is the same
    for environment, model, place in ((Echo(word="other"), Answering(), "word"), (Echo(), echo_model, "model")):
        with pytest.raises(InputError, match=place):
            kept(["a", "b", "c"], environment, model)
    with pytest.raises(InputError, match=r"source|class"):
        kept(["a", "b", "c"], Echo_(), Answering())
    assert kept(["a", "b", "c"], Echo_(), Answering(), allow_mixed=True) == 3


def test_connections_of_two_calls_at_once_are_apart_and_closed():
    async def main() -> None:
        async with ScriptedServer(ScriptedModel(answers=["hi"], latency_s=0.002)) as server:
            model = OpenAI(base_url=server.url, model="m", api_key="k")
            live = SimpleAgent(model=model, environment=Echo())
            async with nothing_left():
                tasks = [f"q {number}" for number in range(40)]
                short, long = await asyncio.gather(
                    collect(tasks[:2], live, progress=False), collect(tasks, live, parallel=2, progress=False)
                )
            assert (short.kept, long.kept, long.failed) == (2, 40, 0)

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


def test_cancelling_closes_everything_and_what_was_finished_is_in_the_output(tmp_path: Path):
    out = tmp_path / "r.jsonl"
    finished, forever = asyncio.Event(), asyncio.Event()
    cancelled = []

    async def some(task: Json) -> Json:
        if int(task["id"]) >= 3:
            finished.set()
            try:
                await forever.wait()
            except asyncio.CancelledError:
                cancelled.append(task["id"])
                raise
        return {"output": "x", "reward": 1.0}

    async def main() -> None:
        async with nothing_left():
            tasks = [{"id": number, "responses_create_params": {"input": "q"}} for number in range(20)]
            call = asyncio.create_task(collect(tasks, some, out=out, parallel=4, progress=False))
            await finished.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))
    keys = [orjson.loads(line)["meta"]["key"] for line in out.read_bytes().splitlines()]
    assert (sorted(keys), len(cancelled) > 0) == (["0/0", "1/0", "2/0"], True)


def test_the_wait_for_a_server_is_not_prolonged_by_retries():
    with socket() as taken:  # bound and not listening: refuses
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        model = OpenAI(base_url=address, model="m", api_key="k", max_retries=5, backoff_s=2 * DEADLINE_S)
        live = SimpleAgent(model=model, environment=Echo())
        result = run(collect(["a"], live, server_wait_s=0.01, progress=False))
    assert (result.left, result.stopped) == (1, f"{address} could not be reached for 0.01 s")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_fault_in_the_source_lets_rollouts_in_flight_finish(asynchronous: bool, tmp_path: Path):
    async def patient(task: Json) -> Json:
        for _ in range(20):
            await asyncio.sleep(0)
        return await plain(task)

    def broken() -> Iterator[str]:
        yield from ("one", "two", "three")
        raise OSError("the queue is gone")

    async def broken_slowly() -> AsyncIterator[str]:
        for task in broken():
            yield task

    with pytest.raises(OSError, match="the queue is gone"):
        run(collect(broken_slowly() if asynchronous else broken(), patient, out=tmp_path / "r.jsonl", progress=False))
    assert len((tmp_path / "r.jsonl").read_bytes().splitlines()) == 3


def test_one_rollout_is_returned_or_raises_its_error():
    row = run(rollout("say hi", agent()))
    assert (row["reward"], row["response"]["content"], row["meta"]["agent"]) == (1.0, "hi there", "SimpleAgent")
    with pytest.raises(RolloutError, match="no luck"):
        run(rollout("bad", plain))
    with pytest.raises(InputError, match="input"):
        run(rollout({"responses_create_params": {}}, plain))


def test_a_saved_file_is_scored_by_a_live_environment_or_agent(tmp_path: Path):
    out = tmp_path / "r.jsonl"
    assert run(collect(["a", "b"], agent(), out=out, defer=True, progress=False)).metrics["rollouts/deferred"] == 2
    assert run(verify(out, Echo(word="there"), progress=False)).metrics["reward"] == 1.0
    scored = run(verify(out, agent(word="absent"), out=tmp_path / "again.jsonl", progress=False))
    assert (scored.kept, scored.metrics["reward"], scored.output) == (2, 0.0, tmp_path / "again.jsonl")


def test_a_mistake_in_the_call_is_an_input_error_that_names_it():
    calls: list[tuple[Any, Any, Json, str]] = [
        (["a"], plain, {"parallel": 0}, "parallel"),
        (["a"], plain, {"config": "c.yaml"}, "config"),
        (["a"], None, {}, "agent"),
        (None, plain, {}, "tasks"),
        ({"id": "x", "responses_create_params": {"input": "a"}}, plain, {}, "tasks"),
    ]
    for tasks, live, settings, word in calls:
        with pytest.raises(InputError, match=word):
            run(collect(tasks, live, progress=False, **settings))


def test_an_agent_that_changes_the_working_directory_moves_no_file_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)

    async def moving(task: Json) -> Json:
        os.chdir(there)
        return {"output": "hi", "reward": 1.0}

    Path("t.jsonl").write_text('{"id": "a", "responses_create_params": {"input": "?"}}\n')
    for repeats in (1, 3):
        os.chdir(here)
        run = asyncio.run(collect("t.jsonl", moving, out="r.jsonl", repeats=repeats, parallel=1, progress=False))
        assert (run.kept, run.unwritten, list(there.iterdir())) == (repeats, (), [])
    assert {"r.jsonl", "r.run.json", "r.metrics.json", "r.profile.json"} <= {path.name for path in here.iterdir()}
