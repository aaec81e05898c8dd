"""The pages a million rollouts are asked for: every kind, with filters and orders of every kind, at every depth.

Where a turn can have an address of its own it has, so that nothing remembered from the turn before answers it.
"""

from __future__ import annotations

from urllib.parse import urlencode

from benchmarks.million_rows import REPEATS
from benchmarks.million_viewer import SLUG, Page

_ROOT = f"/run/{SLUG}"

# A `{}` is another number each turn.
FILTERS = (
    "reward<1",
    "reward<1 tools>3",
    "reward<1 tools>3 output_tokens>{}",
    "total_s>6",
    "reward=1 tools=5 output_tokens=7{:02} accuracy>0.9",
    "tokens>1000 tools=5",
    "0<pass_rate<1",
    "0.5<=pass_rate<0.7{} reward<1",
    "pass_rate=0.5 tools=3",
    "mean_reward<0.{} -agent:other",
    "agent:other",
    "state:failed",
    "error:timeout",
    "task:task-77{}",
    "key:77{}/3",
    "-reward<1 -agent:other",
    "accuracy>0.999",
    "accuracy<0.5{} turns=2 model_s>1",
    "reward:none",
    "finished_at>1790010000 tools>1",
    "task_index>6{}00 reward<1",
    "model_s<0.{}",
    "tool:search",
    "tool=python -tool=browse",
    "kind:geometry",
    'kind="number theory" reward<1',
    "difficulty>{} kind:*",
    "expected_answer:1{}",
    "expected_answer=77{}",
    "-id:task-7",
    "model:made",
)
CHECKS = (
    "check:never-passes",
    "-check:* reward<1",
    "check:always",
    "check=failures",
    "-check:never-passes tool:search",
)
TASK_FILTERS = (
    "reward<1 tools>3",
    "kind:geometry",
    "tool=python",
    "expected_answer:1{}",
    "answer",
    "unit1*",
    "got{}0*",
)
# What is wanted stands at the other end of the order.
AGAINST = (("output_tokens<3{}", "-tokens"), ("tools<3", "-tools_s"), ("reward=1 tools>3", "mean_reward"))
SORTS = ("number", "-total_s", "pass_rate", "-accuracy", "reward", "tokens")
FILTERED_SORTS = SORTS[:4]
FAR = ("reward<1 tools>3", "total_s>6", "0<pass_rate<1", "mean_reward<0.{} -agent:other", "agent:other", "state:failed")
TASK_SORTS = ("pass_rate", "-pass_rate", "n", "-mean_reward", "mean_reward", "number")


def list_pages(count: int) -> dict[str, Page]:
    """The rollouts: filters in several orders, from the start, and some in the middle and at the end too."""
    result: dict[str, Page] = {}
    for sort in SORTS:
        result[f"rollouts by {sort}, first page"] = _rollouts("", sort)
        result[f"rollouts by {sort}, deep"] = _rollouts("", sort, since=count // 2)
        result[f"rollouts by {sort}, last page"] = _rollouts("", sort, since=count - 100)
    for text, sort in AGAINST:
        result[f"rollouts, {text}, by {sort}"] = _rollouts(text, sort)
    for text in FILTERS:
        for sort in FILTERED_SORTS:
            result[f"rollouts, {text}, by {sort}"] = _rollouts(text, sort)
        for sort in FILTERED_SORTS[:3] if text in FAR else ():
            result[f"rollouts, {text}, by {sort}, deep"] = _rollouts(text, sort, since=count // 2)
            result[f"rollouts, {text}, by {sort}, last page"] = _rollouts(text, sort, since=count - 100)
    return result


def word_pages(count: int) -> dict[str, Page]:
    """Words that nearly all, many, some and one of the rollouts hold, alone and with a number."""
    rare: Page = lambda turn: f"unit{count // 3 + turn}"  # noqa: E731 - beside its neighbours
    words: dict[str, Page] = {
        "in all": lambda turn: "answer",
        "a phrase in all": lambda turn: '"the answer is"',
        "in one": rare,
        "a start of many": lambda turn: f"unit{turn % 9 + 1}*",
        "in some": lambda turn: f'"task {turn + 5}"',
        "in all, and numbers": lambda turn: f"answer reward<1 tools>3 output_tokens>{500 + turn}",
        "in all, not in one": lambda turn: f"answer -{rare(turn)}",
        "the name of a tool": lambda turn: "calculator",
        "a tool that some call": lambda turn: "python",
        "in one argument": lambda turn: f'"expression {count // 3 + turn}"',
        "in one result": lambda turn: f"got{count // 3 + turn}",
    }
    result: dict[str, Page] = {}
    for name, word in words.items():
        for sort in ("number", "-total_s", "pass_rate"):
            result[f"words, {name}, by {sort}"] = _asked(word, sort)
    return result


def other_pages(count: int) -> dict[str, Page]:
    """Every page that is not a list of rollouts, but for the run's own and the comparison."""
    tasks = count // REPEATS
    half = count // 2
    result: dict[str, Page] = {
        "one rollout": lambda turn: f"{_ROOT}/rollout/{half + turn}",
        "one rollout within reward<1 tools>3 by -total_s": lambda turn: (
            f"{_ROOT}/rollout/{half + turn}?{urlencode({'q': 'reward<1 tools>3', 'sort': '-total_s'})}"
        ),
        "one rollout within 0<pass_rate<1 by pass_rate": lambda turn: (
            f"{_ROOT}/rollout/{half + turn}?{urlencode({'q': '0<pass_rate<1', 'sort': 'pass_rate'})}"
        ),
        "one rollout within a word": lambda turn: f"{_ROOT}/rollout/{half + turn}?q=answer",
        "one failure": lambda turn: f"{_ROOT}/rollout/f{turn + 1}",
        "raw JSON": lambda turn: f"{_ROOT}/rollout/{half + turn}.json",
        "a task": lambda turn: f"{_ROOT}/task?id=task-{tasks // 3 + turn}",
        "failures": lambda turn: f"{_ROOT}/failures",
        "pulse": lambda turn: f"{_ROOT}/pulse",
    }
    for sort in TASK_SORTS:
        result[f"tasks by {sort}"] = lambda turn, sort=sort: f"{_ROOT}/tasks?sort={sort}"  # type: ignore[misc]
        for where, since in (("deep", tasks // 2), ("last page", tasks - 100)):
            result[f"tasks by {sort}, {where}"] = lambda turn, sort=sort, since=since: (  # type: ignore[misc]
                f"{_ROOT}/tasks?{urlencode({'sort': sort, 'since': since + turn})}"
            )
    return result | {f"tasks, {text}": _tasks(text) for text in TASK_FILTERS}


def check_pages(count: int) -> dict[str, Page]:
    """Lists by what the checks found, which must be known before."""
    lists = {
        f"rollouts, {text}, by {sort}": _rollouts(text, sort) for text in CHECKS for sort in ("number", "-total_s")
    }
    return lists | {f"tasks, {text}": _tasks(text) for text in CHECKS}


def _tasks(text: str) -> Page:
    return lambda turn: f"{_ROOT}/tasks?{urlencode({'q': text.format(10 + turn, turn)})}"


def during_pages(count: int) -> dict[str, Page]:
    """What is asked while the index is still being made; only the first rollouts are surely there."""
    return {
        "run": lambda turn: _ROOT,
        "rollouts": _rollouts("", "number"),
        "rollouts, reward<1 tools>3": _rollouts("reward<1 tools>3", "number"),
        "rollouts by -total_s": _rollouts("", "-total_s"),
        "rollouts, 0<pass_rate<1, by pass_rate": _rollouts("0<pass_rate<1", "pass_rate"),
        "one rollout": lambda turn: f"{_ROOT}/rollout/{turn % 100 + 1}",
        "tasks": lambda turn: f"{_ROOT}/tasks",
        "a task": lambda turn: f"{_ROOT}/task?id=task-{turn % 10}",
        "failures": lambda turn: f"{_ROOT}/failures",
        "a word": _rollouts("answer", "number"),
    }


def _rollouts(text: str, sort: str, *, since: int = 0) -> Page:
    return _asked(lambda turn: text.format(10 + turn, turn), sort, since=since)


def _asked(word: Page, sort: str, *, since: int = 0) -> Page:
    def page(turn: int) -> str:
        request = {"q": word(turn), "sort": sort, "since": str(since + turn if since else 0)}
        return f"{_ROOT}/rollouts?{urlencode(request)}"

    return page
