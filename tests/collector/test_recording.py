"""Record and replay: a second run makes no model call and gives the same rollouts."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from patience import DEADLINE_S

import velodrome as velo
from velodrome.collector.recording.answers import NAME, AnswerStore
from velodrome.contracts import Model
from velodrome.errors import InputError, ModelError
from velodrome.records.events import ENDS, whole
from velodrome.records.response_fields import complete
from velodrome.resources_servers.environment import tool
from velodrome.serving.scripted import ScriptedServer
from velodrome.settings.component import Component

Json = dict[str, Any]
TASKS = [{"id": f"t{number}", "responses_create_params": {"input": f"say {number}"}} for number in range(6)]


class Dice(Component):
    """A model that never says the same twice. `asked` counts its calls."""

    temperature: float = 1.0
    timeout_s: float = 1.0

    def setup(self) -> None:
        self.asked = 0
        self._chance = random.Random()

    async def respond(self, request: Json) -> Json:
        self.asked += 1
        text = f"I rolled {self._chance.random()}"
        answer: Json = {"type": "message", "content": text}
        if not any(item.get("type") == "function_call" for item in request["input"]) and "judge" not in str(request):
            answer = {"type": "function_call", "name": "roll", "call_id": "c", "arguments": "{}"}
        return complete({"output": [answer], "usage": {"input_tokens": 3, "output_tokens": 4}}, request)


class Gone(Dice):
    """The same model, which nobody can reach. It is given the same name, because a class is part of what a model is."""

    async def respond(self, request: Json) -> Json:
        raise ModelError("the model was called")


Gone.__name__, Gone.__qualname__ = Dice.__name__, Dice.__qualname__


class Table(velo.Environment):
    """Has a tool, and a judge whose word is in the reward's fields."""

    judge: Model

    @tool
    async def roll(self) -> str:
        """Roll."""
        return "rolled"

    async def verify(self, task: Any, response: Any) -> Json:
        verdict = await self.judge.ask(f"judge {response.text}")  # type: ignore[attr-defined]
        return {"reward": 1.0, "verdict": verdict.text}


def agent(model: Any, judge: Any = None) -> velo.SimpleAgent:
    return velo.SimpleAgent(model=model, environment=Table(judge=judge or model))


def collect(out: Path, live: Any, cache: Path, mode: str = "auto", **settings: Any) -> velo.Run:
    work = velo.collect(TASKS, live, out=out, model_cache=cache, model_cache_mode=mode, progress=False, **settings)
    return asyncio.run(asyncio.wait_for(work, DEADLINE_S))


def timeless(path: Path) -> list[bytes]:
    """Every byte of every row, in the order of keys, but for the two fields that are about time."""
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    for row in rows:
        del row["meta"]["timing"], row["meta"]["finished_at"]
    return [orjson.dumps(row) for row in sorted(rows, key=lambda row: row["meta"]["key"])]


@pytest.fixture
def same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Own code is part of what a model is; here the class that fails passes for the one that answers."""
    monkeypatch.setattr("velodrome.collector.agents.code_digest", lambda kind: None)


@pytest.mark.usefixtures("same_code")
def test_a_replayed_collection_makes_no_model_call_and_gives_the_same_bytes(tmp_path: Path):
    model = Dice()
    first = collect(tmp_path / "a.jsonl", agent(model), tmp_path / "cache", "record", repeats=3)
    again = collect(tmp_path / "b.jsonl", agent(Gone()), tmp_path / "cache", "replay", repeats=3)
    assert (first.kept, again.kept, again.failed, model.asked) == (18, 18, 0, 18 * 3)
    assert timeless(tmp_path / "a.jsonl") == timeless(tmp_path / "b.jsonl")
    assert len({row["verdict"] for row in first.rollouts}) == 18  # the repeats of a task have answers of their own


def test_workers_share_one_store(tmp_path: Path):
    first = collect(tmp_path / "a.jsonl", agent(Dice()), tmp_path / "cache", "record", repeats=3, workers=2)
    again = collect(tmp_path / "b.jsonl", agent(Dice()), tmp_path / "cache", "replay", repeats=3, workers=2)
    alone = collect(tmp_path / "c.jsonl", agent(Dice()), tmp_path / "cache", "replay", repeats=3)
    assert (first.kept, again.kept, alone.kept) == (18, 18, 18)
    assert timeless(tmp_path / "a.jsonl") == timeless(tmp_path / "b.jsonl") == timeless(tmp_path / "c.jsonl")


@pytest.mark.usefixtures("same_code")
def test_auto_asks_only_for_what_is_missing(tmp_path: Path):
    collect(tmp_path / "a.jsonl", agent(Dice()), tmp_path / "cache", repeats=1)
    model = Dice()
    run = collect(tmp_path / "b.jsonl", agent(model), tmp_path / "cache", repeats=2)
    assert (run.kept, model.asked) == (12, 6 * 3)
    assert set(timeless(tmp_path / "a.jsonl")) < set(timeless(tmp_path / "b.jsonl"))


def test_record_always_asks_and_off_neither_reads_nor_writes(tmp_path: Path):
    model = Dice()
    collect(tmp_path / "a.jsonl", agent(model), tmp_path / "cache", "record")
    collect(tmp_path / "b.jsonl", agent(model), tmp_path / "cache", "record")
    assert model.asked == 2 * 6 * 3
    collect(tmp_path / "c.jsonl", agent(model), tmp_path / "cache", "replay")
    assert timeless(tmp_path / "c.jsonl") == timeless(tmp_path / "b.jsonl")
    collect(tmp_path / "d.jsonl", agent(model), tmp_path / "other", "off")
    assert model.asked == 3 * 6 * 3
    assert not (tmp_path / "other").exists()


def test_an_answer_that_was_not_recorded_is_a_failure_of_the_model(tmp_path: Path):
    model = Dice()
    collect(tmp_path / "a.jsonl", agent(model), tmp_path / "cache", "record", limit=4)
    run = collect(tmp_path / "b.jsonl", agent(model), tmp_path / "cache", "replay")
    assert (run.kept, run.failed, model.asked) == (4, 2, 4 * 3)
    assert {failure["boundary"] for failure in run.failures} == {"model"}
    assert all("model_cache" in failure["error"] for failure in run.failures)


def test_other_settings_of_the_model_are_asked_again_and_other_timeouts_are_not(tmp_path: Path):
    collect(tmp_path / "a.jsonl", agent(Dice()), tmp_path / "cache")
    patient, cold = Dice(timeout_s=9.0), Dice(temperature=0.0)
    collect(tmp_path / "b.jsonl", agent(patient), tmp_path / "cache")
    collect(tmp_path / "c.jsonl", agent(cold), tmp_path / "cache")
    assert (patient.asked, cold.asked) == (0, 18)


def test_another_seed_of_the_run_is_asked_again_whichever_part_adds_it(tmp_path: Path):
    async def own(request: Json) -> str:
        asked.append(request["seed"])
        return "fine"

    class Asks:
        def __init__(self, model: Any) -> None:
            self.model = velo.SimpleAgent(model=model, environment=Table(judge=own)).model

        async def run(self, task: Json) -> Json:
            return {"response": await self.model.respond(task["responses_create_params"]), "reward": 1.0}

    asked: list[int] = []
    live = Asks(own)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        collect(tmp_path / f"{name}.jsonl", live, tmp_path / "cache", seed=seed)
    assert len(asked) == len(set(asked)) == 12


def test_equal_requests_of_one_rollout_have_answers_of_their_own(tmp_path: Path):
    class Twice:
        def __init__(self, model: Any) -> None:
            self.model = model

        async def run(self, task: Json) -> Json:
            request = {"input": [{"role": "user", "content": "judge"}]}
            answers = [await self.model.respond(request) for _ in range(3)]
            texts = [answer["output"][0]["content"][0]["text"] for answer in answers]
            return {"response": answers[-1], "reward": 1.0, "texts": texts}

    model = Dice()
    run = collect(tmp_path / "a.jsonl", Twice(model), tmp_path / "cache")
    assert all(len(set(row["texts"])) == 3 for row in run.rollouts)
    collect(tmp_path / "b.jsonl", Twice(model), tmp_path / "cache")
    assert (model.asked, timeless(tmp_path / "a.jsonl")) == (18, timeless(tmp_path / "b.jsonl"))


def test_failures_and_answers_that_are_none_are_not_stored(tmp_path: Path):
    class Flaky(Dice):
        async def respond(self, request: Json) -> Json:
            self.asked += 1
            if self.asked % 3 == 0:
                raise ModelError("no luck")
            return complete({"output": [] if self.asked % 3 == 1 else [{"type": "message", "content": "ok"}]}, request)

    class Persistent:
        def __init__(self, model: Any) -> None:
            self.model = model

        async def run(self, task: Json) -> Json:
            for _ in range(3):
                try:
                    answer = await self.model.respond(task["responses_create_params"])
                except ModelError:
                    continue
                if answer["output"]:
                    return {"response": answer, "reward": 1.0}
            raise ModelError("never")

    run = collect(tmp_path / "a.jsonl", Persistent(Flaky()), tmp_path / "cache", parallel=1)
    assert run.kept == 6
    store = AnswerStore(tmp_path / "cache", recorded=True)
    try:
        assert store.count() == 6
    finally:
        store.close()


def test_a_stream_is_stored_whole(tmp_path: Path):
    class Speaker(Dice):
        async def stream(self, request: Json) -> AsyncGenerator[Json, None]:
            for event in whole(await self.respond(request)):
                yield event

    class Listener:
        def __init__(self, model: Any) -> None:
            self.model = model

        async def run(self, task: Json) -> Json:
            request = {"input": [{"role": "user", "content": "judge"}]}
            async with aclosing(self.model.stream(request)) as events:
                seen = [event async for event in events]
            assert seen[-1]["type"] in ENDS
            return {"response": seen[-1]["response"], "reward": 1.0, "events": len(seen)}

    model = Speaker()
    collect(tmp_path / "a.jsonl", Listener(model), tmp_path / "cache")
    collect(tmp_path / "b.jsonl", Listener(model), tmp_path / "cache", "replay")
    assert (model.asked, timeless(tmp_path / "a.jsonl")) == (6, timeless(tmp_path / "b.jsonl"))


def test_a_live_agent_has_its_models_back_also_after_two_runs_at_once(tmp_path: Path):
    model, judge = Dice(), Dice()
    live = agent(model, judge)

    async def both() -> None:
        names = ("a", "b")
        await asyncio.gather(
            *(velo.collect(TASKS, live, model_cache=tmp_path / name, progress=False) for name in names)
        )

    asyncio.run(both())
    assert live.model is model
    assert live.environment.judge.__wrapped__ is judge  # type: ignore[attr-defined]
    assert (model.asked, judge.asked) == (2 * 12, 2 * 6)


CONFIG = """
m:
  responses_api_models:
    openai_model: {{openai_base_url: "{url}", openai_model: x, openai_api_key: {secret}, endpoint: responses}}
env:
  resources_servers:
    calculator: {{}}
solo:
  responses_api_agents:
    simple_agent:
      model_server: {{type: responses_api_models, name: m}}
      resources_server: {{type: resources_servers, name: env}}
"""


def velo_collect(folder: Path, out: str, *settings: str) -> subprocess.Popen[str]:
    words = ["+config_paths=[c.yaml]", "+input_jsonl_fpath=t.jsonl", f"+output_jsonl_fpath={out}", "+embedded=true"]
    command = [str(Path(sys.executable).with_name("velo")), "collect", *words, "+model_cache=cache", *settings]
    return subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_processes_record_at_once_and_another_replays_without_the_server_or_the_secret(tmp_path: Path):
    from velodrome.responses_api_models.scripted_model.app import ScriptedModel

    tasks = [{"id": n, "expected_answer": 4, "responses_create_params": {"input": f"{n}?"}} for n in range(40)]
    (tmp_path / "t.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))

    async def record() -> None:
        async with ScriptedServer(ScriptedModel(answers=["it is 4"])) as server:
            (tmp_path / "c.yaml").write_text(CONFIG.format(url=server.url, secret="sk-very-secret"))
            several = [velo_collect(tmp_path, f"{name}.jsonl", f"+num_repeats={n}") for n, name in ((1, "a"), (2, "b"))]
            for each in several:
                _, said = await asyncio.to_thread(each.communicate, timeout=DEADLINE_S)
                assert each.returncode == 0, said
                assert "model_cache: " in said

    asyncio.run(record())
    (tmp_path / "c.yaml").write_text(CONFIG.format(url="http://127.0.0.1:9/v1", secret="sk-other"))
    replay = velo_collect(tmp_path, "again.jsonl", "+model_cache_mode=replay", "+num_repeats=2")
    _, said = replay.communicate(timeout=DEADLINE_S)
    assert replay.returncode == 0, said
    kept = {orjson.loads(line)["meta"]["key"] for line in timeless(tmp_path / "again.jsonl")}
    assert len(kept) == 80
    with closing(sqlite3.connect(tmp_path / "cache" / NAME)) as database:
        assert database.execute("SELECT count(*) FROM answer").fetchone() == (80,)
    assert b"very-secret" not in b"".join(path.read_bytes() for path in (tmp_path / "cache").iterdir())


def test_an_answer_with_a_secret_of_the_config_in_it_is_not_stored(tmp_path: Path):
    from velodrome.responses_api_models.scripted_model.app import ScriptedModel

    tasks = [{"id": n, "expected_answer": 4, "responses_create_params": {"input": f"{n}?"}} for n in range(2)]
    (tmp_path / "t.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))

    async def record() -> None:
        async with ScriptedServer(ScriptedModel(answers=["sk-very-secret is 4"])) as server:
            (tmp_path / "c.yaml").write_text(CONFIG.format(url=server.url, secret="sk-very-secret"))
            each = velo_collect(tmp_path, "a.jsonl")
            await asyncio.to_thread(each.communicate, timeout=DEADLINE_S)

    asyncio.run(record())
    with closing(sqlite3.connect(tmp_path / "cache" / NAME)) as database:
        assert database.execute("SELECT count(*) FROM answer").fetchone() == (0,)


async def bare(task: Json) -> Json:
    return {"output": "x", "reward": 1.0}


@pytest.mark.parametrize(
    ("live", "cache", "mode", "says"),
    [
        ("model", "file", "auto", "file"),
        ("model", "empty", "replay", "no recorded answers"),
        ("model", "broken", "auto", "cannot be used"),
        ("model", None, "replay", "model_cache"),
        ("bare", "empty", "auto", "no model that can be recorded"),
    ],
)
def test_what_cannot_be_recorded_is_one_clear_line(tmp_path: Path, live: str, cache: str | None, mode: str, says: str):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / NAME).write_bytes(b"not a database" * 100)
    where = None if cache is None else tmp_path / cache
    with pytest.raises(InputError, match=says) as caught:
        collect(tmp_path / "a.jsonl", agent(Dice()) if live == "model" else bare, where, mode)  # type: ignore[arg-type]
    assert len(caught.value.problems) == 1
    assert not (tmp_path / "a.jsonl").exists()


def test_an_agent_that_runs_as_a_server_is_refused(tmp_path: Path):
    config = CONFIG.format(url="http://127.0.0.1:9/v1", secret="x")
    (tmp_path / "c.yaml").write_text(
        config.replace("    simple_agent:\n", "    simple_agent:\n      url: http://127.0.0.1:9\n")
    )
    (tmp_path / "t.jsonl").write_bytes(orjson.dumps(TASKS[0]) + b"\n")
    each = velo_collect(tmp_path, "a.jsonl")
    _, said = each.communicate(timeout=DEADLINE_S)
    assert (each.returncode, "solo is a server" in said) == (2, True), said
