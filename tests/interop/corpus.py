"""Rollouts that hold everything an export may meet, each with what happened in it.

A case is a task with one rollout that passed and, so that preferences can be made of it, one that did not. `happened`
is the conversation as plain events, in order: the readers' tests compare it with what a reader makes of an export.
`write` writes the files that a collection leaves behind.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from velodrome.records.rollout import SCHEMA, encode, make_rollout

Json = dict[str, Any]
Event = tuple[Any, ...]


def told(role: str, text: str) -> Event:
    """The prompt: what a system, developer or user message says."""
    return ("told", role, text)


def saw(image: str) -> Event:
    """An image that the model was shown, by its URL."""
    return ("saw", image)


def thought(text: str) -> Event:
    return ("thought", text)


def said(text: str) -> Event:
    return ("said", text)


def called(call: str, name: str, arguments: Any) -> Event:
    """A tool call; the arguments as a value, or as text if they are not JSON."""
    return ("called", call, name, arguments)


def got(call: str, text: str) -> Event:
    """A tool result."""
    return ("got", call, text)


def png(red: int, green: int, blue: int, size: int = 2) -> bytes:
    """A square of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes((red, green, blue)) * size) * size
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def data_url(image: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(image).decode()}"


RED, BLUE = data_url(png(255, 0, 0)), data_url(png(0, 0, 255))
REMOTE = "https://images.invalid/cat.png"


def tool(name: str, required: Iterable[str] | None = None, **properties: Json) -> Json:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }
    return {"type": "function", "name": name, "description": f"Does {name}", "parameters": parameters, "strict": True}


WEATHER = tool("weather", city={"type": "string"}, days={"type": "integer"})
CLOCK = tool("clock", zone={"type": "string", "enum": ["UTC", "CET"]})


def text(words: str) -> Json:
    part = {"type": "output_text", "text": words, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def reasoning(words: str) -> Json:
    content = [{"type": "reasoning_text", "text": words}]
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": content}


def call(name: str, arguments: Any, call_id: str = "call_1") -> Json:
    written = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": name, "arguments": written}


def result(output: Any, call_id: str = "call_1") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def user(*parts: str | Json) -> Json:
    content = [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"role": "user", "content": parts[0] if len(parts) == 1 and isinstance(parts[0], str) else content}


def image(url: str) -> Json:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def events(items: Iterable[Json]) -> list[Event]:
    """What happens in items of a request or of a Response."""
    made: list[Event] = []
    for item in items:
        kind, role = item.get("type", "message"), item.get("role")
        if kind == "function_call":
            made.append(called(item["call_id"], item["name"], _value(item["arguments"])))
            continue
        parts = item["output"] if kind == "function_call_output" else item.get("content") or item.get("summary", "")
        for part in [{"text": parts}] if isinstance(parts, str) else parts:
            words = part.get("text", part.get("refusal"))
            if part.get("image_url"):
                made.append(saw(part["image_url"]))
            elif kind == "function_call_output":
                made.append(got(item["call_id"], words))
            elif kind == "reasoning":
                made.append(thought(words))
            else:
                made.append(said(words) if role == "assistant" else told(role, words))
    return made


def chat_events(messages: Iterable[Json]) -> list[Event]:
    """What happens in chat messages, as our exports and their readers have them."""
    made: list[Event] = []
    for message in messages:
        content, calls, thoughts = message["content"], message.get("tool_calls") or (), message.get("reasoning_content")
        made += [thought(thoughts)] if thoughts else []
        for part in [{"text": content}] if isinstance(content, str) else content:
            if part.get("image"):
                made.append(saw(part["image"]))
            elif message["role"] == "tool":
                made.append(got(message["tool_call_id"], part["text"]))
            elif message["role"] != "assistant":
                made.append(told(message["role"], part["text"]))
            elif part["text"] or not (calls or thoughts):
                made.append(said(part["text"]))
        functions = ((each["id"], each["function"]) for each in calls)
        made += [called(call_id, function["name"], function["arguments"]) for call_id, function in functions]
    return made


def _value(arguments: str) -> Any:
    try:
        return orjson.loads(arguments)
    except ValueError:
        return arguments


@dataclass(frozen=True)
class Case:
    """One rollout by what it holds. Cases with the same feature are exported alike."""

    name: str
    feature: str
    input: list[Json]
    output: list[Json]
    tools: list[Json] = field(default_factory=list)
    params: Json = field(default_factory=dict)
    response: Json = field(default_factory=dict)  # other fields of the Response

    @property
    def prompt(self) -> list[Event]:
        """What the model was given."""
        system = [told("system", self.params["instructions"])] if "instructions" in self.params else []
        return [*system, *events(self.input)]

    @property
    def made(self) -> list[Event]:
        """What it did with it, results included."""
        return events(self.output)

    @property
    def happened(self) -> list[Event]:
        return [*self.prompt, *self.made]

    @property
    def worse(self) -> list[Event]:
        """What the rollout that did not pass holds in place of `made`."""
        return [said(f"I do not know ({self.name}).")]

    def rows(self) -> list[Json]:
        """The rollout that passed, and the one that did not, as the collector writes them."""
        return [self._row(self.output, self.response, 0, 1.0), self._row([text(self.worse[0][1])], {}, 1, 0.0)]

    def _row(self, output: list[Json], fields: Json, repeat: int, reward: float) -> Json:
        params = {"input": self.input, **self.params, **({"tools": self.tools} if self.tools else {})}
        task = {"id": self.name, "responses_create_params": params, "expected_answer": "42"}
        response = {
            "id": f"resp_{self.name}_{repeat}",
            "object": "response",
            "created_at": 1794775197,
            "model": "m",
            "status": "completed",
            "output": output,
            "usage": {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25},
            **fields,
        }
        meta = {
            "key": f"{self.name}/{repeat}",
            "task_index": list(CASES).index(self.name),
            "rollout_index": repeat,
            "agent": "corpus_agent",
            "schema": SCHEMA,
            "finished_at": 1794775197.5,
            "timing": {"queue_s": 0.0, "model_s": 0.5, "tools_s": 0.125, "verify_s": 0.0, "total_s": 0.75},
        }
        return make_rollout(task, {**task, "response": response, "reward": reward}, meta)


def _simple(name: str, feature: str, *output: Json, **more: Any) -> Case:
    """A case with a question of its own as the prompt."""
    return Case(name, feature, [user(f"What about {name}?")], list(output), **more)


def _called(name: str, feature: str, offered: Json, arguments: Any, call_id: str = "call_1") -> Case:
    """A case of one call, its result and an answer."""
    output = call(offered["name"], arguments, call_id), result("15 degrees", call_id), text(f"It is mild ({name}).")
    return _simple(name, feature, *output, tools=[offered])


OSLO, ROME = {"city": "Oslo", "days": 2}, {"city": "Rome", "days": 3}
LONG_ID = "call_" + "0123456789abcdef" * 5
ODD = 'naïve 日本 🎉 "quoted" \\ back\tslash\u2028line\u200d\u001b[31mred\u0000nul\r\nend'
MARKED = "Write <tool_call> or </think> or <|im_end|> as they are."
SPACED = "\n\n\n  Indented, and a line below.\n\n"
TOKENS = {
    "prompt_token_ids": [1, 2, 3],
    "generation_token_ids": [4, 5, 6],
    "generation_log_probs": [-0.1, -0.2, -0.3],
}


def _answers() -> list[Case]:
    refused = {"type": "refusal", "refusal": "I cannot help with that."}
    refusal, beside = ({**text(""), "content": parts} for parts in ([refused], [*text("Well.")["content"], refused]))
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return [
        _simple("plain", "plain answer", text("It is 42.")),
        _simple("odd", "unicode and control characters", text(ODD)),
        _simple("marks", "a template's own marks in the text", text(MARKED)),
        _simple("spaces", "white space around the text", text(SPACED)),
        _simple("empty", "empty answer", text("")),
        _simple("tokens", "token ids", {**text("It is 42 by tokens."), **TOKENS}),
        _simple("refusal", "refusal", refusal),
        _simple("refusal_beside_text", "refusal beside text", beside),
        _simple("reasoning", "reasoning", reasoning("Six by seven."), text("42.")),
        _simple("truncated", "cut off by max_output_tokens", text("The answer to everyth"), response=cut),
    ]


def _calls() -> list[Case]:
    two = [call("weather", OSLO, "call_a"), call("weather", ROME, "call_b")]
    two += [result("3 degrees", "call_a"), result("21 degrees", "call_b")]
    one = [call("weather", OSLO), result("3 degrees")]
    again = [call("clock", {"zone": "UTC"}), result("noon")]
    picture = result([{"type": "input_text", "text": "A picture:"}, image(BLUE)])
    stopped = {"status": "incomplete", "metadata": {"stop": "max_steps"}}
    thoughts, cold = (reasoning("I need the weather."), reasoning("So cold.")), text("Cold.")
    both = reasoning("Both cities."), text("Let me compare.")
    made: list[tuple[str, str, list[Json], Json]] = [
        ("parallel_calls", "parallel calls", [*two, text("Rome is warmer.")], {}),
        ("text_beside_calls", "text beside calls", [text("Let me look."), *one, cold], {}),
        ("reasoning_beside_calls", "reasoning beside calls", [thoughts[0], *one, thoughts[1], cold], {}),
        ("all_beside_calls", "reasoning and text beside calls", [*both, *two, text("Rome.")], {}),
        ("same_id_again", "a call id used again", [*one, *again, cold], {}),
        ("max_steps", "stopped by max_steps", one, stopped),
        ("ends_with_result", "ends with a tool result", one, {}),
        ("ends_with_call", "ends with a tool call", one[:1], {}),
        ("image_result", "image in a tool result", [one[0], picture, text("Blue sky.")], {}),
    ]
    offered = [WEATHER, CLOCK]
    cases = [_simple(name, what, *output, response=response, tools=offered) for name, what, output, response in made]
    return [
        _called("one_call", "one call", WEATHER, OSLO),
        *cases[:4],
        _called("long_ids", "long call ids", WEATHER, OSLO, LONG_ID),
        *cases[4:8],
        _called("not_json", "arguments that are not JSON", WEATHER, '{"city": "Oslo", '),
        *cases[8:],
    ]


def _schemas() -> list[Case]:
    """Rows whose tools and arguments have the same names and different types."""
    kinds: list[tuple[str, Json, Any]] = [
        ("int", {"type": "integer"}, 7),
        ("float", {"type": "number", "minimum": 0.1}, 0.25),
        ("text", {"type": "string", "enum": ["7", "8"]}, "7"),
        ("list", {"type": "array", "items": {"type": "string"}}, ["a", "b"]),
        ("numbers", {"type": "array", "items": {"type": "number"}}, [1, 2.5]),
        ("object", {"type": "object", "properties": {"x": {"type": "integer"}}}, {"x": 1, "y": {"z": []}}),
        ("null", {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}, None),
        ("either", {"type": ["string", "null"], "default": "x"}, "x"),
        ("bool", {"type": "boolean", "default": False}, True),
    ]
    optional = tool("set", ["value"], value={"type": "integer"}, note={"type": "string", "description": "or none"})
    words, decimals = tool("set", value={"type": "string"}), tool("set", value={"type": "number"})
    mixed = [
        *((kind, tool("set", value=schema), {"value": value}) for kind, schema, value in kinds),
        ("optional", optional, {"value": 1}),
        ("given", optional, {"value": 1, "note": "so"}),
        ("none", {**tool("set"), "strict": False}, {}),
    ]
    return [
        *(_called(f"schema_{kind}", "mixed schemas", offered, arguments) for kind, offered, arguments in mixed),
        _called("decimal", "decimals such as 0.3 in arguments", decimals, {"value": 0.3}),
        _called("odd_arguments", "unicode and control characters in arguments", words, {"value": ODD}),
    ]


def _prompts() -> list[Case]:
    earlier = [
        user("Weather in Oslo?"),
        call("weather", OSLO, "call_0"),
        result("3 degrees", "call_0"),
        {"role": "assistant", "content": "Cold in Oslo."},
        user("And in Rome?"),
    ]
    again = [call("weather", ROME), result("21 degrees"), text("Warm in Rome.")]
    hello, red = [text("Hello.")], [text("Red.")]
    system = {"params": {"instructions": "Be brief."}}
    kind, greet = {"role": "developer", "content": "Be kind."}, user("Greet.")
    return [
        Case("system", "system prompt", [greet], hello, **system),
        Case("developer", "system prompt", [kind, greet], hello),
        Case("earlier_calls", "earlier turns with calls in the prompt", earlier, again, tools=[WEATHER]),
        Case("image", "image in the prompt", [user("Which colour?", image(RED))], red),
        Case("images", "image in the prompt", [user(image(RED), "or", image(BLUE), "?")], red),
        Case("remote_image", "image behind an http address", [user("What is it?", image(REMOTE))], red),
    ]


CASES: dict[str, Case] = {case.name: case for case in (*_answers(), *_calls(), *_schemas(), *_prompts())}


FAILED = {
    "key": "failed/0",
    "task_index": len(CASES),
    "rollout_index": 0,
    "agent": "corpus_agent",
    "schema": SCHEMA,
    "boundary": "model",
    "error": "the model server answered 500",
    "finished_at": 1794775197.5,
    "timing": {"total_s": 0.5},
    "partial": [],
    "responses_create_params": {"input": [user("What about failed?")]},
}


def write(folder: Path, names: Iterable[str] = CASES) -> Path:
    """The rollouts file of these cases, with its failures file beside it."""
    rollouts = folder / "rollouts.jsonl"
    rollouts.write_bytes(b"".join(encode(row) for name in names for row in CASES[name].rows()))
    (folder / "rollouts.failures.jsonl").write_bytes(encode(FAILED))
    return rollouts
