"""Mistakes from Python: the place, the nearest name, and the setting that both Python and the command line have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import velodrome as velo


class Echo(velo.Environment):
    word: str = "hi"

    def verify(self, task: Any, response: Any) -> float:
        return float(self.word in response.text)


async def agent(task: Any) -> Any:
    return {"output": "x", "reward": 1.0}


async def failing(task: Any) -> Any:
    raise ValueError("no luck")


def run(tasks: Any, live: Any, **settings: Any) -> Any:
    return asyncio.run(velo.collect(tasks, live, progress=False, **settings))


@pytest.mark.parametrize(
    ("call", "nearest"),
    [
        (lambda: velo.collect(["a"], agent, repeat=3), "repeats"),  # type: ignore[call-arg]
        (lambda: velo.rollout("a", agent, verfy=False), "verify"),  # type: ignore[call-arg]
        (lambda: velo.verify("r.jsonl", Echo(), ouput="x"), "out"),  # type: ignore[call-arg]
        (lambda: velo.read("r.jsonl", wher="reward<1"), "where"),  # type: ignore[call-arg]
        (lambda: velo.metrics("r.jsonl", pas_at=1), "pass_at"),  # type: ignore[call-arg]
        (lambda: velo.compare("r.jsonl", "s.jsonl", feilds=[]), "fields"),  # type: ignore[call-arg]
        (lambda: velo.profile("r.jsonl", zzz=1), "rollouts"),  # type: ignore[call-arg]
        (lambda: velo.export("sft", "r.jsonl", "x.jsonl", overwite=True), "overwrite"),
        (lambda: velo.merge("x.jsonl", "r.jsonl", allow_mix=True), "allow_mixed"),  # type: ignore[call-arg]
        (lambda: velo.serve(Echo(), prot=1), "port"),  # type: ignore[call-arg]
        (lambda: velo.train("cartpole", trainer={"bach_size": 3}), "trainer.batch_size"),
        (lambda: Echo(wrd="x"), "word"),  # type: ignore[call-arg]
        (lambda: velo.SimpleAgent(model=agent, environment=Echo(), max_step=3), "max_steps"),  # type: ignore[call-arg]
        (lambda: velo.SimpleAgent(modle=agent, environment=Echo()), 'did you mean "model"'),  # type: ignore[call-arg]
        (lambda: velo.serve(agent).__aenter__().send(None), "agent="),
        (lambda: run(5, agent), "tasks"),
        (velo.Environment, "has no verify"),
        (type("Own", (velo.Environment,), {}), "has no verify"),
    ],
)
def test_a_misspelt_keyword_is_answered_with_the_nearest(call: Callable[[], Any], nearest: str):
    with pytest.raises(velo.errors.InputError, match=nearest):
        call()


FILES: list[Callable[[Any], Any]] = [
    velo.read,
    velo.metrics,
    velo.check,
    velo.profile,
    velo.view,
    lambda thing: velo.compare(thing, "r.jsonl"),
    lambda thing: velo.compare("r.jsonl", thing),
    lambda thing: velo.export("sft", thing, "x.jsonl"),
    lambda thing: velo.export("sft", "r.jsonl", thing),
    lambda thing: velo.export(thing, "r.jsonl", "x.jsonl"),
    lambda thing: velo.merge(thing, "r.jsonl"),
    lambda thing: velo.merge("x.jsonl", thing),
    lambda thing: velo.read("r.jsonl").where(thing),
    lambda thing: asyncio.run(velo.verify(thing, Echo())),
    lambda thing: asyncio.run(velo.verify("r.jsonl", config=thing)),
    lambda thing: run(["a"], "some_agent", config=thing),
    velo.train,
]
COMPONENTS: list[Callable[[Any], Any]] = [
    lambda thing: run(["a"], thing),
    lambda thing: asyncio.run(velo.rollout("a", thing)),
    lambda thing: asyncio.run(velo.verify("r.jsonl", thing)),
    lambda thing: asyncio.run(velo.serve(thing).__aenter__()),
    lambda thing: asyncio.run(velo.serve(model=thing).__aenter__()),
    lambda thing: asyncio.run(velo.serve(agent=thing).__aenter__()),
    lambda thing: asyncio.run(velo.serve(environment=thing).__aenter__()),
    lambda thing: velo.SimpleAgent(model=thing, environment=Echo()),
    lambda thing: velo.SimpleAgent(model=agent, environment=thing),
]


@pytest.mark.parametrize(
    ("calls", "things"),
    [
        (FILES, (5.5, None, b"r.jsonl", {"a": 1}, [5], object())),
        (COMPONENTS, (5, None, [agent], Echo, velo.OpenAI, velo.SimpleAgent)),
    ],
    ids=["files", "components"],
)
def test_a_thing_of_a_wrong_type_is_answered_with_one_line(
    calls: list[Callable[[Any], Any]], things: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("r.jsonl").write_text('{"reward": 1.0, "output": [], "meta": {"key": "a/0"}}\n')
    for call, thing in product(calls, things):
        with pytest.raises(velo.errors.InputError) as caught:
            call(thing)
        assert len(caught.value.problems) == 1
        assert "\n" not in str(caught.value)


def test_a_metric_of_a_run_without_rollouts_says_why_they_failed(tmp_path: Path):
    result = run(["a", "b"], failing, out=tmp_path / "r.jsonl")
    assert result.metrics.get("reward") is None
    for metrics in (result.metrics, velo.metrics(tmp_path / "r.jsonl")):
        with pytest.raises(velo.errors.MetricError, match=r"2 failed|failed 2.*no luck") as caught:
            metrics["reward"]
        assert isinstance(caught.value, KeyError)
    with pytest.raises(KeyError, match="reward"):
        run(["a"], agent).metrics["rewrd"]
    with pytest.raises(KeyError, match="verify"):
        run(["a"], agent, defer=True).metrics["reward"]


def test_a_file_that_is_not_there_is_answered_with_the_nearest_beside_it(tmp_path: Path):
    (tmp_path / "rollouts.jsonl").touch()
    for call in (
        velo.read,
        lambda path: velo.export("sft", path, tmp_path / "x.jsonl"),
        lambda path: velo.merge(tmp_path / "x.jsonl", path),
        lambda path: run(path, agent),
        velo.view,
    ):
        with pytest.raises(velo.errors.InputError, match=f'did you mean "{tmp_path / "rollouts.jsonl"}"'):
            call(tmp_path / "rolouts.jsonl")
    path = tmp_path / "it's, [mine].yaml"  # a config may have any name
    path.write_text("policy_model: {responses_api_models: {scripted_model: {answers: ['36']}}}\n")
    config = ["resources_servers/calculator/configs/calculator.yaml", path]
    tasks = [{"responses_create_params": {"input": "15% of 240?"}, "expected_answer": "36"}]
    assert run(tasks, "calculator_simple_agent", config=config).metrics["reward"] == 1.0
    with pytest.raises(velo.errors.InputError, match=r"mean .*it's, .mine"):
        run(tasks, "calculator_simple_agent", config=[config[0], tmp_path / "its, [mine].yaml"])
