"""`collect`, `rollout` and `verify` from Python: any source of tasks, any agent, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from socket import socket
from typing import Any

import orjson
import pytest
from leaks import nothing_left
from patience import DEADLINE_S

from velodrome.api.collecting import collect, rollout, verify
from velodrome.contracts import Model, as_response
from velodrome.errors import InputError, RolloutError, VerifyError
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


def test_a_failed_rollout_is_recorded_and_others_continue():
    result = run(collect(["good", "bad", "fine"], plain, progress=False))
    assert (result.kept, result.failed, result.metrics["rollouts/failed"]) == (2, 1, 1)
    [failure] = result.failures
    assert (failure["boundary"], "no luck" in failure["error"]) == ("agent", True)


def test_a_bad_task_of_a_list_is_refused_and_of_a_stream_a_failure():
    bad = {"responses_create_params": {}}
    with pytest.raises(InputError, match="tasks:2"):
        run(collect(["good", bad], plain, progress=False))
    result = run(collect(iter(["good", bad]), plain, progress=False))
    assert (result.kept, result.failed, result.failures[0]["boundary"]) == (1, 1, "input")


def test_an_endless_source_is_read_up_to_the_limit():
    def endless() -> Any:
        while True:
            yield "again"

    result = run(collect(endless(), plain, limit=5, parallel=2, progress=False))
    assert (result.kept, len({row["meta"]["key"] for row in result.rollouts})) == (5, 5)


def test_a_budget_stops_a_stream():
    result = run(collect((str(number) for number in range(10_000)), plain, max_failures=0.0, progress=False, limit=50))
    assert (result.kept, result.stopped) == (50, None)
    stopped = run(collect((f"bad {number}" for number in range(10_000)), plain, max_failures=3, progress=False))
    assert (stopped.failed < 100, "max_failures" in stopped.stopped) == (True, True)


def test_a_component_is_an_agent_and_its_settings_and_code_are_on_record(tmp_path: Path):
    out = tmp_path / "r.jsonl"
    assert run(collect(["a"], agent(), out=out, progress=False)).metrics["reward"] == 1.0
    assert run(collect(["a", "b"], agent(), out=out, progress=False)).kept == 2
    with pytest.raises(InputError, match="word"):
        run(collect(["a", "b", "c"], agent(word="other"), out=out, progress=False))

    class Echo(Environment):
        word: str = "hi"

        def verify(self, task: Any, response: Any) -> float:
            return 0.0

    other = SimpleAgent(model=ScriptedModel(answers=["hi there"]), environment=Echo())
    with pytest.raises(InputError, match=r"source|class"):
        run(collect(["a", "b", "c"], other, out=out, progress=False))
    assert run(collect(["a", "b", "c"], other, out=out, allow_mixed=True, progress=False)).kept == 3


def test_a_class_that_is_defined_again_under_its_name_is_noticed(tmp_path: Path):
    cell = "class Weather(Environment):\n    def verify(self, task, response):\n        return REWARD\n"

    def defined(reward: str) -> SimpleAgent:
        names: Json = {"Environment": Environment, "__name__": "__main__"}
        exec(cell.replace("REWARD", reward), names)
        return SimpleAgent(model=ScriptedModel(answers=["x"]), environment=names["Weather"]())

    out = tmp_path / "r.jsonl"
    assert run(collect(["a"], defined("0.0"), out=out, progress=False)).kept == 1
    assert run(collect(["a", "b"], defined("0.0"), out=out, progress=False)).kept == 2
    with pytest.raises(InputError, match="Weather changed"):
        run(collect(["a", "b", "c"], defined("1.0"), out=out, progress=False))


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


def test_a_fault_in_the_source_of_tasks_is_raised_and_leaves_nothing(tmp_path: Path):
    async def broken() -> AsyncIterator[str]:
        yield "one"
        raise OSError("the queue is gone")

    with pytest.raises(OSError, match="the queue is gone"):
        run(collect(broken(), plain, out=tmp_path / "r.jsonl", progress=False))
    assert len((tmp_path / "r.jsonl").read_bytes().splitlines()) == 1


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


@pytest.mark.slow
def test_a_source_that_does_not_end_when_cancelled_is_cancelled_again():
    async def stubborn() -> AsyncIterator[str]:
        yield "one"
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    assert run(collect(stubborn(), plain, max_wall_s=0.05, progress=False)).kept == 1


class Quit(BaseException):
    """Neither an error nor an exit."""


@pytest.mark.parametrize("error", [SystemExit(3), Quit("enough")])
def test_an_agent_that_would_end_the_process_fails_its_own_rollout(error: BaseException):
    async def leaving(task: Json) -> Json:
        if task["responses_create_params"]["input"] == "leave":
            raise error
        return await plain(task)

    result = run(collect(["one", "leave", "two"], leaving, progress=False))
    assert (result.kept, result.failed, result.failures[0]["boundary"]) == (2, 1, "agent")
    assert type(error).__name__ in result.failures[0]["error"]


def test_a_row_with_a_key_of_another_kind_is_no_reason_to_stop(tmp_path: Path):
    out = tmp_path / "r.jsonl"
    out.write_bytes(b'{"reward": 1.0, "meta": {"key": "by hand"}}\n')
    result = run(collect(["one"], plain, out=out, progress=False))
    assert (result.kept, len(out.read_bytes().splitlines())) == (1, 2)


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


def test_an_agent_by_name_comes_from_a_config(tmp_path: Path):
    folder = "resources_servers/calculator"
    (tmp_path / "m.yaml").write_text("policy_model: {responses_api_models: {scripted_model: {answers: ['36']}}}\n")
    config = [f"{folder}/configs/calculator.yaml", tmp_path / "m.yaml"]
    tasks = [{"responses_create_params": {"input": "15% of 240?"}, "expected_answer": "36"}]
    result = run(collect(tasks, "calculator_simple_agent", config=config, progress=False))
    assert (result.kept, result.metrics["reward"]) == (1, 1.0)


@pytest.mark.parametrize(
    ("settings", "word"),
    [({"parallel": 0}, "parallel"), ({"repeats": "x"}, "repeats"), ({"config": "c.yaml"}, "config"), ({}, "agent")],
)
def test_a_mistake_in_the_call_is_an_input_error_that_names_it(settings: Json, word: str):
    with pytest.raises(InputError, match=word):
        run(collect(["a"], None if not settings else plain, progress=False, **settings))


@pytest.mark.parametrize("tasks", [None, {"id": "x", "responses_create_params": {"input": "a"}}, b"a"])
def test_what_is_not_a_source_of_tasks_is_refused(tasks: Any):
    with pytest.raises(InputError, match="tasks"):
        run(collect(tasks, plain, progress=False))


@pytest.mark.parametrize("name", ["tasks.jsonl", "tasks.txt", "", "twin.jsonl"])
def test_an_output_that_would_harm_other_files_is_refused(name: str, tmp_path: Path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_bytes(b'{"responses_create_params": {"input": "a"}}\n')
    (tmp_path / "twin.jsonl.zst").touch()
    for call in (collect(tasks, plain, out=tmp_path / name), verify(tasks, Echo(), out=tmp_path / name)):
        with pytest.raises(InputError):
            run(call)
    assert tasks.read_bytes().count(b"\n") == 1


def test_without_progress_nothing_is_printed(capfd: pytest.CaptureFixture[str]):
    run(collect(["a"], plain, progress=False))
    assert capfd.readouterr() == ("", "")
    run(collect(["a"], plain))
    printed = capfd.readouterr()
    assert (printed.out, "Collecting rollouts" in printed.err) == ("", True)


def test_a_verifier_that_fails_is_blamed():
    class Strict(Environment):
        def verify(self, task: Any, response: Any) -> float:
            raise RuntimeError("no such luck")

    live = SimpleAgent(model=ScriptedModel(answers=["x"]), environment=Strict())
    with pytest.raises(
        VerifyError, match=r"^verify: RuntimeError: no such luck \(\S*test_collecting.py:\d+ in "
    ) as raised:
        run(rollout("a", live))
    assert str(raised.value).endswith(f"({raised.value.place})")
    [reason] = run(collect(["a"], live, progress=False)).reasons
    assert reason == str(raised.value)


async def echo_model(request: Any) -> str:
    return "hi there"


class Judged(Echo):
    judge: Model


class Answering:
    async def respond(self, request: Any) -> Any:
        response: Json = as_response("hi there", "answering", request)
        return response

    async def aclose(self) -> None: ...


def test_models_that_are_functions_or_objects_are_the_same_on_resume(tmp_path: Path):
    def made() -> SimpleAgent:
        return SimpleAgent(model=Answering(), environment=Judged(judge=echo_model))

    out = tmp_path / "rollouts.jsonl"
    assert run(collect(["a", "b"], made(), out=out, limit=1)).kept == 1
    assert run(collect(["a", "b"], made(), out=out)).kept == 2
    with pytest.raises(InputError, match="model"):
        run(collect(["a", "b", "c"], SimpleAgent(model=echo_model, environment=Judged(judge=echo_model)), out=out))
