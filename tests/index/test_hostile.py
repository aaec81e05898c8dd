"""Rows that nobody should write: each is shown as far as it can be, with a note, and harms none of its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_rows import OpenIndex, rollout, write

from velodrome.index import FAILED, Entry, Index, Query, Sort

Json = dict[str, Any]

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture
def shown(index_of: OpenIndex) -> Callable[..., tuple[Index, Entry]]:
    """The index of a file with this one line between two good ones, and the entry of the line."""

    def show(line: Json | bytes) -> tuple[Index, Entry]:
        index = index_of([rollout("first"), line, rollout("last")])
        assert [index.find("first/0"), index.find("last/0")] == [1, 3]
        return index, index.entry(2)

    return show


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        ({"meta": {"key": 5}}, "no usable meta.key; shown without"),
        ({"meta": {"key": "k" * 1001}}, "no usable meta.key; shown without"),
        ({"meta": {"agent": ["a"]}}, "no usable meta.agent; shown without"),
        ({"meta": {"timing": "long"}}, "no usable meta.timing; shown without"),
        ({"usage": [1, 2]}, "no usable usage; shown without"),
        ({"output": "text"}, "no usable output; shown without"),
        ({"output": [1, {"role": "assistant", "tool_calls": 3}]}, "no usable output, output.tool_calls; shown without"),
        ({"response": "text", "output": None}, "no usable response; shown without"),
    ],
)
def test_what_has_the_wrong_type_is_left_out_with_a_note(shown: Any, change: Json, flaw: str):
    index, entry = shown(rollout("odd", **change))
    assert index.state.notes == [f"r.jsonl:2: {flaw}"]
    assert (index.state.rows, index.state.unreadable) == (3, 0)
    assert entry.key == ("line 2" if "meta.key" in flaw else "odd/0")


def test_a_row_without_any_bookkeeping_is_listed_by_its_line(shown: Any):
    index, entry = shown({"reward": 0.5, "output": [{"role": "assistant", "content": "hello"}]})
    assert (entry.key, entry.task, entry.repeat, entry.reward, entry.answer) == ("line 2", "line 2", None, 0.5, "hello")
    assert index.state.notes == ["r.jsonl:2: no usable meta.key; shown without"]
    assert index.row(2)["reward"] == 0.5


@pytest.mark.parametrize("reward", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b'"1"', b"[1]", b"null"])
def test_a_reward_that_is_no_number_is_none(shown: Any, reward: bytes):
    line = orjson.dumps(rollout("odd", reward="HERE")).replace(b'"HERE"', reward) + b"\n"
    index, entry = shown(line)
    assert (entry.key, entry.reward, entry.state) == ("odd/0", None, "kept")
    assert index.repeats("odd").task.pass_rate is None
    assert [each.number for each in index.page(Query.parse("reward:none"), Sort()).entries] == [2]


def test_numbers_beyond_sixty_four_bits_are_as_near_as_can_be(shown: Any):
    _, entry = shown(rollout("odd", huge=2**63, meta={"task_index": 2**64 - 1}))
    assert (entry.numbers["huge"], entry.numbers["task_index"]) == (float(2**63), float(2**64))


def test_lone_surrogates_and_control_characters_can_be_written_out_again(shown: Any):
    line = orjson.dumps(rollout("odd", answer="HERE")).replace(b"HERE", rb"a\ud800b\u0000c\u202ed") + b"\n"
    index, entry = shown(line)
    assert entry.answer.encode() == b"a?b\x00c\xe2\x80\xaed"
    assert orjson.loads(orjson.dumps(index.row(2)))["response"]["content"] == "a?b\x00c\u202ed"


def test_deep_nesting_is_a_note_and_not_the_end(opened: OpenIndex, tmp_path: Path):
    deep = b'{"meta":{"key":"deep/0"},"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    index = opened(write(tmp_path / "r.jsonl", [rollout("first"), deep, rollout("last")]))
    state = index.refresh()
    assert (state.rows, state.unreadable) == (2, 1)
    assert state.notes == ["r.jsonl:2: not a rollout; it is not shown"]


def test_a_megabyte_of_text_is_found_by_its_ends(shown: Any):
    text = "opening " + "x" * 1_000_000 + " closing"
    index, entry = shown(rollout("odd", answer=text, prompt=text))
    assert (entry.numbers["length"], len(entry.prompt), len(entry.answer)) == (len(text), 200, 200)
    result = [[each.key for each in index.page(Query.parse(word), Sort()).entries] for word in ("opening", "closing")]
    assert (result, index.row(2)["response"]["content"] == text) == ([["odd/0"], ["odd/0"]], True)


def test_excerpts_are_one_line(shown: Any):
    _, entry = shown(rollout("odd", prompt="two\nlines\tand\u2028more", answer="  an\r\nanswer  "))
    assert (entry.prompt, entry.answer) == ("two lines and more", "an answer")


def test_more_fields_than_columns_are_kept_all_the_same(index_of: OpenIndex):
    rows = [rollout("a", repeat, **{f"f{number}": number for number in range(repeat, 90)}) for repeat in range(2)]
    index = index_of(rows)
    extra = index.fields()[16:-4]
    assert extra == [f"f{number}" for number in range(90)]
    assert [index.entry(number).numbers["f89"] for number in (1, 2)] == [89, 89]
    assert "f0" not in index.entry(2).numbers
    assert [entry.number for entry in index.page(Query.parse("f63=63 f0:none"), Sort()).entries] == [2]


def test_the_same_key_twice_is_two_rollouts_and_the_first_is_found(index_of: OpenIndex):
    index = index_of([rollout("a", reward=1.0), rollout("a", reward=0.0)])
    assert (index.find("a/0"), [entry.reward for entry in index.repeats("a").entries]) == (1, [1.0, 0.0])


OWN = ("responses_create_params", "output", "response", "usage", "reward", "meta", "partial", "x")
BOOKKEEPING = ("key", "agent", "timing", "boundary", "error", "finished_at", "attempt")
odd_rows = st.fixed_dictionaries({}, optional=dict.fromkeys((*OWN, *BOOKKEEPING), JSON))
odd_meta = st.fixed_dictionaries(
    {"key": st.text(max_size=5), **dict.fromkeys(("agent", "timing", "finished_at", "task_index"), JSON)}
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(odd_rows | st.builds(lambda meta: {"meta": meta}, odd_meta), min_size=1, max_size=4))
def test_any_objects_at_all_are_listed_once_each(tmp_path_factory: pytest.TempPathFactory, rows: list[Json]):
    path = tmp_path_factory.mktemp("any") / "r.jsonl"
    data = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    path.write_bytes(data)
    path.with_name("r.failures.jsonl").write_bytes(data)
    index = Index(path)
    state = index.refresh()
    page = index.page(Query(), Sort())
    kept = [entry.number for entry in page.entries if entry.number < FAILED]
    assert (state.rows, kept, state.unreadable) == (len(rows), list(range(1, len(rows) + 1)), 0)
    assert len(page.entries) == state.rows + state.failed
    assert [index.row(number) for number in kept] == rows
    for entry in page.entries:
        assert index.entry(entry.number) == entry
        orjson.dumps([entry.key, entry.task, entry.agent, entry.prompt, entry.answer, entry.error, entry.numbers])
    index.histogram("finished_at")
    index.series()
    index.failures()
    index.close()
