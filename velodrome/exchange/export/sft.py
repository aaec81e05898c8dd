"""Supervised fine-tuning: `{"messages": […], "tools": […]}`, one passed rollout per line."""

from __future__ import annotations

from velodrome.contracts import Json
from velodrome.exchange.export import chat
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, only, per_rollout

_IMAGES = "; --arguments text keeps images of the prompt"


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    style = settings.style

    def record(row: Json) -> Json:
        messages = chat.prompt(row, style) + chat.ended(row, chat.answered(chat.completion(row, style)))
        if style.arguments == "object":
            messages = chat.loadable(messages, style, images=_IMAGES)
        else:
            messages = [_openai(message) for message in messages]
        return chat.with_tools({"messages": messages}, row, style)

    return per_rollout(record)


def _openai(message: Json) -> Json:
    """OpenAI's tool messages have no name."""
    return {name: value for name, value in message.items() if (message["role"], name) != ("tool", "name")}


def types(settings: ExportSettings) -> Json:
    return {"messages": chat.MESSAGES_TYPE, "tools": chat.tools_type(settings.arguments)}


FORMAT = Format(
    name="sft",
    about="chat messages with tools, as TRL and OpenAI's fine-tuning take them",
    fields={
        "messages": "the whole conversation: system, user, assistant (with tool_calls), tool",
        "tools": chat.TOOLS_FIELD,
    },
    start=start,
    content=only("messages", "tools"),
    where="reward>=1",
    settings=("arguments", "reasoning"),
    types=types,
)
