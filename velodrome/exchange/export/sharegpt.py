"""ShareGPT as LLaMA-Factory reads it: `{"conversations": [{"from", "value"}], "tools": "…"}`.

LLaMA-Factory takes turns strictly, a question or results and then an answer or calls, and drops a conversation that
does not. A turn's calls are JSON, and its reasoning and text before them need `<tool_call>` around that JSON, by which
LLaMA-Factory tells them apart.
"""

from __future__ import annotations

import orjson

from velodrome.contracts import Json
from velodrome.exchange.export import chat
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, only, per_rollout

_MARK = "<tool_call>"
_NEXT_RESULT = "\n</tool_response>\n<tool_response>\n"  # LLaMA-Factory's own, of the data that it reads as OpenAI's
_PLACES = ("<image>", "<video>", "<audio>")  # where LLaMA-Factory puts files
_NUMBER = "{{idx}}"  # where it puts the number of a question
_ENTRY = orjson.dumps(
    {
        "rollouts": {
            "file_name": "FILE.jsonl",
            "formatting": "sharegpt",
            "columns": {"messages": "conversations", "tools": "tools"},
        }
    },
    option=orjson.OPT_INDENT_2,
).decode()
_ASKS, _ANSWERS = ("human", "observation"), ("gpt", "function_call")


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    style = chat.Style(arguments="text", reasoning="drop" if settings.style.reasoning == "drop" else "keep")

    def record(row: Json) -> Json:
        answer = chat.ended(row, chat.answered(chat.completion(row, style)))
        functions = [tool["function"] for tool in chat.tools(row)]
        conversations = _turns(chat.prompt(row, style) + answer)
        return {"conversations": conversations, "tools": orjson.dumps(functions).decode() if functions else ""}

    return per_rollout(record)


def _turns(messages: list[Json]) -> list[Json]:
    turns: list[Json] = []
    for at, message in enumerate(messages):
        text = chat.text_only(message["content"])
        if message["role"] == "tool" and at and messages[at - 1]["role"] == "tool":
            turns[-1]["value"] += _NEXT_RESULT + text
        elif message["role"] == "assistant":
            turns.append(_answer(message, text))
        else:
            name = {"system": "system", "user": "human", "tool": "observation"}[message["role"]]
            turns.append({"from": name, "value": text})
    for turn in turns:
        for place in (*_PLACES, _NUMBER) if turn["from"] == "human" else _PLACES:
            if place in turn["value"]:
                raise chat.Unfit(f"it has {place} in a text, which LLaMA-Factory would replace")
    asked = turns[1:] if turns[0]["from"] == "system" else turns
    if any(turn["from"] not in (_ANSWERS if at % 2 else _ASKS) for at, turn in enumerate(asked)):
        raise chat.Unfit("its speakers do not take turns, and LLaMA-Factory drops such a conversation")
    return turns


def _answer(message: Json, text: str) -> Json:
    thought = f"<think>\n{message['reasoning_content']}\n</think>\n\n" if "reasoning_content" in message else ""
    calls = [_call(call["function"]) for call in message.get("tool_calls", ())]
    if not calls:
        return {"from": "gpt", "value": thought + text}
    before = f"{thought}{text}\n" if text else thought
    if _MARK in before:
        raise chat.Unfit(f"it has {_MARK} in what is said before a call")
    # As escapes in the JSON, marks in an argument are not taken for the end of it.
    value = orjson.dumps(calls[0] if len(calls) == 1 else calls).decode().replace("<", "\\u003c")
    return {"from": "function_call", "value": f"{before}{_MARK}{value}</tool_call>" if before else value}


def _call(function: Json) -> Json:
    """The name and the arguments as the model wrote them."""
    chat.parsed_arguments(function["arguments"])
    return {"name": function["name"], "arguments": orjson.Fragment(function["arguments"] or "{}")}


def _remarks(record: Json) -> list[str]:
    if all(_NEXT_RESULT not in turn["value"] for turn in record["conversations"]):
        return []
    return ["several results of one turn; only templates with <tool_response>, such as Qwen's, show them one by one"]


FORMAT = Format(
    name="sharegpt",
    about="tagged turns (human, gpt, function_call, observation), as LLaMA-Factory takes them",
    fields={
        "conversations": "turns of `from` (system, human, gpt, function_call, observation) and `value`",
        "tools": "the functions on offer, as JSON text; empty if there were none",
    },
    start=start,
    content=only("conversations", "tools"),
    where="reward>=1",
    settings=("reasoning",),
    remarks=_remarks,
    usage=f"In LLaMA-Factory's `dataset_info.json`:\n\n```json\n{_ENTRY}\n```\n",
)
