"""Rollouts of every kind, made by running real agents: what `test_golden.py` compares with what is stored.

`python -m tests.golden.cases` writes the store again. Do that only if a change of the bytes is wanted.
"""

from __future__ import annotations

import asyncio
import hashlib
import lzma
import random
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson

from tests.conftest import WireServer
from tests.golden import providers
from velodrome import Environment, TurnEnvironment, http, tool
from velodrome.collector.attempt import partial
from velodrome.connect.anthropic_messages import message_from_response, request_from_messages
from velodrome.contracts import as_agent, events_of
from velodrome.environments.agents.players_agent.app import PlayersAgent
from velodrome.environments.players_environment import PlayersEnvironment
from velodrome.errors import RolloutError
from velodrome.records.conversation import items, messages
from velodrome.records.rollout import encode, make_rollout, response_of
from velodrome.responses_api_agents.remote_agent.app import RemoteAgent
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.conversion import chat_from_response, responses_request
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

Json = dict[str, Any]

STORE = Path(__file__).with_name("rollouts.jsonl.xz")
TEXT = "the wheel turns and a rider on the velodrome counts 15% of 240 is 36 ünïcödé 🚲 line\nbreak so it goes"
WORDS = TEXT.split(" ")
PIXEL = "data:image/png;base64,iVBORw0KGgo="
SEARCH: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q"}}
FLAWED: list[Any] = [
    {"type": "message", "role": "assistant", "content": 5},
    {"type": "message", "role": "assistant", "content": ["not a part"]},
    {"type": "function_call", "call_id": 7, "name": "echo", "arguments": "{}"},
    {"type": "function_call", "call_id": "c", "arguments": "{}"},
    {"type": 3},
    {"type": "reasoning", "summary": "as a text"},
    {"type": "reasoning", "summary": 4},
    {"type": "message", "role": "assistant", "content": "a", "generation_token_ids": [-1]},
    {"type": "function_call_output", "call_id": "nobody", "output": {"a": 1}},
    {"type": "message", "role": "user", "content": "I am the user"},
    {"type": "message", "role": "critic", "content": "I am a critic"},
    {"role": "assistant", "content": "no type"},
    {"type": "item_reference", "id": "x"},
    SEARCH,
]


class Bench(Environment):
    """Tools whose results have every shape."""

    @tool
    def echo(self, text: str) -> str:
        """Says it again."""
        return text

    @tool
    def look(self, at: str) -> dict[str, Any]:
        """Returns an object."""
        return {"at": at, "found": [1, 2.5, None]}

    @tool
    def scold(self, text: str) -> str:
        """The model's own mistake."""
        raise ValueError(f"not like {text}")

    @tool
    def explode(self) -> str:
        """A bug in the tool."""
        raise ZeroDivisionError("oops")

    def verify(self, task: Json, response: Any) -> Json:
        if task.get("unscorable"):
            raise KeyError("expected")
        called = [[call.name, call.arguments, call.output, call.id] for call in response.tool_calls]
        return {
            "reward": float(len(response.text) % 3),
            "calls": called,
            "said": str(response),
            "n": len(response.items),
        }


class Board(TurnEnvironment):
    """Turns whose observations have every shape."""

    def reset(self, task: Json, session: Json) -> Any:
        session.update(left=list(task["observations"]))
        return task["first"]

    @tool
    def peek(self, session: Json) -> int:
        """How many turns are left."""
        return len(session["left"])

    async def step(self, action: str, session: Json) -> Any:
        observation = session["left"].pop(0)
        over = not session["left"]
        return observation, len(action) / 4, over and len(action) % 2 == 0, over and len(action) % 2 == 1, {}


class Market(PlayersEnvironment):
    """Two players, who act together or one after the other."""

    def reset(self, task: Json, session: Json) -> Any:
        session.update(left=task["rounds"], together=task["together"])
        return {"x": "Begin.", **({"o": "Begin, too."} if task["together"] else {})}, {}

    async def step(self, actions: Json, session: Json) -> Any:
        session["left"] -= 1
        told = ["x", "o"] if session["together"] else ["o" if "x" in actions else "x"]
        rewards = {name: len(text) / 8 for name, text in actions.items()}
        return dict.fromkeys(told, f"{session['left']} left"), rewards, session["left"] <= 0, False, {}


class Answers:
    """A user's model: Responses of its own, one after the other."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = iter(answers)

    async def respond(self, request: Json) -> Any:
        return next(self._answers)

    async def aclose(self) -> None:
        """Nothing to close."""


def words(chance: random.Random, most: int = 12) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(1, most)))


def arguments(chance: random.Random) -> tuple[str, str]:
    """A call: the name of a tool, and what the model writes for it."""
    name = chance.choice(["echo", "echo", "look", "scold", "peek", "nothing"] * 3 + ["explode"])
    field = {"look": "at", "peek": "", "explode": ""}.get(name, "text")
    value = {field: words(chance, 4)} if field else {}
    return name, chance.choice([orjson.dumps(value).decode()] * 8 + ["{broken", "[1]"])


def spoken(chance: random.Random, *, calling: bool) -> Json:
    """One answer as a message of a rollouts file, which the scripted model speaks."""
    message: Json = {"content": words(chance)} if not calling or chance.random() < 0.3 else {}
    if chance.random() < 0.3:
        message["reasoning_content"] = words(chance, 20)
    if chance.random() < 0.1:
        message["reasoning_encrypted"] = f"gAAA{chance.randint(0, 99)}"
    if calling:
        called = [arguments(chance) for _ in range(chance.choice([1, 1, 1, 2, 3]))]
        ids = [{"id": f"c{chance.randint(0, 2)}"} if chance.random() < 0.2 else {} for _ in called]
        pairs = zip(called, ids, strict=True)
        message["tool_calls"] = [{"name": name, "arguments": text, **own} for (name, text), own in pairs]
    elif chance.random() < 0.08:
        message["refusal"] = "I will not."
    if chance.random() < 0.1:
        message["annotations"] = [{"type": "url_citation", "url": "https://a.example", "title": "A"}]
    if chance.random() < 0.25:
        count = chance.randint(1, 5)
        message |= {"prompt_token_ids": list(range(count + 3)), "generation_token_ids": list(range(9, 9 + count))}
        if chance.random() < 0.6:
            message["generation_log_probs"] = [-0.125 * (at + 1) for at in range(count)]
    return message


def turn(chance: random.Random, *, calling: bool, more: Json) -> Json:
    """One answer as any provider could give it."""
    made: Json = dict(more)
    if not calling or chance.random() < 0.3:
        made["text"] = words(chance)
    if chance.random() < 0.5:
        made["reasoning"] = f"{words(chance)}. {words(chance, 6)}"
    if calling:
        made["calls"] = [arguments(chance) for _ in range(chance.choice([1, 1, 2]))]
    elif chance.random() < 0.08:
        made = {"refusal": "I cannot help with that."}
    elif chance.random() < 0.1:
        made["finish"] = chance.choice(["max_output_tokens", "content_filter"])
    return made


def prompt(chance: random.Random) -> Json:
    """What a task asks, in every shape of a prompt."""
    text = words(chance)
    image = [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": PIXEL, "detail": "auto"}]
    shapes: list[Any] = [text, text, [{"role": "user", "content": text}]]
    shapes.append([{"role": "system", "content": "Be brief."}, {"role": "user", "content": image}])
    shapes.append([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": text}])
    earlier = [{"role": "user", "content": "Before."}, {"role": "assistant", "content": "Yes."}]
    shapes.append([*earlier, {"role": "user", "content": [{"type": "input_text", "text": text}]}])
    called = {"type": "function_call", "call_id": "p1", "name": "echo", "arguments": '{"text": "a"}'}
    shapes.append([*earlier, called, {"type": "function_call_output", "call_id": "p1", "output": "a"}])
    params: Json = {"input": chance.choice(shapes), "seed": chance.randint(1, 10**6)}
    if chance.random() < 0.3:
        params |= {"temperature": 0.7, "metadata": {"job": "a"}}
    if chance.random() < 0.2:
        params["instructions"] = "Answer."
    return params


def simple(chance: random.Random) -> tuple[Any, Json]:
    """The simple agent with a scripted model, with limits that stop some."""
    steps = chance.choice([0, 0, 1, 1, 1, 2, 3])
    answers = [spoken(chance, calling=True) for _ in range(steps)]
    answers.append(spoken(chance, calling=False) if chance.random() < 0.85 else words(chance) + " {tool_result}")
    limits: Json = chance.choice([{}, {}, {}, {"max_steps": 2}, {"max_rollout_tokens": 30}])
    task: Json = {"responses_create_params": prompt(chance), "id": f"t{chance.randint(0, 99)}", "expected": 1}
    if chance.random() < 0.04:
        task["unscorable"] = True
    if chance.random() < 0.05:
        task |= {"reward": 5, "usage": "mine", "meta": {"a": 1}, "response": "mine"}
    return SimpleAgent(model=ScriptedModel(answers=answers), environment=Bench(), **limits), task


def users_model(chance: random.Random) -> tuple[Any, Json]:
    """The simple agent with a model of the user's, whose Responses are bare, full or no Responses at all."""
    answers: list[Any] = []
    for number in range(chance.choice([1, 2, 3])):
        calling = number == 0 and chance.random() < 0.6
        full = providers.responses(
            turn(chance, calling=calling, more={}), chance, 1 if chance.random() < 0.2 else number
        )
        bare = {"output": full["output"], **({"usage": full["usage"]} if chance.random() < 0.5 else {})}
        answers.append(full if chance.random() < 0.5 else bare)
    if chance.random() < 0.25:
        bad = [
            None,
            "text",
            {},
            {"output": []},
            {"output": [], "status": "incomplete"},
            {"output": [chance.choice(FLAWED)]},
        ]
        bad += [{"output": answers[0]["output"], "usage": {"total_tokens": -1}}, {"output": "text"}]
        answers[chance.randrange(len(answers))] = chance.choice(bad)
    answers += [{"output": [{"type": "message", "content": "the end"}], "status": "completed"}] * 4
    return SimpleAgent(model=Answers(answers), environment=Bench(), max_steps=4), task_of(chance)


def function(chance: random.Random) -> tuple[Any, Json]:
    """The simple agent with a function as its model, which returns texts and Responses."""
    answers: list[Any] = [words(chance)]
    if chance.random() < 0.6:
        called = providers.responses(turn(chance, calling=True, more={}), chance, 1)
        answers.insert(0, {"output": called["output"], "usage": called["usage"]})
    waiting = iter(answers)

    async def asked(request: Json) -> Any:
        return next(waiting)

    def told(text: str) -> Any:
        return next(waiting)

    return SimpleAgent(model=chance.choice([asked, told]), environment=Bench()), task_of(chance)


def task_of(chance: random.Random, **fields: Any) -> Json:
    return {"responses_create_params": prompt(chance), **fields}


def turns(chance: random.Random) -> tuple[Any, Json]:
    """An environment that takes turns."""
    shapes = ["Go on.", "", None, [{"role": "user", "content": "A list."}], [{"role": "system", "content": "S"}]]
    answers = [spoken(chance, calling=chance.random() < 0.3) for _ in range(6)]
    observations = [chance.choice(shapes) for _ in range(chance.randint(1, 4))]
    first = chance.choice(["Begin.", [{"role": "user", "content": "Begin."}], "Look."])
    agent = SimpleAgent(model=ScriptedModel(answers=answers), environment=Board(), max_steps=chance.choice([3, 9]))
    return agent, {"responses_create_params": {"input": [], "seed": 1}, "observations": observations, "first": first}


def players(chance: random.Random) -> tuple[Any, Json]:
    """A game of two."""
    two = {name: ScriptedModel(answers=[spoken(chance, calling=False) for _ in range(4)], model=name) for name in "xo"}
    agent = PlayersAgent(
        players=two, environment=Market(), learner=chance.choice(["x", "o", None]), max_rounds=chance.choice([2, 9])
    )
    params = {"input": [], "seed": 3}
    return agent, {"responses_create_params": params, "rounds": chance.randint(1, 4), "together": chance.random() < 0.5}


def users_agent(chance: random.Random) -> tuple[Any, Json]:
    """An agent of the user's: a text, items, a Response; some with items that have a flaw."""
    whole = providers.responses(turn(chance, calling=chance.random() < 0.5, more={}), chance, chance.randint(0, 9))
    output: list[Any] = list(whole["output"])
    output.append(
        {"type": "function_call_output", "call_id": output[-1].get("call_id", "c"), "output": words(chance, 3)}
    )
    output.insert(chance.randrange(len(output) + 1), chance.choice(FLAWED))
    shapes: list[Any] = [
        {"response": words(chance), "reward": 1},
        {"output": output, "reward": 0.5, "note": "a"},
        {"response": {**whole, "output": output}, "reward": 0.25},
        {"response": {"output": output, "usage": {"input_tokens": 3}}, "reward": 0},
        {"response": {"output": output, "status": "incomplete", "incomplete_details": {"reason": "lost"}}, "reward": 1},
        {"response": "no reward"},
        {"response": {"output": [{"role": "assistant", "content": words(chance)}]}, "reward": 2},
    ]
    result = chance.choice(shapes)

    async def agent(task: Json) -> Any:
        return result

    return as_agent(agent), task_of(chance)


def remote(chance: random.Random) -> tuple[Any, Json]:
    """An agent elsewhere, whose Response holds what it did."""
    first = providers.responses(turn(chance, calling=True, more={}), chance, 1)
    last = providers.responses(turn(chance, calling=False, more={}), chance, 2)
    called = [item for item in first["output"] if item["type"] == "function_call"]
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": words(chance, 3)} for item in called
    ]
    output = [*first["output"], *results, *last["output"]]
    if chance.random() < 0.15:
        output.append(chance.choice(FLAWED))
    return RemoteAgent(agent_server=Answers([{**last, "output": output}]), environment=Bench()), task_of(chance)


KINDS = {
    "simple": (simple, 560),
    "users_model": (users_model, 200),
    "function": (function, 100),
    "turns": (turns, 160),
    "players": (players, 100),
    "users_agent": (users_agent, 160),
    "remote": (remote, 120),
}
PROVIDERS = {"responses": 180, "openai_chat": 160, "vllm": 180, "llama_cpp": 160}


async def outcome(agent: Any, task: Json) -> Json:
    """The row of a rollout and what its verifier saw, or the failure."""
    try:
        result = await agent.run(task, verify="no reward" not in repr(task))
    except RolloutError as error:
        return {"failed": [error.boundary, str(error)], "partial": partial(error)}
    row = make_rollout(task, result, {"key": "t/0", "schema": 1})
    return {"row": row, "seen": sorted_keys(result["response"]), "shapes": digest(shapes(result["response"], row))}


def shapes(response: Json, row: Json) -> list[Any]:
    """The Response that the row gives back, and the one that was seen in the other dialects."""
    made: list[Any] = [response_of(row), messages(items(row["output"]))]
    for convert in (chat_from_response, message_from_response):
        try:
            made.append(convert(response))
        except RolloutError as error:
            made.append(str(error))
    return made


def sorted_keys(value: Any) -> Any:
    """The same where the order of names means nothing: only the row is compared byte by byte."""
    return orjson.loads(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def digest(value: Any) -> str:
    return hashlib.blake2b(stable(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)), digest_size=8).hexdigest()


async def upstream(kind: str, chance: random.Random) -> Json:
    """A rollout whose model is behind HTTP: what was sent to it, what it was made into, and the streamed answers."""
    more = {"ids": kind == "vllm" and chance.random() < 0.5, "probs": chance.random() < 0.3}
    talk = [turn(chance, calling=True, more=more) for _ in range(chance.choice([0, 1, 1, 2]))]
    talk.append(turn(chance, calling=False, more=more))
    make = providers.CHAT.get(kind, providers.responses)
    bodies = [make(each, chance, number) for number, each in enumerate(talk)]
    waiting = iter(bodies)
    params = prompt(chance)
    if more["probs"]:
        params["include"] = ["message.output_text.logprobs"]
    if more["ids"]:
        params["return_token_ids"] = True
    async with WireServer(lambda seen: WireServer.reply(200, next(waiting))) as server:
        endpoint = "chat" if kind in providers.CHAT else "responses"
        model = OpenAI(f"{server.url}/v1", "m", endpoint=endpoint, max_retries=0)
        task: Json = {"responses_create_params": params}
        result = await outcome(SimpleAgent(model=model, environment=Bench()), task)
        result["sent"] = [sorted_keys(each.json) for each in server.seen]
        if kind in providers.CHAT:
            server.answers = [streamed(bodies[0])]
            result["streamed"] = await streamed_answer(model, params)
        if "failed" in result:
            result["failed"][1] = result["failed"][1].replace(server.url, "URL")
    return result


def streamed(completion: Json) -> bytes:
    lines = [f"data: {orjson.dumps(each).decode()}\n\n" for each in providers.chunks(completion)]
    return WireServer.reply(200, "".join([*lines, "data: [DONE]\n\n"]).encode(), Content_Type="text/event-stream")


async def streamed_answer(model: OpenAI, params: Json) -> Any:
    """The Response at the end of a stream, and a digest of all its events."""
    try:
        async with aclosing(events_of(model, params)) as stream:
            events = [event async for event in stream]
    except RolloutError as error:
        return str(error).split(": ", 1)[-1]
    return [sorted_keys(events[-1]["response"]), digest(events)]


def messages_dialect(chance: random.Random) -> Json:
    """A conversation in Anthropic's shape as a request, and what chat makes of it."""
    first, second = (turn(chance, calling=calling, more={}) for calling in (True, False))
    called = providers.anthropic(first, chance, 1)
    results = [
        {
            "type": "tool_result",
            "tool_use_id": block["id"],
            "content": words(chance, 3),
            "is_error": chance.random() < 0.2,
        }
        for block in called
        if block["type"] == "tool_use"
    ]
    talk = [
        {"role": "user", "content": words(chance)},
        {"role": "assistant", "content": called},
        {"role": "user", "content": [*results, {"type": "text", "text": "Go on."}]},
        {"role": "assistant", "content": providers.anthropic(second, chance, 2)},
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}]},
    ]
    request = request_from_messages({"max_tokens": 64, "system": "Be brief.", "messages": talk})
    items = [item for item in request["input"] if item.get("role") != "user" and item.get("role") != "system"]
    row = make_rollout(
        {"responses_create_params": {"input": "a"}}, {"response": {"output": items}, "reward": 1}, {"key": "t/0"}
    )
    message = message_from_response({"id": "resp_1", "model": "m", "output": items})
    back = responses_request({"messages": [{"role": "user", "content": "a"}, *row["output"]]})
    return {"request": request, "row": row, "message": message, "back": back}


async def cases() -> AsyncIterator[Json]:
    for kind, (make, count) in KINDS.items():
        for number in range(count):
            agent, task = make(random.Random(f"{kind} {number}"))
            made = await outcome(agent, task)
            if kind == "function":  # whose Responses have no ids: only the row is compared
                made.pop("seen", None)
                made.pop("shapes", None)
            yield {"kind": kind, **made}
            environment = getattr(agent, "environment", None)
            if environment is not None:
                await environment.aclose()
    for kind, count in PROVIDERS.items():
        for number in range(count):
            yield {"kind": kind, **await upstream(kind, random.Random(f"{kind} {number}"))}
    for number in range(120):
        yield {"kind": "anthropic", **messages_dialect(random.Random(f"anthropic {number}"))}


async def all_lines() -> list[bytes]:
    try:
        return [stable(encode(case)) async for case in cases()]
    finally:
        await http.close_shared()


_RANDOM = re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
_CLOCK = re.compile(rb'("created(?:_at)?":)1[789]\d{8}(?=[,}])')


def stable(line: bytes) -> bytes:
    """A line whose random ids are numbers, and whose clock has stopped."""
    names: dict[bytes, bytes] = {}

    def numbered(match: re.Match[bytes]) -> bytes:
        return names.setdefault(match[0], b"#%d" % len(names))

    return _CLOCK.sub(rb"\g<1>0", _RANDOM.sub(numbered, line))


def stored() -> Iterator[bytes]:
    with lzma.open(STORE) as file:
        yield from file


if __name__ == "__main__":
    STORE.write_bytes(lzma.compress(b"".join(asyncio.run(all_lines())), preset=9 | lzma.PRESET_EXTREME))
    print(f"{STORE.name}: {sum(1 for _ in stored())} lines, {STORE.stat().st_size / 1e3:.0f} KB")
