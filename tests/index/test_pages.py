"""Lists: a filter means what a plain loop over the rows would find, and pages put together are one big sort."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.index_rows import both_ways, failure, rollout, write
from velodrome.errors import InputError
from velodrome.index import Entry, Index, Query, Sort
from velodrome.index.query import Compared, Matched, Term, Words

Json = dict[str, Any]

COUNT = 120
OF_TASKS = ("n", "pass_rate", "mean_reward")
NUMBERS = ("reward", "tokens", "tools", "total_s", "score", "flag", "repeat", "turns", "number", *OF_TASKS)
WORDS = ("alpha", "beta", "gamma", "delta")
OPS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "!=": operator.ne}


@pytest.fixture(scope="module")
def index(tmp_path_factory: Any) -> Index:
    """Rollouts with many equal values, absent ones and deferred rewards, and failures beside them."""
    folder = tmp_path_factory.mktemp("pages")
    rows = []
    for number in range(COUNT):
        fields: Json = {
            "reward": (0.0, 0.5, 1.0, 1.0)[number * 7 % 4] if number % 11 else None,
            "tools": number % 4,
            "tokens": 30 + number * 13 % 7,
            "timing": {"total_s": number * 37 % 23 / 8},
            "answer": f"{WORDS[number % 4]} then {WORDS[number * 5 % 3]}",
            "prompt": f"About {WORDS[number % 3]}",
            "agent": ("solver", "Other Solver")[number % 5 == 0],
        }
        if number % 3:
            fields["score"] = number % 9 - 4
        if number % 7 == 0:
            fields["flag"] = number % 2 == 0
        if number % 22 == 0:
            fields["meta"] = {"verification": "deferred"}
        rows.append(rollout(f"Task/{number // 5}", number % 5, **fields))
    path = write(folder / "r.jsonl", rows)
    errors = ("Timeout after 30 s", "401 Unauthorized")
    lost = [failure(f"lost{number % 4}", number // 4, error=errors[number % 2]) for number in range(10)]
    write(folder / "r.failures.jsonl", lost)
    result = Index(path)
    result.refresh()
    return result


class Known:
    """Everything there is, read one by one."""

    def __init__(self, index: Index) -> None:
        self.index = index
        numbers = [*range(1, COUNT + 1), *range(10**9 + 1, 10**9 + 11)]
        self.entries = [index.entry(number) for number in numbers]
        self.values = values(self.entries)
        self.texts = texts_of(index, self.entries)

    def wanted(self, query: Query) -> list[int]:
        """A plain loop over the rows."""
        return [
            entry.number
            for entry in self.entries
            if all(holds(term, entry, self.values[entry.number], self.texts) for term in query.terms)
        ]


@pytest.fixture(scope="module")
def known(index: Index) -> Known:
    return Known(index)


def values(entries: list[Entry]) -> dict[int, dict[str, float]]:
    """Every number of every entry, those of its task too, worked out by hand."""
    result = {}
    for entry in entries:
        mates = [mate for mate in entries if mate.task == entry.task and mate.state != "failed"]
        rewards = [mate.reward for mate in mates if mate.reward is not None]
        own = dict(entry.numbers) | {"n": float(len(mates)), "number": entry.number}
        if rewards:
            own["pass_rate"] = sum(reward >= 1 for reward in rewards) / len(rewards)
            own["mean_reward"] = sum(rewards) / len(rewards)
        result[entry.number] = own
    return result


def holds(term: Term, entry: Entry, numbers: dict[str, float], texts: dict[int, str]) -> bool:
    """What a term means, said in Python."""
    if isinstance(term, Words):
        spoken = re.findall(r"\w+", texts[entry.number].lower())
        wanted = re.findall(r"\w+", term.words.lower())
        places = range(len(spoken) - len(wanted) + 1)
        same = [spoken[place : place + len(wanted)] for place in places]
        result = any(
            each[:-1] == wanted[:-1] and (each[-1].startswith(wanted[-1]) if term.prefix else each[-1] == wanted[-1])
            for each in same
        )
    elif isinstance(term, Compared):
        value = numbers.get(term.field)
        if not term.bounds:
            result = value is None
        else:
            result = value is not None and all(OPS[op](value, bound) for op, bound in term.bounds)
    else:
        text = {"key": entry.key, "task": entry.task, "agent": entry.agent, "state": entry.state}.get(term.field)
        text = entry.error or "" if term.field == "error" else text or ""
        whole = (text == term.value) == (term.op == "=")
        result = term.value.lower() in text.lower() if term.op == ":" else whole
    return result != term.negated


def texts_of(index: Index, entries: list[Entry]) -> dict[int, str]:
    result = {}
    for entry in entries:
        row = index.row(entry.number)
        if entry.state == "failed":
            result[entry.number] = row["error"]
        else:
            prompt = row["responses_create_params"]["input"][0]["content"]
            result[entry.number] = f"{prompt} | {row['response']['content']}"
    return result


bounds = st.tuples(st.sampled_from(sorted(OPS)), st.sampled_from([-2.0, 0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 33.0]))
compared = st.builds(
    lambda field, checks, negated: Compared(field, tuple(checks), negated, 1),
    st.sampled_from(NUMBERS),
    st.lists(bounds, max_size=2),
    st.booleans(),
)
TEXTS = {
    "key": ["/1", "k/3/", "task/7/2", "2", "Task/3/0"],
    "task": ["task/1", "Task/4", "lost"],
    "agent": ["OTHER", "solver"],
    "error": ["timeout", "model: 401 Unauthorized", "%"],
    "state": ["kept", "deferred", "failed"],
}
matched = st.builds(
    lambda pair, op, negated: Matched(pair[0], op, pair[1], negated, 1),
    st.sampled_from([(field, text) for field, texts in TEXTS.items() for text in texts]),
    st.sampled_from([":", "=", "!="]),
    st.booleans(),
)
spoken = st.builds(
    lambda words, prefix, negated: Words(words, prefix, negated, 1),
    st.sampled_from([*WORDS, "about gamma", "alpha then beta", "then", "al", "delta then", "30 s", "nowhere"]),
    st.booleans(),
    st.booleans(),
)
queries = st.lists(compared | matched | spoken, max_size=4).map(lambda terms: Query(tuple(terms), "…"))
sorts = st.builds(Sort, st.sampled_from([*NUMBERS, "finished_at"]), st.booleans())


def ordered(rows: list[int], sort: Sort, numbers: dict[int, dict[str, float]], entries: list[Entry]) -> list[int]:
    """One big sort: by value, then (for a task's number, task by task) by entry; those without a value last."""
    names = list(dict.fromkeys(entry.task for entry in entries))
    by_task = sort.field in OF_TASKS
    tasks = {entry.number: names.index(entry.task) if by_task else 0 for entry in entries}
    there = [number for number in rows if sort.field in numbers[number]]
    absent = [number for number in rows if sort.field not in numbers[number]]
    there.sort(key=lambda number: (numbers[number][sort.field], tasks[number], number), reverse=sort.descending)
    absent.sort(key=lambda number: (tasks[number], number), reverse=sort.descending)
    return there + absent


@settings(max_examples=40)
@given(query=queries, sort=sorts, limit=st.integers(4, 40), number=st.integers(1, COUNT))
def test_pages_put_together_are_what_a_loop_over_the_rows_finds_sorted(
    known: Known, query: Query, sort: Sort, limit: int, number: int
):
    index = known.index
    wanted = known.wanted(query)
    everything = ordered([*{*wanted, number}], sort, known.values, known.entries)
    place = everything.index(number)
    neighbours = tuple(everything[at] if at in range(len(everything)) else None for at in (place - 1, place + 1))
    assert index.neighbours(query, sort, number) == neighbours
    expected = ordered(wanted, sort, known.values, known.entries)
    for way in both_ways(partial(index.page, query, sort, limit=limit)):
        assert [entry.number for entry in way] == expected
    assert index.count(query) == len(expected)
    assert [entry.number for entry in index.select(query, sort)] == expected


def test_fields_that_are_not_there_are_named_with_the_nearest(index: Index):
    scor, missing = 'no field "scor"; did you mean "score"?', f"{index.rollouts}: there is no rollout number 77777"
    requests: list[tuple[Callable[[], object], str]] = [
        (lambda: index.page(Query.parse("tools>1 scor>2"), Sort()), f"filter, at 9: {scor}"),
        (lambda: index.count(Query.parse("tools>1 scor>2")), f"filter, at 9: {scor}"),
        (lambda: index.page(Query(), Sort.parse("-scor")), f"sort: {scor}"),
        (lambda: index.spread("scor"), f"field: {scor}"),
        (lambda: index.tasks(Sort("reward")), 'sort: tasks have no "reward"'),
        (lambda: index.row(77_777), missing),
        (lambda: index.neighbours(Query(), Sort(), 77_777), missing),
    ]
    for call, problem in requests:
        with pytest.raises(InputError, match=re.escape(problem)):
            call()


def test_sql_and_search_syntax_are_only_text(index: Index):
    attacks = ('"\'; DROP TABLE rollout; --"', 'error:"\' OR 1=1 --"', 'task:"\\" OR \\"\\"=\\""', 'key="\') --"')
    for text in (*attacks, '"NEAR(alpha beta)"', '"alpha OR beta"', '"prompt : alpha"', 'error:"%_"'):
        assert index.page(Query.parse(text), Sort()).entries == ()
    assert index.count(Query()) == COUNT + 10
