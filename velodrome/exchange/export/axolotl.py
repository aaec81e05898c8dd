"""Chat messages as axolotl's `chat_template` reads them.

`messages` and `tools` are JSON text, which axolotl decodes itself: as values, a null in them would be dropped. An
earlier turn of the assistant in the prompt says that it is not to be trained on.
"""

from __future__ import annotations

import orjson

from velodrome.contracts import Json
from velodrome.exchange.export import chat
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, only, per_rollout

_CONFIG = """
datasets:
  - path: FILE.jsonl
    ds_type: json
    type: chat_template
    message_field_training: training
"""


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    style = chat.Style(arguments="text", reasoning=settings.reasoning)

    def record(row: Json) -> Json:
        prompt = chat.prompt(row, style)
        answer = chat.ended(row, chat.answered(chat.completion(row, style)))
        for message in prompt:
            if message["role"] == "assistant":
                message["training"] = False
        for message in prompt + answer:
            _check(message)
        offered = chat.tools(row)
        tools = {"tools": orjson.dumps(offered).decode()} if offered else {}
        return {"messages": orjson.dumps(prompt + answer).decode(), **tools}

    return per_rollout(record)


def _check(message: Json) -> None:
    """Raise `Unfit` if axolotl would not train on the message as it is."""
    message["content"] = chat.text_only(message["content"])
    calls = message.get("tool_calls", ())
    for call in calls:
        chat.parsed_arguments(call["function"]["arguments"])
    if message["role"] == "assistant" and not (message["content"] or calls or "reasoning_content" in message):
        raise chat.Unfit("the model said nothing in a turn, and axolotl trains on no such turn")


FORMAT = Format(
    name="axolotl",
    about="chat messages with tools, as axolotl's chat_template takes them",
    fields={
        "messages": "the whole conversation as JSON text; `training` is false in earlier turns of the assistant",
        "tools": "the functions on offer, as JSON text; absent if there were none",
    },
    start=start,
    content=only("messages", "tools"),
    where="reward>=1",
    settings=("reasoning",),
    usage=f"In axolotl's config:\n\n```yaml\n{_CONFIG.strip()}\n```\n",
)
