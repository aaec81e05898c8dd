"""What TRL takes: conversations (sft), preferences (dpo) and groups (grpo).

sft: `{"messages": […], "tools": […]}`, one passed rollout per line. OpenAI's fine-tuning takes it, too.

dpo: pairs of a better and a worse answer to one task. The best is set against the worst, the second best against the
second worst, and so on while their rewards are far enough apart. An answer is in one pair at most. Two answers
that are the same, or have the same reward, say nothing about which is better and are never a pair.

grpo: one task per line with all its answers and their rewards, and tokens where the model server gave them. TRL
generates from `prompt` and gives every other column to the reward function by its name, so none has a name that TRL
itself uses there (`completions`, `prompts`, `completion_ids`, …).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    per_rollout,
    scored,
)
from velodrome.records.conversation import TOKEN_FIELDS, token_flaws
from velodrome.records.facts import RowFacts

_IMAGES = f"; {chat.AS_TEXT} keeps images of the prompt"


def _sft(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
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


def _sft_types(settings: ExportSettings) -> Json:
    return {"messages": chat.LIST_TYPE, "tools": chat.LIST_TYPE if _listed(settings.style) else chat.TEXT_TYPE}


SFT = Format(
    name="sft",
    about="chat messages with tools, as TRL and OpenAI's fine-tuning take them",
    fields={
        "messages": "the whole conversation: system, user, assistant (with tool_calls), tool",
        "tools": f"{chat.TOOLS_FIELD}; with --arguments text a list, except in a .parquet file",
    },
    start=_sft,
    content=only("messages", "tools"),
    where="reward>=1",
    settings=("arguments", "reasoning"),
    types=_sft_types,
)


def pairs(rewards: list[float], same: Callable[[int, int], bool], *, most: int, margin: float) -> list[tuple[int, int]]:
    """Which answers are pairs (better, worse), at most so many: the i-th best against the i-th worst."""
    falling = sorted(range(len(rewards)), key=lambda at: -rewards[at])
    rising = sorted(range(len(rewards)), key=rewards.__getitem__)
    apart = [
        (better, worse)
        for better, worse in zip(falling, rising, strict=True)
        if (gap := rewards[better] - rewards[worse]) > 0 and gap >= margin and not same(better, worse)
    ]
    return apart[:most]


def _dpo(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    style = settings.style

    def build(row: Json) -> tuple[float, list[Json], list[Json], list[Json]]:
        answer = chat.loadable(chat.ended(row, chat.alone(chat.completion(row, style))), style)
        return scored(row), answer, chat.loadable(chat.prompt(row, style), style), chat.tools(row)

    def convert(unit: Unit) -> Iterator[Json]:
        fitting = each_fit(unit, build, leave_out)
        rewards = [built[0] for _, built in fitting]
        answers = [built[1:] for _, built in fitting]

        def same(better: int, worse: int) -> bool:
            """Whether the answers are equal, or were not to the same question."""
            return answers[better][0] == answers[worse][0] or answers[better][1:] != answers[worse][1:]

        for better, worse in pairs(rewards, same, most=settings.pairs, margin=settings.margin):
            chosen, prompt, _ = answers[better]
            record = {
                "prompt": prompt,
                "chosen": chosen,
                "rejected": answers[worse][0],
                "score_chosen": rewards[better],
                "score_rejected": rewards[worse],
                "task": unit.task,
            }
            yield chat.with_tools(record, fitting[better][0])

    return convert


def _dpo_types(settings: ExportSettings) -> Json:
    return {
        **dict.fromkeys(("prompt", "chosen", "rejected"), chat.LIST_TYPE),
        "score_chosen": {"dtype": "float64"},
        "score_rejected": {"dtype": "float64"},
        "task": chat.TEXT_TYPE,
        "tools": chat.TEXT_TYPE,
    }


DPO = Format(
    name="dpo",
    about="pairs of a better and a worse answer to one task, as TRL takes them",
    fields={
        "prompt": "what was asked, as chat messages",
        "chosen": "the better answer, as chat messages",
        "rejected": "the worse answer, as chat messages",
        "score_chosen": "the reward of the better answer",
        "score_rejected": "the reward of the worse answer",
        "task": "the id of the task",
        "tools": chat.TOOLS_FIELD,
    },
    start=_dpo,
    content=only("prompt", "chosen", "rejected", "tools"),
    by_task=True,
    needs="a pair takes two answers to one task that differ in their reward (at least by --margin) and in their words",
    settings=("arguments", "reasoning", "pairs", "margin"),
    types=_dpo_types,
)


_TOKEN_TYPES = dict(zip(TOKEN_FIELDS, ("int64", "int64", "float64"), strict=True))


def _grpo(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
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
    with_ids = [turn for turn in turns if turn.get("generation_token_ids") is not None]
    prompt, ids, log_probs = TOKEN_FIELDS
    names = TOKEN_FIELDS if all(turn.get(log_probs) is not None for turn in with_ids) else (prompt, ids)
    return [{name: turn.get(name) if name in names else None for name in TOKEN_FIELDS} for turn in with_ids]


def _grpo_types(settings: ExportSettings) -> Json:
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


GRPO = Format(
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
    start=_grpo,
    content=only("prompt", "answers", "rewards", "tools"),
    by_task=True,
    settings=("arguments", "reasoning", "answer"),
    types=_grpo_types,
)
