"""Scores for a saved file: later, again, with another config, and after an interruption."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import Surface, collect
from velodrome.collector.keys import Earlier
from velodrome.collector.result import Run
from velodrome.collector.settings import CollectSettings, VerifySettings
from velodrome.collector.verify import default_output, survey, verify
from velodrome.errors import InputError
from velodrome.settings import Config, Instance
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
        right = task["answer"] in response.text
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


def config(implementation: str = "grader", **settings: Any) -> Config:
    model = {"answers": ANSWERS}
    links = {
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "resources_server": {"type": "resources_servers", "name": "env"},
    }
    blocks = [
        Instance("policy_model", "responses_api_models", "scripted_model", model, "t.yaml"),
        Instance("env", "resources_servers", implementation, settings, "t.yaml"),
        Instance("solo", "responses_api_agents", "simple_agent", links, "t.yaml"),
    ]
    return Config({}, {block.name: block for block in blocks})


class Desk:
    """A folder with an environment, tasks, and a saved file whose scores were left for later."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.said: list[str] = []
        for name, code in (("grader", GRADER), ("counter", SESSIONFUL)):
            folder = root / "resources_servers" / name
            folder.mkdir(parents=True)
            (folder / "app.py").write_text(code)
        tasks = [
            {"id": name, "answer": answer, "responses_create_params": {"input": "?"}}
            for name, answer in (("a", "36"), ("b", "37"), ("c/x", "36"))
        ]
        (root / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))

    def collect(self, setup: Config | None = None, *, defer: bool = True, **changes: Any) -> Run:
        paths = {"input": self.root / "tasks.jsonl", "output": self.root / "r.jsonl"}
        settings = CollectSettings(**paths, defer=defer, parallel=1, **changes)  # lines in the order of tasks
        agents = ConfiguredAgents(setup or config())
        return asyncio.run(collect(settings, agents, surface=Surface(self.said.append)))

    def verify(
        self, setup: Config | None = None, output: str = "v.jsonl", source: str = "r.jsonl", **changes: Any
    ) -> Run:
        settings = VerifySettings(input=self.root / source, output=self.root / output, **changes)
        agents = ConfiguredAgents(setup or config())
        return asyncio.run(verify(settings, agents, Surface(self.said.append)))

    def rows(self, name: str) -> dict[str, dict[str, Any]]:
        lines = (self.root / name).read_bytes().splitlines()
        result = [orjson.loads(line) for line in lines]
        assert len({row["meta"]["key"] for row in result}) == len(result)
        return {row["meta"]["key"]: row for row in result}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path)


def test_the_throughput_of_the_collection_is_not_that_of_a_verification(desk: Desk):
    names = ("throughput/active_s", "throughput/samples_per_s", "throughput/tokens_per_s")
    collected, verified = desk.collect().metrics, desk.verify().metrics
    assert [[name in metrics for name in names] for metrics in (collected, verified)] == [[True] * 3, [False] * 3]
    assert (verified["rollouts/kept"], verified["tokens/total"]) == (3, collected["tokens/total"])
    assert read_metrics(desk.root / "v.jsonl")[0] == verified


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


def test_a_saved_file_with_nan_for_a_reward_can_be_scored_again(desk: Desk):
    desk.collect(defer=False)
    path = desk.root / "r.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"reward":1.0', b'"reward":NaN,"odd":Infinity'))
    assert read_metrics(path)[0]["rollouts/kept"] == 3
    outcome = desk.verify()
    assert (outcome.kept, outcome.metrics["reward"]) == (3, pytest.approx(2 / 3))
    assert {key: (row["reward"], row.get("odd")) for key, row in desk.rows("v.jsonl").items()} == {
        "a/0": (1, None),
        "b/0": (0, None),
        "c/x/0": (1, None),
    }


def test_scoring_later_gives_what_scoring_at_once_gives(desk: Desk):
    desk.collect(defer=True)
    desk.verify()
    later = desk.rows("v.jsonl")
    desk.collect(defer=False, overwrite=True)
    at_once = desk.rows("r.jsonl")
    for key, row in at_once.items():
        assert {n: v for n, v in row.items() if n != "meta"} == {n: v for n, v in later[key].items() if n != "meta"}
        assert row["meta"]["scored"] == later[key]["meta"]["scored"]


def test_another_config_scores_finished_rollouts_anew_and_no_old_field_stays(desk: Desk):
    desk.collect(defer=False)
    desk.verify(config(strict=True), "strict.jsonl")
    row = desk.rows("strict.jsonl")["a/0"]
    assert (row["reward"], row["strictness"], row["answer"], "heard" in row) == (1.0, 1, "36", False)
    assert desk.rows("r.jsonl")["a/0"]["heard"] == ["hi"]


def test_a_scored_file_can_be_scored_again(desk: Desk):
    desk.collect()
    desk.verify()
    desk.verify(config(strict=True), "w.jsonl", source="v.jsonl")
    row = desk.rows("w.jsonl")["a/0"]
    assert (row["strictness"], row["answer"], "heard" in row) == (1, "36", False)


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
    outcome = desk.verify(config(breaks_on="b"))
    assert (outcome.kept, outcome.failed, outcome.exit_code) == (2, 1, 3)
    failure = orjson.loads((desk.root / "v.failures.jsonl").read_bytes())
    assert (failure["key"], failure["boundary"], failure["attempt"]) == ("b/0", "verify", 1)
    assert (
        failure["error"] == "verify: RuntimeError: no such luck (resources_servers/grader/app.py:24 in Grader.verify)"
    )
    mended = desk.verify(config(), allow_mixed=True)
    assert (mended.kept, mended.failed, mended.metrics["rollouts/failed"]) == (3, 0, 0)
    assert desk.verify(config()).metrics["rollouts/failed"] == 0


def test_a_session_that_cannot_be_closed_does_not_cost_the_score(desk: Desk):
    desk.collect()
    assert desk.verify(config(close_fails=True)).kept == 3


def test_other_settings_than_before_are_refused_unless_asked_for(desk: Desk):
    desk.collect()
    desk.verify(limit=1)
    with pytest.raises(InputError, match=r"instances\.env\.settings\.strict: was null, now true"):
        desk.verify(config(strict=True))


def test_failures_beyond_the_budget_stop_the_pass(desk: Desk):
    desk.collect()
    outcome = desk.verify(config(breaks_on="a"), max_failures=0.0, parallel=1)
    assert (outcome.failed, outcome.left, outcome.exit_code) == (1, 2, 4)
    assert outcome.summary() == "requested 3 = kept 0 + failed 1 + 2 not run (max_failures=0 reached (1 failed))"


def test_an_environment_that_needs_its_session_can_neither_be_deferred_nor_score_a_file(desk: Desk):
    with pytest.raises(InputError, match="solo: its verify reads the session"):
        desk.collect(config("counter"))
    desk.collect()
    with pytest.raises(InputError, match="solo: its verify reads the session of the rollout, which is gone"):
        desk.verify(config("counter"))
    assert not (desk.root / "v.jsonl").exists()


def test_an_agent_that_is_no_name_is_named_all_the_same(desk: Desk):
    desk.collect()
    path = desk.root / "r.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"agent":"solo"', b'"agent":[7]'))
    with pytest.raises(InputError, match=r"r\.jsonl:1: no agent is called '\[7\]'"):
        desk.verify()


def test_lines_that_are_no_rollouts_and_agents_nobody_knows_are_named_before_anything_runs(desk: Desk):
    good = {"responses_create_params": {"input": "?"}, "output": [], "response": {}, "meta": {"key": "a/0"}}
    lines = [
        good,
        {**good, "meta": {"key": "b/0", "agent": "soli"}},
        [1],
        {"meta": {"key": 5}},
        {**good, "meta": {"key": "no repeat"}},
    ]
    glued = b'{"torn":1' + orjson.dumps(good)
    (desk.root / "r.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines) + glued + b"\n")
    with pytest.raises(InputError) as caught:
        desk.verify()
    path = desk.root / "r.jsonl"
    assert caught.value.problems == (
        f"{path}:2: no agent is called 'soli'; did you mean 'solo'?",
        f"{path}:3: not a rollout (and 3 more like it)",
    )


def test_a_row_that_lacks_its_conversation_is_recorded_as_failed(desk: Desk):
    (desk.root / "r.jsonl").write_bytes(b'{"responses_create_params":{"input":"?"},"meta":{"key":"a/0","scored":5}}\n')
    outcome = desk.verify()
    assert (outcome.kept, outcome.failed) == (0, 1)


def test_an_empty_file_has_nothing_to_score(desk: Desk):
    (desk.root / "r.jsonl").write_bytes(b"\n")
    with pytest.raises(InputError, match=r"r\.jsonl: no rollouts in it"):
        desk.verify()


def test_scores_go_beside_the_rollouts_when_nobody_says_where():
    assert default_output(Path("d/r.jsonl.zst")) == Path("d/r.verified.jsonl")


def test_a_key_that_stands_in_the_file_twice_is_refused(tmp_path):
    row = {"responses_create_params": {"input": "x"}, "output": [], "response": {}, "meta": {"key": "a/0"}}
    source = tmp_path / "rollouts.jsonl"
    source.write_bytes(orjson.dumps(row) + b"\n" + orjson.dumps(row) + b"\n")
    agent = Instance("my_agent", "responses_api_agents", "simple_agent", {}, "test")
    with pytest.raises(InputError, match=r"rollouts.jsonl:2: the key 'a/0' is in the file twice"):
        survey(VerifySettings(), source, ConfiguredAgents(Config({}, {"my_agent": agent})), Earlier())


def test_another_rollout_under_a_key_that_is_scored_already_is_refused_or_gets_a_key_of_its_own(desk: Desk):
    desk.collect()
    desk.verify()
    (desk.root / "r.jsonl").rename(desk.root / "first.jsonl")
    other = config()
    other.instances["policy_model"].settings["answers"] = ["It is 37"]
    desk.collect(other)
    with pytest.raises(InputError, match=r"r\.jsonl:1: the key 'a/0' is in .*v\.jsonl with other content \(and 2"):
        desk.verify()
    assert desk.verify(allow_mixed=True).kept == 3
    assert desk.verify(allow_mixed=True).kept == 3
    rows = desk.rows("v.jsonl")
    assert len(rows) == 6
    assert sorted((key.partition("@")[0], row["reward"]) for key, row in rows.items() if "@" in key) == [
        ("a", 0.0),
        ("b", 1.0),
        ("c/x", 0.0),
    ]
    assert all(key.endswith("/0") for key in rows)
