"""Record and replay: a second run makes no model call and gives the same rollouts."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from tests.collector.embedded import lines_of, write_tasks
from tests.support.patience import DEADLINE_S
from velodrome.collector.recording import ANSWERS
from velodrome.contracts import Model
from velodrome.errors import InputError, ModelError
from velodrome.records.response_fields import complete
from velodrome.resources_servers.environment import tool
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
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
    """An agent whose models are recorded ones."""
    model = velo.recorded(model)
    return velo.SimpleAgent(model=model, environment=Table(judge=velo.recorded(judge) if judge else model))


def collect(out: Path, live: Any, cache: Path, mode: str = "auto", **settings: Any) -> velo.Run:
    work = velo.collect(TASKS, live, out=out, model_cache=cache, model_cache_mode=mode, progress=False, **settings)
    return asyncio.run(asyncio.wait_for(work, DEADLINE_S))


def timeless(path: Path) -> list[bytes]:
    """Every byte of every row, in the order of keys, but for the two fields that are about time."""
    rows = lines_of(path)
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


@pytest.mark.slow
def test_workers_share_one_store(tmp_path: Path):
    first = collect(tmp_path / "a.jsonl", agent(Dice()), tmp_path / "cache", "record", repeats=3, workers=2)
    alone = collect(tmp_path / "c.jsonl", agent(Dice()), tmp_path / "cache", "replay", repeats=3)
    assert (first.kept, alone.kept) == (18, 18)
    assert timeless(tmp_path / "a.jsonl") == timeless(tmp_path / "c.jsonl")


@pytest.mark.usefixtures("same_code")
def test_auto_asks_only_for_what_is_missing(tmp_path: Path):
    collect(tmp_path / "a.jsonl", agent(Dice()), tmp_path / "cache", repeats=1)
    model = Dice()
    run = collect(tmp_path / "b.jsonl", agent(model), tmp_path / "cache", repeats=2)
    assert (run.kept, model.asked) == (12, 6 * 3)
    assert set(timeless(tmp_path / "a.jsonl")) < set(timeless(tmp_path / "b.jsonl"))


def test_record_always_asks_and_off_neither_reads_nor_writes(tmp_path: Path):
    model = Dice()
    for name in "ab":
        collect(tmp_path / f"{name}.jsonl", agent(model), tmp_path / "cache", "record")
    assert model.asked == 2 * 6 * 3
    collect(tmp_path / "c.jsonl", agent(model), tmp_path / "cache", "replay")
    assert timeless(tmp_path / "c.jsonl") == timeless(tmp_path / "b.jsonl")
    collect(tmp_path / "d.jsonl", agent(model), tmp_path / "other", "off")
    assert (model.asked, (tmp_path / "other").exists()) == (3 * 6 * 3, False)


def test_an_answer_that_was_not_recorded_is_a_failure_of_the_model(tmp_path: Path):
    model = Dice()
    collect(tmp_path / "a.jsonl", agent(model), tmp_path / "cache", "record", limit=4)
    run = collect(tmp_path / "b.jsonl", agent(model), tmp_path / "cache", "replay")
    assert (run.kept, run.failed, model.asked) == (4, 2, 4 * 3)
    assert {failure["boundary"] for failure in run.failures} == {"model"}
    assert all("model_cache" in failure["error"] for failure in run.failures)


def test_other_settings_of_the_model_and_other_seeds_are_asked_again_and_other_timeouts_are_not(tmp_path: Path):
    collect(tmp_path / "a.jsonl", agent(Dice()), tmp_path / "cache")
    patient, cold = Dice(timeout_s=9.0), Dice(temperature=0.0)
    collect(tmp_path / "b.jsonl", agent(patient), tmp_path / "cache")
    collect(tmp_path / "c.jsonl", agent(cold), tmp_path / "cache")
    collect(tmp_path / "d.jsonl", agent(patient), tmp_path / "cache", seed=1)  # another request
    assert (patient.asked, cold.asked) == (18, 18)


class Asks:
    """An agent that does to its model what a test says."""

    def __init__(self, model: Any, act: Callable[[Any], Awaitable[Json]]) -> None:
        self.model = velo.recorded(model)
        self._act = act

    async def run(self, task: Json) -> Json:
        return await self._act(self.model)


REQUEST = {"input": [{"role": "user", "content": "judge"}]}


def test_equal_requests_of_one_rollout_have_answers_of_their_own(tmp_path: Path):
    async def twice(model: Any) -> Json:
        answers = [await model.respond(REQUEST) for _ in range(2)]
        texts = [answer["output"][0]["content"][0]["text"] for answer in answers]
        return {"response": answers[-1], "reward": 1.0, "texts": texts}

    model = Dice()
    run = collect(tmp_path / "a.jsonl", Asks(model, twice), tmp_path / "cache")
    assert all(len(set(row["texts"])) == 2 for row in run.rollouts)
    collect(tmp_path / "b.jsonl", Asks(model, twice), tmp_path / "cache")
    assert (model.asked, timeless(tmp_path / "a.jsonl")) == (12, timeless(tmp_path / "b.jsonl"))


def test_failures_and_answers_that_are_none_are_not_stored(tmp_path: Path):
    class Flaky(Dice):
        async def respond(self, request: Json) -> Json:
            self.asked += 1
            if self.asked % 3 == 0:
                raise ModelError("no luck")
            return complete({"output": [] if self.asked % 3 == 1 else [{"type": "message", "content": "ok"}]}, request)

    async def persist(model: Any) -> Json:
        for _ in range(3):
            with suppress(ModelError):
                answer = await model.respond(REQUEST)
                if answer["output"]:
                    return {"response": answer, "reward": 1.0}
        raise ModelError("never")

    run = collect(tmp_path / "a.jsonl", Asks(Flaky(), persist), tmp_path / "cache", parallel=1)
    assert (run.kept, count(tmp_path)) == (6, 6)


def test_two_runs_at_once_record_into_their_own_folders_and_outside_a_run_it_is_the_model(tmp_path: Path):
    model, judge = Dice(), Dice()
    live = agent(model, judge)

    async def both() -> None:
        names = ("a", "b")
        await asyncio.gather(
            *(velo.collect(TASKS, live, model_cache=tmp_path / name, progress=False) for name in names)
        )
        await velo.rollout(TASKS[0], live)

    asyncio.run(both())
    assert (model.asked, judge.asked) == (2 * 12 + 2, 2 * 6 + 1)


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


def configured(
    folder: Path, url: str = "http://127.0.0.1:9/v1", secret: str = "sk-very-secret", agent: str = ""
) -> Path:
    """The config of a folder that has its tasks beside it."""
    write_tasks(folder / "t.jsonl", range(40), expected_answer=4)
    text = CONFIG.format(url=url, secret=secret).replace("simple_agent:\n", f"simple_agent:\n{agent}")
    (folder / "c.yaml").write_text(text)
    return folder / "c.yaml"


def count(folder: Path) -> int:
    """How many answers are stored."""
    with closing(sqlite3.connect(folder / "cache" / ANSWERS)) as database:
        return int(database.execute("SELECT count(*) FROM answer").fetchone()[0])


def test_an_answer_with_a_secret_of_the_config_in_it_is_not_stored(tmp_path: Path):
    async def main() -> velo.Run:
        async with ScriptedServer(ScriptedModel(answers=["sk-very-secret is 4"])) as server:
            settings = {"config": configured(tmp_path, server.url), "model_cache": tmp_path / "cache"}
            return await velo.collect(tmp_path / "t.jsonl", "solo", progress=False, **settings)

    assert (asyncio.run(main()).kept, count(tmp_path)) == (40, 0)


async def bare(task: Json) -> Json:
    return {"output": "x", "reward": 1.0}


@pytest.mark.parametrize(
    ("live", "cache", "mode", "says"),
    [
        ("model", "empty", "replay", "no recorded answers"),
        ("model", "broken", "auto", "cannot be used"),
        ("model", None, "replay", "model_cache"),
        ("bare", "empty", "auto", "no model that is recorded"),
        ("server", "empty", "auto", "solo is a server"),
    ],
)
def test_what_cannot_be_recorded_is_one_clear_line(tmp_path: Path, live: str, cache: str | None, mode: str, says: str):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / ANSWERS).write_bytes(b"not a database" * 100)
    agents = {"model": agent(Dice()), "bare": bare, "server": "solo"}
    config = configured(tmp_path, agent="      url: http://127.0.0.1:9\n") if live == "server" else None
    where: Any = None if cache is None else tmp_path / cache
    with pytest.raises(InputError, match=says) as caught:
        collect(tmp_path / "a.jsonl", agents[live], where, mode, config=config)
    assert len(caught.value.problems) == 1
    assert not (tmp_path / "a.jsonl").exists()
