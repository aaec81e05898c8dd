"""Preferences: pairs of a better and a worse answer to one task, as TRL's DPO takes them.

The best is set against the worst, the second best against the second worst, and so on while their rewards are far
enough apart. An answer is in a bounded number of pairs. Two answers that are the same, or have the same reward,
say nothing about which is better and are never a pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from velodrome.contracts import Json
from velodrome.exchange.export import chat
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, Unit, each_fit, only, scored


def pairs(
    rewards: list[float], same: Callable[[int, int], bool], *, most: int, margin: float, uses: int
) -> list[tuple[int, int]]:
    """Which answers are pairs (better, worse), at most so many.

    The first round sets the i-th best against the i-th worst; each further one moves either side on by one.
    """
    falling = sorted(range(len(rewards)), key=lambda at: -rewards[at])
    rising = sorted(range(len(rewards)), key=rewards.__getitem__)
    used: Counter[int] = Counter()
    chosen_pairs: list[tuple[int, int]] = []
    rounds = [(0, 0), *((a, b) for shift in range(1, min(uses, len(rewards))) for a, b in ((0, shift), (shift, 0)))]
    for better_from, worse_from in rounds:
        for better, worse in zip(falling[better_from:], rising[worse_from:], strict=False):
            gap = rewards[better] - rewards[worse]
            if gap <= 0 or gap < margin or len(chosen_pairs) == most:
                break  # the gaps only shrink from here
            if used[better] < uses and used[worse] < uses and not same(better, worse):
                used.update((better, worse))
                chosen_pairs.append((better, worse))
    return chosen_pairs


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
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

        for better, worse in pairs(rewards, same, most=settings.pairs, margin=settings.margin, uses=settings.uses):
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


def types(settings: ExportSettings) -> Json:
    return {
        **dict.fromkeys(("prompt", "chosen", "rejected"), chat.LIST_TYPE),
        "score_chosen": {"dtype": "float64"},
        "score_rejected": {"dtype": "float64"},
        "task": chat.TEXT_TYPE,
        "tools": chat.TEXT_TYPE,
    }


FORMAT = Format(
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
    start=start,
    content=only("prompt", "chosen", "rejected", "tools"),
    by_task=True,
    needs="a pair takes two answers to one task that differ in their reward (at least by --margin) and in their words",
    settings=("arguments", "reasoning", "pairs", "margin", "uses"),
    types=types,
)
