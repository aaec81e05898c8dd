"""Groups: one task per line with all its answers and their rewards, and tokens where the model server gave them.

TRL's GRPO generates from `prompt` and gives every other column to the reward function by its name, so none has a name
that TRL itself uses there (`completions`, `prompts`, `completion_ids`, …).
"""

from __future__ import annotations

from collections.abc import Iterator

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
    scored,
)
from velodrome.records.conversation import TOKEN_FIELDS, token_flaws
from velodrome.records.facts import RowFacts

_TOKEN_TYPES = dict(zip(TOKEN_FIELDS, ("int64", "int64", "float64"), strict=True))


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    style = settings.style
    first_prompt: list[Json] = []

    def build(row: Json) -> tuple[list[Json], float, list[Json]]:
        reward, prompt = scored(row), chat.loadable(chat.prompt(row, style), style)
        if prompt != (first_prompt or prompt):
            raise chat.Unfit("its prompt is not that of the task's first rollout")
        chat.tools(row)
        built = chat.loadable(chat.completion(row, style), style), reward, _turns(row)
        first_prompt[:] = prompt
        return built

    def convert(unit: Unit) -> Iterator[Json]:
        first_prompt.clear()
        fitting = each_fit(unit, build, leave_out)
        if not fitting:
            return
        record: Json = {
            "task": unit.task,
            "prompt": list(first_prompt),
            "answers": [built[0] for _, built in fitting],
            "rewards": [built[1] for _, built in fitting],
            "statuses": [row["response"].get("status") for row, _ in fitting],
            "stops": [RowFacts(row).stopped_by for row, _ in fitting],
            "keys": [row["meta"]["key"] for row, _ in fitting],
        }
        if any(built[2] for _, built in fitting):
            record["turns"] = [built[2] for _, built in fitting]
        answer = fitting[0][0].get(settings.answer)
        if answer is not None and settings.answer not in record:
            record[settings.answer] = as_text(answer)
        yield chat.with_tools(record, fitting[0][0])

    return convert


def _turns(row: Json) -> list[Json]:
    """The model's turns with their token ids: all of them, or none if the server gave none.

    Log-probabilities of some turns only are left out: the ids are whole without them.
    """
    _, broken = token_flaws(row["output"])
    if broken:
        raise chat.Unfit(f"its token ids are not whole: {broken[0]}")
    turns = [message for message in row["output"] if message.get("role") == "assistant"]
    given = [turn for turn in turns if turn.get("generation_token_ids") is not None]
    prompt, ids, log_probs = TOKEN_FIELDS
    names = TOKEN_FIELDS if all(turn.get(log_probs) is not None for turn in given) else (prompt, ids)
    return [{name: turn.get(name) if name in names else None for name in TOKEN_FIELDS} for turn in given]


def types(settings: ExportSettings) -> Json:
    return {
        settings.answer: chat.TEXT_TYPE,
        "task": chat.TEXT_TYPE,
        "prompt": chat.LIST_TYPE,
        "answers": {"list": {"list": "json"}},
        "rewards": {"list": "float64"},
        "statuses": {"list": "string"},
        "stops": {"list": "string"},
        "keys": {"list": "string"},
        "turns": {"list": {"list": [{"name": name, "list": _TOKEN_TYPES[name]} for name in TOKEN_FIELDS]}},
        "tools": chat.TEXT_TYPE,
    }


FORMAT = Format(
    name="grpo",
    about="one task a line: its prompt, all its answers, their rewards, tokens where there are any",
    fields={
        "task": "the id of the task",
        "prompt": "what was asked, as chat messages",
        "answers": "what the agent made of it each time, as a list of chat messages",
        "rewards": "their rewards, in the same order",
        "statuses": "`completed`, or `incomplete` if the model was cut off or the agent stopped, in the same order",
        "stops": "why they were stopped early (`max_steps`, `max_output_tokens`, `content_filter`), or an empty text",
        "keys": "their keys in the rollouts file, in the same order",
        "turns": "for each answer the model's turns as `prompt_token_ids`, `generation_token_ids` and "
        "`generation_log_probs` (null where there are none, or not for every turn); absent if the model server "
        "gave no token ids",
        "expected_answer": "the task's answer as text, where it has one (another field with --answer)",
        "tools": chat.TOOLS_FIELD,
    },
    start=start,
    content=only("prompt", "answers", "rewards", "tools"),
    by_task=True,
    settings=("arguments", "reasoning", "answer"),
    types=types,
)
