"""Supervised fine-tuning: `{"messages": […], "tools": […]}`, one passed rollout a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from velodrome.exchange.export import chat
from velodrome.exchange.export.format import Convert, ExportSettings, Format, Tell, Unit, only

Json = dict[str, Any]


def start(settings: ExportSettings, tell: Tell) -> Convert:
    """Rollouts -> whole conversations."""
    style = settings.style

    def convert(unit: Unit) -> Iterator[Json]:
        for row in unit.rows:
            messages = chat.prompt(row, style) + chat.answered(chat.completion(row, style))
            yield chat.with_tools({"messages": messages}, row)

    return convert


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
