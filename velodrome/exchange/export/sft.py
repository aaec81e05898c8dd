"""Supervised fine-tuning: `{"messages": […], "tools": […]}`, one passed rollout per line."""

from __future__ import annotations

from velodrome.contracts import Json
from velodrome.exchange.export import chat
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, only, per_rollout


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    style = settings.style

    def record(row: Json) -> Json:
        messages = chat.prompt(row, style) + chat.answered(chat.completion(row, style))
        return chat.with_tools({"messages": messages}, row)

    return per_rollout(record)


FORMAT = Format(
    name="sft",
    about="chat messages with tools, as TRL and OpenAI's fine-tuning take them",
    fields={
        "messages": "the whole conversation: system, user, assistant (with tool_calls), tool",
        "tools": "the functions on offer, in the shape of chat completions; absent if there were none",
    },
    start=start,
    content=only("messages", "tools"),
    where="reward>=1",
    settings=("arguments", "reasoning"),
)
