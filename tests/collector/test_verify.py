"""Scores for a saved file: later, again, with another config, and after an interruption."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.collector.embedded import config, lines_of, write_tasks
from tests.support.running import write_component
from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import Surface, collect
from velodrome.collector.result import Run
from velodrome.collector.settings import CollectSettings, VerifySettings
from velodrome.collector.verify import default_output, needed_fields, verify
from velodrome.errors import InputError
from velodrome.settings import Config
from velodrome.stats.metrics import read_metrics

GRADER = '''
from velodrome import Environment, tool


class Grader(Environment):
    close_fails: bool = False
    breaks_on: str = ""
    strict: bool = False

    def seed_session(self, task):
        return {"task": task["id"]}

    def close_session(self, session):
        if self.close_fails:
            raise OSError("cannot close")

    @tool
    def echo(self, text: str) -> str:
        """Say it back."""
        return text

    def verify(self, task, response):
        if task["id"] == self.breaks_on:
            raise RuntimeError("no such luck")
        right = task["answer"] in response.text and task["id"] != "b"
        heard = [call.output for call in response.tool_calls]
        if self.strict:
            return {"reward": float(right and heard == ["hi"]), "strictness": 1}
        return {"reward": float(right), "heard": heard, "answer": task["answer"]}
'''
SESSIONFUL = """
from velodrome import Environment


class Counter(Environment):
    def seed_session(self, task):
        return {}

    def verify(self, task, response, session):
        return {"reward": 1.0}
"""
ANSWERS = [{"tool_calls": [{"name": "echo", "arguments": {"text": "hi"}}]}, "It is 36; echo said {tool_result}"]


def grading(environment: str = "grader", **settings: Any) -> Config:
    return config(environment, {"answers": ANSWERS}, **settings)


class Desk:
    """A folder with an environment, tasks, and a saved file whose scores were left for later."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said: list[str] = []
        for name, code in (("grader", GRADER), ("counter", SESSIONFUL)):
            write_component(root, "resources_servers", name, code)
        write_tasks(root / "tasks.jsonl", ["a", "b", "c/x"], answer="36")

    def collect(self, setup: Config | None = None, *, defer: bool = True, **changes: Any) -> Run:
        paths = {"input": self.root / "tasks.jsonl", "output": self.root / "r.jsonl"}
        settings = CollectSettings(**paths, defer=defer, parallel=1, **changes)  # lines in the order of tasks
        agents = ConfiguredAgents(setup or grading())
        return asyncio.run(collect(settings, agents, surface=Surface(self.said.append)))

    def verify(
        self, setup: Config | None = None, output: str = "v.jsonl", source: str = "r.jsonl", **changes: Any
    ) -> Run:
        settings = VerifySettings(input=self.root / source, output=self.root / output, **changes)
        agents = ConfiguredAgents(setup or grading())
        return asyncio.run(verify(settings, agents, Surface(self.said.append)))

    def rows(self, name: str) -> dict[str, dict[str, Any]]:
        result = lines_of(self.root / name)
        assert len({row["meta"]["key"] for row in result}) == len(result)
        return {row["meta"]["key"]: row for row in result}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path)


def test_rewards_left_for_later_are_given_by_the_same_environment_under_the_same_keys(desk: Desk):
    collected = desk.collect(repeats=2)
    before = desk.rows("r.jsonl")
    assert (collected.kept, collected.metrics["rollouts/deferred"]) == (6, 6)
    assert "reward" not in collected.metrics
    assert {row["reward"] for row in before.values()} == {None}
    outcome = desk.verify()
    after = desk.rows("v.jsonl")
    assert (outcome.requested, outcome.kept, outcome.failed, outcome.exit_code) == (6, 6, 0, 0)
    assert sorted(after) == ["a/0", "a/1", "b/0", "b/1", "c/x/0", "c/x/1"]
    assert {key: row["reward"] for key, row in after.items() if key.endswith("/0")} == {"a/0": 1, "b/0": 0, "c/x/0": 1}
    row = after["a/1"]
    assert (row["heard"], row["answer"], row["id"]) == (["hi"], "36", "a")
    assert "verification" not in row["meta"]
    for name in ("output", "response", "usage", "responses_create_params"):
        assert row[name] == before["a/1"][name]
    assert row["meta"]["finished_at"] == before["a/1"]["meta"]["finished_at"]
    assert outcome.metrics == read_metrics(desk.root / "v.jsonl")[0]
    assert outcome.metrics["pass@2"] == pytest.approx(2 / 3)
    assert outcome.metrics["tokens/total"] == collected.metrics["tokens/total"]
    in_both = ["throughput/active_s" in metrics for metrics in (collected.metrics, outcome.metrics)]
    assert in_both == [True, False]  # the throughput of the collection is not that of a verification


def test_scoring_later_gives_what_scoring_at_once_gives(desk: Desk):
    desk.collect(defer=True)
    desk.verify()
    later = desk.rows("v.jsonl")
    desk.collect(defer=False, overwrite=True)
    for key, row in desk.rows("r.jsonl").items():
        metas = row.pop("meta"), later[key].pop("meta")
        assert (row, metas[0]["scored"]) == (later[key], metas[1]["scored"])


def test_another_config_scores_finished_rollouts_anew_and_no_old_field_stays(desk: Desk):
    desk.collect(defer=False)
    desk.verify()
    for source in ("r.jsonl", "v.jsonl"):  # also what was scored later can be scored again
        desk.verify(grading(strict=True), f"strict-{source}", source=source)
        row = desk.rows(f"strict-{source}")["a/0"]
        assert (row["reward"], row["strictness"], row["answer"], "heard" in row) == (1.0, 1, "36", False)
    assert desk.rows("r.jsonl")["a/0"]["heard"] == ["hi"]
    with pytest.raises(InputError, match=r"instances\.env\.settings\.strict: was null, now true"):
        desk.verify(grading(strict=True))


def test_an_interrupted_pass_goes_on_where_it_stopped(desk: Desk):
    desk.collect()
    desk.verify(limit=1)
    first = (desk.root / "v.jsonl").read_bytes()
    (desk.root / "v.jsonl").write_bytes(first + b'{"responses_create_par')
    outcome = desk.verify()
    assert (outcome.requested, outcome.kept) == (3, 3)
    assert (desk.root / "v.jsonl").read_bytes().startswith(first)
    assert sorted(desk.rows("v.jsonl")) == ["a/0", "b/0", "c/x/0"]
    assert f"{desk.root / 'v.jsonl'}: 1 of 3 rollouts are there already; continuing with the rest" in desk.said


def test_a_verifier_that_breaks_on_one_rollout_is_recorded_and_the_rest_is_scored(desk: Desk):
    desk.collect()
    outcome = desk.verify(grading(breaks_on="b"))
    assert (outcome.kept, outcome.failed, outcome.exit_code) == (2, 1, 3)
    failure = orjson.loads((desk.root / "v.failures.jsonl").read_bytes())
    assert (failure["key"], failure["boundary"], failure["attempt"]) == ("b/0", "verify", 1)
    assert "(resources_servers/grader/app.py:24 in Grader.verify)" in failure["error"]
    mended = desk.verify(grading(), allow_mixed=True)
    assert (mended.kept, mended.failed, mended.metrics["rollouts/failed"]) == (3, 0, 0)


def test_neither_a_session_that_cannot_be_closed_nor_nan_for_a_former_reward_costs_the_score(desk: Desk):
    desk.collect(defer=False)
    path = desk.root / "r.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"reward":1.0', b'"reward":NaN,"odd":Infinity'))
    desk.verify(grading(close_fails=True))
    assert {key: row["reward"] for key, row in desk.rows("v.jsonl").items()} == {"a/0": 1, "b/0": 0, "c/x/0": 1}


def test_an_environment_that_needs_its_session_can_neither_be_deferred_nor_score_a_file(desk: Desk):
    with pytest.raises(InputError, match="solo: its verify reads the session"):
        desk.collect(grading("counter"))
    desk.collect()
    with pytest.raises(InputError, match="solo: its verify reads the session of the rollout, which is gone"):
        desk.verify(grading("counter"))
    assert not (desk.root / "v.jsonl").exists()


GOOD = {"responses_create_params": {"input": "?"}, "output": [], "response": {}, "meta": {"key": "a/0"}}


@pytest.mark.parametrize(
    ("rows", "problems"),
    [
        (
            [GOOD, {**GOOD, "meta": {"key": "b/0", "agent": "soli"}}, {**GOOD, "meta": {"key": "c/0", "agent": [7]}}],
            [":2: no agent is called 'soli'; did you mean \"solo\"?", ":3: no agent is called '[7]'"],
        ),
        ([GOOD, [1], {"meta": {"key": 5}}, {**GOOD, "meta": {"key": "no repeat"}}], [":2: not a rollout (and 2 more"]),
        ([GOOD, GOOD], [":2: the key 'a/0' is in the file twice"]),
        ([], [": no rollouts in it"]),
    ],
)
def test_lines_that_cannot_be_scored_are_named_before_anything_runs(desk: Desk, rows: list[Any], problems: list[str]):
    path = desk.root / "r.jsonl"
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in rows))
    with pytest.raises(InputError) as caught:
        desk.verify()
    assert len(caught.value.problems) == len(problems)
    for said, start in zip(caught.value.problems, problems, strict=True):
        assert said.startswith(f"{path}{start}")


def test_scores_go_beside_the_rollouts_when_nobody_says_where():
    assert default_output(Path("d/r.jsonl.zst")) == Path("d/r.verified.jsonl")


def test_another_rollout_under_a_key_that_is_scored_already_is_refused_or_gets_a_key_of_its_own(desk: Desk):
    desk.collect()
    desk.verify()
    (desk.root / "r.jsonl").rename(desk.root / "first.jsonl")
    other = grading()
    other.instances["policy_model"].settings["answers"] = ["It is 37"]
    desk.collect(other)
    with pytest.raises(InputError, match=r"r\.jsonl:1: the key 'a/0' is in .*v\.jsonl with other content \(and 2"):
        desk.verify()
    for _ in range(2):
        assert desk.verify(allow_mixed=True).kept == 3
    rows = desk.rows("v.jsonl")
    rewards = {key.partition("@")[0]: row["reward"] for key, row in rows.items() if "@" in key}
    assert (len(rows), rewards) == (6, {"a": 0.0, "b": 0.0, "c/x": 0.0})


def test_only_whole_examples_say_which_fields_verify_needs(tmp_path: Path):
    examples = tmp_path / "data" / "example.jsonl"
    examples.parent.mkdir()
    assert needed_fields(tmp_path) == needed_fields(None) == set()
    for text in ("", "not json\n", "[1]\n", '{"expected_answer": 1}\nnot json\n'):
        examples.write_text(text)
        assert needed_fields(tmp_path) == set(), text
    examples.write_text('{"expected_answer": 1, "answer": 2}\n{"expected_answer": 3}\n')
    assert needed_fields(tmp_path) == {"expected_answer"}
