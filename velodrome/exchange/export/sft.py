"""Supervised fine-tuning: `{"messages": […], "tools": […]}`, one passed rollout per line."""

from __future__ import annotations

from velodrome.contracts import Json
from velodrome.exchange.export import chat
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, only, per_rollout

_IMAGES = f"; {chat.AS_TEXT} keeps images of the prompt"


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    style = settings.style

    def record(row: Json) -> Json:
        messages = chat.prompt(row, style) + chat.ended(row, chat.answered(chat.completion(row, style)))
        if style.arguments == "object":
            messages = chat.loadable(messages, style, images=_IMAGES)
        else:
            messages = [_openai(message) for message in messages]
        return chat.with_tools({"messages": messages}, row, listed=_listed(style))

    return per_rollout(record)


def _listed(style: chat.Style) -> bool:
    """Whether `tools` is a list: in OpenAI's form, which is never a table."""
    return style.arguments == "text" and not style.table


def _openai(message: Json) -> Json:
    """OpenAI's tool messages have no name."""
    return {name: value for name, value in message.items() if (message["role"], name) != ("tool", "name")}


def types(settings: ExportSettings) -> Json:
    return {"messages": chat.LIST_TYPE, "tools": chat.LIST_TYPE if _listed(settings.style) else chat.TEXT_TYPE}


FORMAT = Format(
    name="sft",
    about="chat messages with tools, as TRL and OpenAI's fine-tuning take them",
    fields={
        "messages": "the whole conversation: system, user, assistant (with tool_calls), tool",
        "tools": f"{chat.TOOLS_FIELD}; with --arguments text a list, except in a .parquet file",
    },
    start=start,
    content=only("messages", "tools"),
    where="reward>=1",
    settings=("arguments", "reasoning"),
    types=types,
)
