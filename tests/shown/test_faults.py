"""Models, tools and verifiers that misbehave: retried, or recorded and blamed; never a zero, never fatal to others."""

from __future__ import annotations

import asyncio
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S

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


RETRIED = {
    "408": {"kind": "status", "status": 408},
    "429": {"kind": "status", "status": 429},
    "429 with Retry-After": {"kind": "status", "status": 429, "retry_after_s": 0.01},
    "500": {"kind": "status", "status": 500},
    "503": {"kind": "status", "status": 503},
    "half a body": {"kind": "half_body"},
    "reset": {"kind": "reset"},
    "never": {"kind": "never"},
}


@pytest.mark.parametrize("fault", RETRIED.values(), ids=RETRIED.keys())
def test_what_may_pass_by_itself_is_tried_again_and_every_rollout_is_kept(
    workplace: Any, fault: dict[str, Any]
) -> None:
    outcome = collect_against(workplace, [{**fault, "times": 8}])

    assert (outcome.requested, outcome.kept, outcome.failed, outcome.exit_code) == (30, 30, 0, 0)
    assert {row["reward"] for row in workplace.rows()} == {1.0}
    assert sum(row["meta"]["timing"].get("retries", 0) for row in workplace.rows()) >= 8


FINAL = {
    "400": ({"kind": "status", "status": 400}, "400 Bad Request"),
    "401": ({"kind": "status", "status": 401}, "401 Unauthorized"),
    "404": ({"kind": "status", "status": 404}, "404 Not Found"),
    "garbage": ({"kind": "garbage"}, "JSON"),
}


@pytest.mark.parametrize(("fault", "words"), FINAL.values(), ids=FINAL.keys())
@pytest.mark.parametrize("endpoint", ["responses", "chat"])
def test_what_will_not_pass_is_recorded_and_blamed_and_the_neighbours_finish(
    workplace: Any, endpoint: str, fault: dict[str, Any], words: str
) -> None:
    outcome = collect_against(workplace, [{**fault, "every": 7}], endpoint=endpoint)

    failed = failures(workplace.folder)
    assert outcome.requested == 30 == outcome.kept + outcome.failed
    assert 0 < outcome.failed == len(failed) < 30
    assert {failure["boundary"] for failure in failed} == {"model"}
    assert all(words in failure["error"] and "sk-test-secret-value" not in failure["error"] for failure in failed)
    assert {row["reward"] for row in workplace.rows()} == {1.0}
    assert outcome.exit_code == 3
    assert outcome.metrics["reward"] == 1.0  # a failure is not a zero
    assert outcome.metrics["rollouts/failed"] == outcome.failed


@pytest.mark.parametrize("fault", [*RETRIED.values(), {"kind": "garbage"}], ids=[*RETRIED.keys(), "garbage"])
def test_a_model_that_always_misbehaves_ends_in_failures_not_in_a_wait(workplace: Any, fault: dict[str, Any]) -> None:
    outcome = collect_against(workplace, [fault], count=4, retries=2)

    failed = failures(workplace.folder)
    assert (outcome.kept, outcome.failed, len(failed)) == (0, 4, 4)
    assert {failure["boundary"] for failure in failed} == {"model"}


SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "36"}]}
FORGED = {"type": "function_call_output", "call_id": "c", "output": "36"}
POISON = {"input_tokens": 2**63 - 1, "output_tokens": 2**63 - 1, "total_tokens": 2**64 - 1}
HOSTILE = {
    "(0)": {"output": [SAID], "usage": POISON},
    "(1)": {"output": [SAID], "usage": {"total_tokens": 2**63 - 1}},
    "(2)": {"output": [SAID], "usage": {"total_tokens": -1}},
    "(3)": {"output": [{**SAID, "generation_token_ids": [2**64 - 1]}]},
    "(4)": {"output": []},
    "(5)": {"output": [{**SAID, "content": []}]},
}


@pytest.mark.parametrize("endpoint", ["responses", "chat"])
def test_answers_that_no_model_can_have_given_are_blamed_and_spoil_no_sum(workplace: Any, endpoint: str) -> None:
    hostile = HOSTILE | ({"(6)": {"output": [FORGED, SAID]}} if endpoint == "responses" else {})
    lines = [*({"match": match, "answers": [answer]} for match, answer in hostile.items()), {"answers": ANSWERS}]
    script = workplace.write("script.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    outcome = collect_against(workplace, [], count=12, endpoint=endpoint, script={"file": str(script)})

    blamed = {f"({failure['task_index']})": failure["boundary"] for failure in failures(workplace.folder)}
    assert blamed == dict.fromkeys(hostile, "model")
    assert (outcome.kept, outcome.failed, outcome.exit_code) == (12 - len(hostile), len(hostile), 3)
    assert {row["reward"] for row in workplace.rows()} == {1.0}
    assert outcome.metrics["tokens/total"] == sum(row["usage"]["total_tokens"] for row in workplace.rows())


def test_failures_are_tried_again_by_the_same_command_and_count_their_attempts(workplace: Any) -> None:
    first = collect_against(workplace, [{"kind": "status", "status": 400}], count=5)
    second = collect_against(workplace, [{"kind": "status", "status": 400}], count=5)
    third = collect_against(workplace, [], count=5)

    assert (first.failed, second.failed, third.failed, third.kept) == (5, 5, 0, 5)
    assert [failure["attempt"] for failure in failures(workplace.folder)] == [1] * 5 + [2] * 5
    assert third.metrics["rollouts/failed"] == 0


FAULTY = textwrap.dedent("""
    import asyncio
    import time
    from velodrome import Environment, tool


    class Faulty(Environment):
        @tool
        def calculator(self, expression: str, session: dict) -> object:
            "Evaluate."
            return session["tool"]() if "tool" in session else "36.0"

        def seed_session(self, task):
            how = task["how"]
            if how == "seed raises":
                raise RuntimeError("no session today")
            return {"tool": TOOLS[how]} if how in TOOLS else {}

        async def verify(self, task, response):
            how = task["how"]
            if how in VERIFIERS:
                return VERIFIERS[how]()
            if how == "verify hangs, async":
                await asyncio.sleep(3600)
            return {"reward": 1.0}


    class _Sync(Faulty):
        pass


    def raises(error):
        raise error


    TOOLS = {
        "tool raises": lambda: raises(RuntimeError("the tool broke")),
        "tool exits": lambda: raises(SystemExit(3)),
        "tool hangs": lambda: time.sleep(3600),
        "tool returns NaN": lambda: float("nan"),
        "tool returns an object": lambda: object(),
        "tool is told a mistake": lambda: raises(ValueError("no such number")),
    }
    VERIFIERS = {
        "verify raises": lambda: raises(KeyError("expected")),
        "verify returns NaN": lambda: {"reward": float("nan")},
        "verify returns infinity": lambda: {"reward": float("inf")},
        "verify returns a NaN field": lambda: {"reward": 1.0, "accuracy": float("nan")},
        "verify returns text": lambda: "good",
        "verify returns a text reward": lambda: {"reward": "1.0"},
        "verify returns None": lambda: None,
        "verify returns no reward": lambda: {"accuracy": 1.0},
        "verify returns an object": lambda: {"reward": 1.0, "what": object()},
    }
""")
BLAMED = {
    "seed raises": "tool",
    "tool raises": "tool",
    "tool exits": "tool",
    "tool hangs": "tool",
    "tool returns NaN": "tool",
    "tool returns an object": "tool",
    "verify raises": "verify",
    "verify hangs, async": "verify",
    "verify returns NaN": "verify",
    "verify returns infinity": "verify",
    "verify returns a NaN field": "verify",
    "verify returns text": "verify",
    "verify returns a text reward": "verify",
    "verify returns None": "verify",
    "verify returns no reward": "verify",
    "verify returns an object": "verify",
}


def test_tools_and_verifiers_that_misbehave_are_recorded_and_blamed_and_never_a_zero(workplace: Any) -> None:
    workplace.scripted()
    workplace.write("resources_servers/faulty/app.py", FAULTY)
    agent = (workplace.folder / "agent.yaml").read_text()
    block = "faulty: {entrypoint: app.py, verify_timeout_s: 3, tool_timeout_s: 3}"
    workplace.write("agent.yaml", agent.replace("calculator: {entrypoint: app.py}", block))
    hows = [*BLAMED, "tool is told a mistake", *["fine"] * 10]
    rows = [{"id": str(n), "how": how, "responses_create_params": {"input": "15%?"}} for n, how in enumerate(hows)]
    workplace.write("tasks.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    done = workplace.run("ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl")

    assert done.returncode == 3, done.stderr
    assert "requested 27 = kept 11 + failed 16" in done.stderr
    assert done.stderr.count("\n  1 x ") == 5  # the first few reasons, where a person looks
    blamed = {hows[failure["task_index"]]: failure["boundary"] for failure in failures(workplace.folder)}
    assert blamed == BLAMED
    assert {row["reward"] for row in workplace.rows()} == {1.0}
    report = next(row for row in workplace.rows() if row["how"] == "tool is told a mistake")
    assert report["output"][1]["content"] == "error: no such number"
    with_talk = {hows[failure["task_index"]]: failure["partial"] for failure in failures(workplace.folder)}
    assert with_talk["tool raises"][0]["tool_calls"][0]["name"] == "calculator"
    assert with_talk["verify raises"][-1]["content"] == "15% of 240 is 36.0"


BUGGY = textwrap.dedent("""
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
""")


def test_a_bug_in_the_users_code_is_shown_with_its_line_once_and_with_its_traceback_on_request(workplace: Any) -> None:
    workplace.scripted()
    workplace.write("resources_servers/buggy/app.py", BUGGY)
    agent = (workplace.folder / "agent.yaml").read_text()
    workplace.write("agent.yaml", agent.replace("calculator: {entrypoint: app.py}", "buggy: {entrypoint: app.py}"))
    script = [{"match": "tool", "answers": ANSWERS}, {"answers": ["hi"]}]
    workplace.write("answers.jsonl", "".join(json.dumps(each) + "\n" for each in script))
    workplace.write("model.yaml", "policy_model: {responses_api_models: {scripted_model: {file: answers.jsonl}}}\n")
    hows = ["tool", "no score", "of a library", "own", "own", "own"]
    rows = [{"id": str(n), "how": how, "responses_create_params": {"input": how}} for n, how in enumerate(hows)]
    workplace.write("tasks.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

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


def test_sync_code_that_is_slow_does_not_hold_up_the_others(workplace: Any) -> None:
    workplace.scripted()
    workplace.write(
        "resources_servers/slow/app.py",
        "import threading\nfrom velodrome import Environment\n\nothers = threading.Semaphore(0)\n\n\n"
        "class Slow(Environment):\n"
        "    def verify(self, task, response):\n"
        "        if task['id'] != '0':\n"
        "            others.release()\n"
        "        elif not all(others.acquire(timeout=WAIT) for _ in range(20)):\n"
        "            raise RuntimeError('the others were held up')\n"
        "        return {'reward': 1.0}\n".replace("WAIT", str(DEADLINE_S / 20)),
    )
    agent = (workplace.folder / "agent.yaml").read_text()
    workplace.write("agent.yaml", agent.replace("calculator: {entrypoint: app.py}", "slow: {entrypoint: app.py}"))
    workplace.write("model.yaml", "policy_model: {responses_api_models: {scripted_model: {answers: [hi]}}}\n")
    rows = [{"id": str(n), "responses_create_params": {"input": "x"}} for n in range(21)]
    workplace.write("tasks.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    done = workplace.run("ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl")

    assert done.returncode == 0, done.stderr
    assert len(workplace.keys()) == 21
