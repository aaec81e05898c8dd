"""Prompts for RL with verl: one task per row of a Parquet file, in the columns verl documents.

A prompt of texts is a list of `role` and `content`, as in everybody's files for verl. If a prompt of the export has
calls, reasoning or images, the column is JSON, which gives every message its own fields: a column of one type would add
empty ones, and chat templates take an empty `tool_calls` for a call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from velodrome.contracts import Json
from velodrome.exchange.export import chat
from velodrome.exchange.export.format import (
    Convert,
    ExportSettings,
    Format,
    LeaveOut,
    Unit,
    as_text,
    each_fit,
    only,
    reward_of,
)
from velodrome.records.rollout import task_of
from velodrome.stats.metrics import PASS_REWARD

_STYLE = chat.Style(arguments="object", table=True)


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    counts: Counter[str] = Counter()

    def convert(unit: Unit) -> Iterator[Json]:
        fitting = each_fit(unit, _prompt, leave_out)
        if not fitting:
            return
        row, prompt = fitting[0]
        answer = row.get(settings.answer)
        offered = chat.tools(row)
        yield {
            "data_source": settings.data_source
            or _own(row, "data_source")
            or _own(row["meta"], "agent")
            or "velodrome",
            "agent_name": _own(row, "agent_name") or ("tool_agent" if offered else "single_turn_agent"),
            "prompt": prompt,
            "ability": _own(row, "ability") or "agent",
            "reward_model": {"style": "rule", "ground_truth": None if answer is None else as_text(answer)},
            "extra_info": {
                "split": unit.split,
                "index": counts[unit.split],
                "task": unit.task,
                **_rewards(unit.rows),
                "tools": as_text(offered) if offered else None,
                "tool_selection": [tool["function"]["name"] for tool in offered],
                "verify": as_text(task_of(row)),
            },
        }
        counts[unit.split] += 1

    return convert


def _rewards(rows: Sequence[Json]) -> Json:
    rewards = [reward for reward in map(reward_of, rows) if reward is not None]
    return {
        "answers": len(rewards),
        "pass_rate": sum(reward >= PASS_REWARD for reward in rewards) / len(rewards) if rewards else None,
        "mean_reward": sum(rewards) / len(rewards) if rewards else None,
    }


def _prompt(row: Json) -> list[Json]:
    chat.tools(row)
    messages = chat.prompt(row, _STYLE)
    for message in messages:
        message["content"] = _content(message["content"])
        for call in message.get("tool_calls", ()):
            if not chat.survives(call["function"]["arguments"], _STYLE):
                raise chat.Unfit("`datasets` would change a number of a call in its prompt")
    return messages


def _content(content: Any) -> Any:
    """The text, or parts as verl's models for images take them."""
    if isinstance(content, str) or all("text" in part for part in content):
        return chat.text_only(content)
    return [_part(part) for part in content]


def _part(part: Json) -> Json:
    if part["type"] == "image_url":
        return {"type": "image", "image": part["image_url"]["url"]}
    return {"type": "text", "text": chat.text_only([part])}


def _own(row: Json, name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) and value else None


def loose(record: Json) -> bool:
    return any(len(message) > 2 or not isinstance(message["content"], str) for message in record["prompt"])


def remarks(record: Json) -> list[str]:
    return [] if record["reward_model"]["ground_truth"] is not None else ["it has no ground_truth: see --answer"]


def schema(arrow: Any, numeric: Sequence[str]) -> Any:
    return _schema(arrow, arrow.list_(arrow.struct({"role": arrow.string(), "content": arrow.string()})))


def loose_schema(arrow: Any, numeric: Sequence[str]) -> Any:
    return _schema(arrow, arrow.json_())


def _schema(arrow: Any, prompt: Any) -> Any:
    text = arrow.string()
    extra = {
        "split": text,
        "index": arrow.int64(),
        "task": text,
        "answers": arrow.int64(),
        "pass_rate": arrow.float64(),
        "mean_reward": arrow.float64(),
        "tools": text,
        "tool_selection": arrow.list_(text),
        "verify": text,
    }
    return arrow.schema(
        {
            "data_source": text,
            "agent_name": text,
            "prompt": prompt,
            "ability": text,
            "reward_model": arrow.struct({"style": text, "ground_truth": text}),
            "extra_info": arrow.struct(extra),
        }
    )


FORMAT = Format(
    name="verl",
    about="prompts with their answers, one task a row of a Parquet file, as verl takes them",
    fields={
        "data_source": "chooses verl's reward function: --data-source, else the task's own, else the agent's name",
        "agent_name": "verl's agent loop: the task's own, else `tool_agent` if tools were offered, else "
        "`single_turn_agent`",
        "prompt": "what was asked: a list of messages; as JSON if one of the export has calls, reasoning or images",
        "ability": "the kind of task: the task's own, else `agent`",
        "reward_model": "`style` is `rule`; `ground_truth` is the task's answer as text (field --answer), or null",
        "extra_info": "`split`, `index` in it, `task`, and of its rollouts `answers` (how many have a reward), "
        "`pass_rate`, `mean_reward`; `tools` as JSON text, their names in `tool_selection`; the task in `verify`, "
        "as JSON text for the environment's `/verify`",
    },
    start=start,
    content=only("prompt", "reward_model"),
    by_task=True,
    settings=("answer", "data_source"),
    schema=schema,
    loose_schema=loose_schema,
    loose=loose,
    remarks=remarks,
)
