"""ShareGPT: `{"conversations": [{"from", "value"}], "tools": "…"}`, with the tags LLaMA-Factory knows."""

from __future__ import annotations

import orjson

from velodrome.contracts import Json
from velodrome.exchange.export import chat
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, only, per_rollout

_FROM = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    style = chat.Style(arguments="object", reasoning="drop" if settings.style.reasoning == "drop" else "keep")

    def record(row: Json) -> Json:
        conversations = _turns(chat.prompt(row, style) + chat.answered(chat.completion(row, style)))
        functions = [tool["function"] for tool in chat.tools(row)]
        tools = {"tools": orjson.dumps(functions).decode()} if functions else {}
        return {"conversations": conversations, **tools}

    return per_rollout(record)


def _turns(messages: list[Json]) -> list[Json]:
    """Speakers take turns: a turn's calls are one turn, and so are their results.

    Reasoning is between `<think>` and `</think>` before what it led to.
    """
    turns: list[Json] = []
    results: list[str] = []
    for at, message in enumerate(messages):
        text = chat.text_only(message["content"])
        if message["role"] == "tool":
            results.append(text)
            if at + 1 == len(messages) or messages[at + 1]["role"] != "tool":
                value = results[0] if len(results) == 1 else orjson.dumps(results).decode()
                turns.append({"from": "observation", "value": value})
                results = []
            continue
        thought = f"<think>\n{message['reasoning_content']}\n</think>\n\n" if "reasoning_content" in message else ""
        calls = [call["function"] for call in message.get("tool_calls", ())]
        if text or not calls:
            turns.append({"from": _FROM[message["role"]], "value": thought + text})
            thought = ""
        if calls:
            value = orjson.dumps(calls[0] if len(calls) == 1 else calls).decode()
            turns.append({"from": "function_call", "value": thought + value})
    return turns


FORMAT = Format(
    name="sharegpt",
    about="tagged turns (human, gpt, function_call, observation), as LLaMA-Factory takes them",
    fields={
        "conversations": "turns of `from` (system, human, gpt, function_call, observation) and `value`",
        "tools": "the functions on offer, as JSON text; absent if there were none",
    },
    start=start,
    content=only("conversations", "tools"),
    where="reward>=1",
    settings=("reasoning",),
)
