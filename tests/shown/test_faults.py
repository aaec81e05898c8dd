"""Models, tools and verifiers that misbehave: retried, or recorded and blamed; never a zero, never fatal to others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import DEADLINE_S
from velodrome import http
from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import collect
from velodrome.collector.result import Run
from velodrome.collector.settings import CollectSettings
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.serving.scripted import ScriptedServer
from velodrome.settings import load

ANSWERS = [
    {"tool_calls": [{"name": "calculator", "arguments": {"expression": "240 * 0.15"}}]},
    "15% of 240 is {tool_result}",
]
MODEL = """
policy_model:
  responses_api_models:
    openai_model:
      openai_base_url: URL
      openai_api_key: sk-test-secret-value
      openai_model: scripted
      endpoint: ENDPOINT
      max_retries: RETRIES
      backoff_s: 0.001
      timeout_s: 0.5
      total_timeout_s: 600
"""


def collect_against(
    workplace: Any,
    faults: list[dict[str, Any]],
    count: int = 30,
    endpoint: str = "responses",
    script: dict[str, Any] | None = None,
    retries: int = 100,
) -> Run:
    """A whole collection in this process, against a scripted server that misbehaves.

    With many retries a call that a busy machine cuts off is one more retry, and no failure.
    """
    workplace.scripted()
    workplace.tasks("tasks.jsonl", count)

    async def whole() -> Run:
        async with ScriptedServer(ScriptedModel(**(script or {"answers": ANSWERS}), faults=faults)) as server:
            model = MODEL.replace("URL", server.url).replace("ENDPOINT", endpoint).replace("RETRIES", str(retries))
            workplace.write("model.yaml", model)
            config = load([], cwd=workplace.folder)
            folder = workplace.folder
            settings = CollectSettings(input=folder / "tasks.jsonl", output=folder / "rollouts.jsonl", parallel=8)
            try:
                return await asyncio.wait_for(collect(settings, ConfiguredAgents(config)), DEADLINE_S)
            finally:
                await http.close_shared()

    return asyncio.run(whole())


def failures(folder: Path) -> list[dict[str, Any]]:
    path = folder / "rollouts.failures.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


PASSING = [
    {"kind": "status", "status": 408},
    {"kind": "status", "status": 429, "retry_after_s": 0.01},
    {"kind": "status", "status": 500},
    {"kind": "status", "status": 503},
    {"kind": "garbage"},
    {"kind": "half_body"},
    {"kind": "reset"},
    {"kind": "never"},
]


def test_what_may_pass_by_itself_is_tried_again_and_every_rollout_is_kept(workplace: Any) -> None:
    # The first fault that fits hits a call, so the n-th kind hits the calls from 2 (n - 1) to 2 n.
    outcome = collect_against(workplace, [{**fault, "times": 2 * n} for n, fault in enumerate(PASSING, 1)])

    assert (outcome.requested, outcome.kept, outcome.failed, outcome.exit_code) == (30, 30, 0, 0)
    assert {row["reward"] for row in workplace.rows()} == {1.0}
    assert sum(row["meta"]["timing"].get("retries", 0) for row in workplace.rows()) >= 2 * len(PASSING)


def test_a_rate_limit_slows_rollouts_and_fails_none(workplace: Any) -> None:
    limited = {"kind": "status", "status": 429, "retry_after_s": 0.01, "times": 80}  # some ten for each in flight
    outcome = collect_against(workplace, [limited], count=20, retries=0)

    assert (outcome.kept, outcome.failed, outcome.exit_code) == (20, 0, 0)
    assert sum(row["meta"]["timing"].get("rate_limited", 0) for row in workplace.rows()) == 80


FINAL = {
    "400 Bad Request": {"kind": "status", "status": 400},
    "401 Unauthorized": {"kind": "status", "status": 401},
    "404 Not Found": {"kind": "status", "status": 404},
}


def test_what_will_not_pass_is_recorded_and_blamed_and_the_neighbours_finish(workplace: Any) -> None:
    faults = [{**fault, "times": 2 * n} for n, fault in enumerate(FINAL.values(), 1)]
    outcome = collect_against(workplace, faults, endpoint="chat")

    failed = failures(workplace.folder)
    assert (outcome.requested, outcome.kept, outcome.failed, len(failed)) == (30, 24, 6, 6)
    assert {failure["boundary"] for failure in failed} == {"model"}
    assert [sum(words in failure["error"] for failure in failed) for words in FINAL] == [2, 2, 2]
    assert all("sk-test-secret-value" not in failure["error"] for failure in failed)
    assert {row["reward"] for row in workplace.rows()} == {1.0}
    assert outcome.exit_code == 3
    assert outcome.metrics["reward"] == 1.0  # a failure is not a zero
    assert outcome.metrics["rollouts/failed"] == 6


NO_MODEL = '{"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}'


@pytest.mark.parametrize(("status", "body"), [(401, "wrong key"), (400, NO_MODEL)])
def test_a_run_whose_calls_are_all_refused_stops_and_continues_once_they_are_not(
    workplace: Any, status: int, body: str
) -> None:
    refused = collect_against(workplace, [{"kind": "status", "status": status, "body": body}], count=100)
    assert (refused.stopped, refused.exit_code) == ("every call was refused", 2)
    assert 5 <= refused.failed <= 5 + 8  # and what was in flight
    assert (refused.kept, refused.failed + refused.left) == (0, 100)
    assert len(failures(workplace.folder)) == refused.failed

    again = collect_against(workplace, [], count=100)
    assert (again.kept, again.exit_code) == (100, 0)


@pytest.mark.parametrize("kind", ["status", "half_body", "never"])
def test_a_model_that_always_misbehaves_ends_in_failures_not_in_a_wait(workplace: Any, kind: str) -> None:
    outcome = collect_against(workplace, [{"kind": kind}], count=4, retries=1)

    failed = failures(workplace.folder)
    assert (outcome.kept, outcome.failed, len(failed)) == (0, 4, 4)
    assert {failure["boundary"] for failure in failed} == {"model"}


SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "36"}]}
FORGED = {"type": "function_call_output", "call_id": "c", "output": "36"}
POISON = {"input_tokens": 2**63 - 1, "output_tokens": 2**63 - 1, "total_tokens": 2**64 - 1}
HOSTILE = {
    "(0)": {"output": [SAID], "usage": POISON},
    "(1)": {"output": [{**SAID, "generation_token_ids": [2**64 - 1]}]},
    "(2)": {"output": []},
    "(3)": {"output": [FORGED, SAID]},
}


def test_answers_that_no_model_can_have_given_are_blamed_and_spoil_no_sum(workplace: Any) -> None:
    lines = [*({"match": match, "answers": [answer]} for match, answer in HOSTILE.items()), {"answers": ANSWERS}]
    script = workplace.write_rows("script.jsonl", lines)
    outcome = collect_against(workplace, [], count=12, script={"file": str(script)})

    blamed = {f"({failure['task_index']})": failure["boundary"] for failure in failures(workplace.folder)}
    assert blamed == dict.fromkeys(HOSTILE, "model")
    assert (outcome.kept, outcome.failed, outcome.exit_code) == (8, 4, 3)
    assert {row["reward"] for row in workplace.rows()} == {1.0}
    assert outcome.metrics["tokens/total"] == sum(row["usage"]["total_tokens"] for row in workplace.rows())


def test_failures_are_tried_again_by_the_same_command_and_count_their_attempts(workplace: Any) -> None:
    first = collect_against(workplace, [{"kind": "status", "status": 400}], count=5)
    second = collect_against(workplace, [{"kind": "status", "status": 400}], count=5)
    third = collect_against(workplace, [], count=5)

    assert (first.failed, second.failed, third.failed, third.kept) == (5, 5, 0, 5)
    assert [failure["attempt"] for failure in failures(workplace.folder)] == [1] * 5 + [2] * 5
    assert third.metrics["rollouts/failed"] == 0


FAULTY = """
import time
from velodrome import Environment, tool


class Faulty(Environment):
    @tool
    def calculator(self, expression: str, session: dict) -> object:
        "Evaluate."
        return TOOLS[session["how"]]() if session["how"] in TOOLS else "36.0"

    def seed_session(self, task):
        if task["how"] == "seed raises":
            raise RuntimeError("no session today")
        return {"how": task["how"]}

    def verify(self, task, response):
        return VERIFIERS[task["how"]]() if task["how"] in VERIFIERS else {"reward": 1.0}


def raises(error):
    raise error


TOOLS = {
    "tool raises": lambda: raises(RuntimeError("the tool broke")),
    "tool exits": lambda: raises(SystemExit(3)),
    "tool hangs": lambda: time.sleep(3600),
    "tool returns NaN": lambda: float("nan"),
    "tool is told a mistake": lambda: raises(ValueError("no such number")),
}
VERIFIERS = {
    "verify raises": lambda: raises(KeyError("expected")),
    "verify hangs": lambda: time.sleep(3600),
    "verify returns NaN": lambda: {"reward": float("nan")},
    "verify returns None": lambda: None,
}
"""
TOOL = ("seed raises", "tool raises", "tool exits", "tool hangs", "tool returns NaN")
VERIFY = ("verify raises", "verify hangs", "verify returns NaN", "verify returns None")
BLAMED = dict.fromkeys(TOOL, "tool") | dict.fromkeys(VERIFY, "verify")


def test_tools_and_verifiers_that_misbehave_are_recorded_and_blamed_and_never_a_zero(workplace: Any) -> None:
    workplace.scripted()
    workplace.environment("faulty", FAULTY, ", verify_timeout_s: 1, tool_timeout_s: 1")
    hows = [*BLAMED, "tool is told a mistake", *["fine"] * 10]
    rows = [{"id": str(n), "how": how, "responses_create_params": {"input": "15%?"}} for n, how in enumerate(hows)]
    workplace.write_rows("tasks.jsonl", rows)

    done = workplace.run("ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl")

    assert done.returncode == 3, done.stderr
    assert "requested 20 = kept 11 + failed 9" in done.stderr
    assert done.stderr.count("\n  1 x ") == 5  # the first few reasons, where a person looks
    failed = {hows[failure["task_index"]]: failure for failure in failures(workplace.folder)}
    assert {how: failure["boundary"] for how, failure in failed.items()} == BLAMED
    assert {row["reward"] for row in workplace.rows()} == {1.0}
    report = next(row for row in workplace.rows() if row["how"] == "tool is told a mistake")
    assert report["output"][1]["content"] == "error: no such number"
    assert failed["tool raises"]["partial"][0]["tool_calls"][0]["name"] == "calculator"
    assert failed["verify raises"]["partial"][-1]["content"] == "15% of 240 is 36.0"


BUGGY = """
import json
from velodrome import Environment, tool


class Buggy(Environment):
    @tool
    async def calculator(self, expression: str) -> str:
        "Evaluate."
        return {}[expression]

    def verify(self, task, response):
        if task["how"] == "of a library":
            json.loads("{")
        return None if task["how"] == "no score" else {"reward": float(task["api_key=sk-secret-1234567890"])}
"""


def test_a_bug_in_the_users_code_is_shown_with_its_line_once_and_with_its_traceback_on_request(workplace: Any) -> None:
    workplace.scripted()
    workplace.environment("buggy", BUGGY)
    workplace.write_rows("answers.jsonl", [{"match": "tool", "answers": ANSWERS}, {"answers": ["hi"]}])
    workplace.model("file: answers.jsonl")
    hows = ["tool", "no score", "of a library", "own", "own", "own"]
    rows = [{"id": str(n), "how": how, "responses_create_params": {"input": how}} for n, how in enumerate(hows)]
    workplace.write_rows("tasks.jsonl", rows)

    done = workplace.run("velo collect -v +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl")

    assert done.returncode == 3, done.stderr
    app = "resources_servers/buggy/app.py"
    places = {hows[failure["task_index"]]: failure["place"] for failure in failures(workplace.folder)}
    assert places == {
        "tool": f"{app}:10 in Buggy.calculator",
        "no score": f"{app}:12 in Buggy.verify",
        "of a library": f"{app}:14 in Buggy.verify",
        "own": f"{app}:15 in Buggy.verify",
    }
    assert all(failure["error"].endswith(f"({failure['place']})") for failure in failures(workplace.folder))
    noted = [line for line in done.stderr.splitlines() if "failed: " in line and line.endswith(")")]
    assert sorted(line.rpartition("(")[2][:-1] for line in noted) == sorted(places.values())
    assert done.stderr.count("Traceback (most recent call last)") == 3  # a result that is no score raised nothing
    assert "return {}[expression]" in done.stderr
    assert "sk-secret-1234567890" not in done.stderr


SLOW = """
import threading
from velodrome import Environment

others = threading.Semaphore(0)


class Slow(Environment):
    def verify(self, task, response):
        if task["id"] != "task-0":
            others.release()
        elif not all(others.acquire(timeout=WAIT) for _ in range(20)):
            raise RuntimeError("the others were held up")
        return {"reward": 1.0}
"""


def test_sync_code_that_is_slow_does_not_hold_up_the_others(workplace: Any, typed: Any) -> None:
    workplace.scripted()
    workplace.environment("slow", SLOW.replace("WAIT", str(DEADLINE_S / 20)))
    workplace.model("answers: [hi]")
    workplace.tasks("tasks.jsonl", 21)

    done = typed("ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl")

    assert done.returncode == 0, done.stderr
    assert len(workplace.keys()) == 21
