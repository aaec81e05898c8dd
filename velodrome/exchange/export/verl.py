"""Prompts for RL with verl: one task per row of a Parquet file, in the columns verl documents.

`reward_model.ground_truth` is the task's answer; `extra_info` has the pass rate of its rollouts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.exchange.export import chat
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, Unit, each_fit, only, reward_of
from velodrome.stats.metrics import PASS_REWARD


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    counts: Counter[str] = Counter()

    def convert(unit: Unit) -> Iterator[Json]:
        fitting = each_fit(unit, _prompt, leave_out)
        if not fitting:
            return
        row, prompt = fitting[0]
        rewards = [reward for reward in map(reward_of, unit.rows) if reward is not None]
        answer = row.get(settings.answer)
        offered = chat.tools(row)
        yield {
            "data_source": settings.data_source
            or _own(row, "data_source")
            or _own(row["meta"], "agent")
            or "velodrome",
            "prompt": prompt,
            "ability": settings.ability or _own(row, "ability") or "agent",
            "reward_model": {"style": "rule", "ground_truth": None if answer is None else _text(answer)},
            "extra_info": {
                "split": unit.split,
                "index": counts[unit.split],
                "task": unit.task,
                "answers": len(rewards),
                "pass_rate": sum(reward >= PASS_REWARD for reward in rewards) / len(rewards) if rewards else None,
                "mean_reward": sum(rewards) / len(rewards) if rewards else None,
                "tools": orjson.dumps(offered).decode() if offered else None,
            },
        }
        counts[unit.split] += 1

    return convert


def _prompt(row: Json) -> list[Json]:
    messages = []
    for message in chat.prompt(row, chat.Style(reasoning="drop")):
        if "tool_calls" in message or message["role"] == "tool":
            raise chat.Unfit("its prompt has tool calls, which verl's prompts have no form for")
        messages.append({"role": message["role"], "content": chat.text_only(message["content"])})
    return messages


def _own(row: Json, name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) and value else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def schema(arrow: Any, numeric: Sequence[str]) -> Any:
    text = arrow.string()
    extra = {
        "split": text,
        "index": arrow.int64(),
        "task": text,
        "answers": arrow.int64(),
        "pass_rate": arrow.float64(),
        "mean_reward": arrow.float64(),
        "tools": text,
    }
    return arrow.schema(
        {
            "data_source": text,
            "prompt": arrow.list_(arrow.struct({"role": text, "content": text})),
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
        "prompt": "what was asked: a list of `role` and `content`",
        "ability": "the kind of task: --ability, else the task's own, else `agent`",
        "reward_model": "`style` is `rule`; `ground_truth` is the task's answer as text (field --answer), or null",
        "extra_info": "`split`, `index` in it, `task`, and of its rollouts `answers` (how many have a reward), "
        "`pass_rate`, `mean_reward`; `tools` as JSON text",
    },
    start=start,
    content=only("prompt", "reward_model"),
    by_task=True,
    settings=("answer", "data_source", "ability"),
    schema=schema,
)
