"""The real clients of OpenAI's API on our model and agent servers: what they are given is what the script says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.interop.programs import run
from tests.support import hosted as hosting
from tests.support.running import CALCULATOR, Session
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

HERE = Path(__file__).parent
MODEL, AGENT = "responses_api_models", "responses_api_agents"

SUMS = [{"expression": "240 * 0.15"}, {"expression": "2 + 2"}]
CALLS = [{"name": "calculator", "arguments": each} for each in SUMS]
TALK = [{"reasoning_content": "Two sums.", "content": "Let me see.", "tool_calls": CALLS}, "It is {tool_result}."]
STRUCTURE = {"a": 1, "b": "x"}
PROBS = [{"token": token, "logprob": prob, "bytes": [], "top_logprobs": []} for token, prob in (("a", -0.5), ("b", -1))]
TOKENS = {
    "id": "resp_tokens",
    "output": [
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "ab", "annotations": [], "logprobs": PROBS}],
            "prompt_token_ids": [1, 2, 3],
            "generation_token_ids": [4, 5],
            "generation_log_probs": [-0.5, -1.0],
        }
    ],
}
ANSWERS: dict[str, list[Any]] = {"talker": TALK, "structured": [json.dumps(STRUCTURE)], "tokens": [TOKENS]}

FIRST = [
    ["reasoning", "Two sums."],
    ["message", "Let me see."],
    *(["function_call", "calculator", each] for each in SUMS),
]
WHOLE = [*FIRST, ["function_call_output", "36.0"], ["function_call_output", "4"], ["message", "It is 4."]]
CALLED = ["Let me see.", [["calculator", each] for each in SUMS], "tool_calls"]
SAID = ["It is 4.", [], "stop"]


@contextmanager
def hosted_servers() -> Iterator[list[str]]:
    """URLs of the three models and the agent, from this process."""

    def make(answers: list[Any]) -> ScriptedModel:
        return ScriptedModel(answers=answers)

    with ExitStack() as open_servers:
        urls = [
            open_servers.enter_context(hosting.hosted(MODEL, lambda answers=answers: make(answers)))
            for answers in ANSWERS.values()
        ]
        agent = hosting.hosted(AGENT, lambda: SimpleAgent(model=make(TALK), environment=Calculator()))
        yield [*urls, open_servers.enter_context(agent)]


@contextmanager
def run_servers(folder: Path) -> Iterator[list[str]]:
    """The same from `velo run`, where the agent calls model and environment over HTTP."""
    config: dict[str, Any] = {name: {MODEL: {"scripted_model": {"answers": each}}} for name, each in ANSWERS.items()}
    links = {"model_server": {"type": MODEL, "name": "talker"}}
    config["calculator_simple_agent"] = {AGENT: {"simple_agent": links}}
    config["config_paths"] = [CALCULATOR]
    (folder / "servers.yaml").write_text(yaml.safe_dump(config))
    with Session(folder, "+config_paths=[servers.yaml]") as session:
        instances = session.up().instances()
        yield [instances[name]["url"] for name in (*ANSWERS, "calculator_simple_agent")]


def test_the_openai_client(tmp_path: Path) -> None:
    with run_servers(tmp_path) as urls:
        got = json.loads(run("clients", HERE / "openai_client.py", *urls))
    assert got["models"] == [[True, True, "scripted", "scripted"]] * 2
    ends = ["response.created", "response.completed"]
    for name, said in (("responses", FIRST), ("agent", WHOLE)):
        usage = got[name].pop("usage")
        assert got[name] == {"whole": said, "raw": [200, said], "streamed": said, "kinds": ends, "numbers": True}
        assert usage == [usage[0]] * 3
    assert (got["chat"], got["agent_chat"]) == ([CALLED] * 2, [SAID] * 2)
    assert got["parsed"] == [STRUCTURE] * 4
    assert got["tokens"] == {"prompt": [[1, 2, 3]] * 2, "ids": [[4, 5]] * 2, "logprobs": [-0.5, -1]}
    assert got["async"] == [[FIRST, FIRST, CALLED], [WHOLE, WHOLE, SAID]]
    missing = ["NotFoundError", 404]
    assert got["errors"] == [[[*missing, "model_not_found"], missing, ["BadRequestError", 400]]] * 2


def test_langchain() -> None:
    with hosted_servers() as (talker, structured, _, agent):
        got = json.loads(run("clients", HERE / "langchain_client.py", talker, structured, agent))
    calls = [["calculator", each] for each in SUMS]
    text = json.dumps(STRUCTURE)
    for way, said, own_calls in (("chat", SAID[0], 0), ("responses", "Let me see.It is 4.", 2)):
        of_model, of_agent = got[way]
        assert of_model.pop("usage") > 0
        assert of_model == {
            "text": "Let me see.",
            "calls": calls,
            "last": "It is 4.",
            "streamed": ["Let me see.", calls],
            "batch": [text, text],
            "structured": [STRUCTURE, STRUCTURE],
        }
        assert of_agent == [said, said, 2 if own_calls else 1, own_calls, said, "tools"]


def test_openai_agents() -> None:
    with hosted_servers() as (talker, _, _, agent):
        got = json.loads(run("clients", HERE / "openai_agents_client.py", talker, agent))
    turn = ["reasoning_item", "message_output_item", *["tool_call_item"] * 2, *["tool_call_output_item"] * 2]
    of_model = {
        "output": ["It is 4."] * 2,
        "items": [*turn, "message_output_item"],
        "deltas": "Let me see.It is 4.",
        "called": [each["expression"] for each in SUMS] * 2,
        "usage": [2, True],
    }
    of_agent = {
        "output": [SAID[0]] * 2,
        "items": ["message_output_item"],
        "deltas": SAID[0],
        "called": [],
        "usage": [1, True],
    }
    assert got["chat"] == [of_model, of_agent]
    # A function_call of a Response is a request to this client, also one that the agent has answered itself.
    assert got["responses"] == [of_model, "ModelBehaviorError: Tool calculator not found in agent asker"]
