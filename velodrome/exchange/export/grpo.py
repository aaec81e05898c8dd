"""Groups: one task per line with all its answers and their rewards, and tokens where the model server gave them."""

from __future__ import annotations

from collections.abc import Iterator

from velodrome.contracts import Json
from velodrome.exchange.export import chat
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, Unit, each_fit, only, scored
from velodrome.records.conversation import TOKEN_FIELDS


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    style = settings.style
    first_prompt: list[Json] = []

    def build(row: Json) -> tuple[list[Json], float, list[Json]]:
        reward, prompt = scored(row), chat.prompt(row, style)
        if prompt != (first_prompt or prompt):
            raise chat.Unfit("its prompt is not that of the task's first rollout")
        first_prompt[:] = prompt
        return chat.completion(row, style), reward, _turns(row)

    def convert(unit: Unit) -> Iterator[Json]:
        first_prompt.clear()
        fitting = each_fit(unit, build, leave_out)
        if not fitting:
            return
        record: Json = {
            "task": unit.task,
            "prompt": list(first_prompt),
            "completions": [built[0] for _, built in fitting],
            "rewards": [built[1] for _, built in fitting],
            "keys": [row["meta"]["key"] for row, _ in fitting],
        }
        if any(built[2] for _, built in fitting):
            record["turns"] = [built[2] for _, built in fitting]
        answer = fitting[0][0].get(settings.answer)
        if answer is not None and settings.answer not in record:
            record[settings.answer] = answer
        yield chat.with_tools(record, fitting[0][0])

    return convert


def _turns(row: Json) -> list[Json]:
    """The model's turns that came with token ids, each with its prompt and what it generated."""
    turns = []
    for message in row["output"]:
        if message.get("role") == "assistant" and "generation_token_ids" in message:
            turns.append({name: message[name] for name in TOKEN_FIELDS if name in message})
    return turns


FORMAT = Format(
    name="grpo",
    about="one task a line: its prompt, all its answers, their rewards, tokens where there are any",
    fields={
        "task": "the id of the task",
        "prompt": "what was asked, as chat messages",
        "completions": "the answers, each a list of chat messages",
        "rewards": "their rewards, in the same order",
        "keys": "their keys in the rollouts file, in the same order",
        "turns": "for each answer the model's turns as `prompt_token_ids`, `generation_token_ids` and "
        "`generation_log_probs`; absent if the model server gave no token ids",
        "expected_answer": "the task's answer, where it has one (another field with --answer)",
        "tools": "the functions on offer, in the shape of chat completions; absent if there were none",
    },
    start=start,
    content=only("prompt", "completions", "rewards", "tools"),
    by_task=True,
    settings=("arguments", "reasoning", "answer"),
)
