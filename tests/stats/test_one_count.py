"""A line that is a JSON object is a rollout: to every reader, whatever stands in it, and none ends in a fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.planted import clean, write
from tests.support.viewing import page_at, viewing, wait_for
from velodrome.checks import Checks, read_checks
from velodrome.cli.main import main
from velodrome.index import Index, Query, Sort
from velodrome.profiling.profile import Profile
from velodrome.records.bounds import MAX_TOKENS
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.records.rollout import encode
from velodrome.stats.group import MetricsSettings
from velodrome.stats.groups import RunReading
from velodrome.stats.metrics import read_metrics, read_shards

Capture = pytest.CaptureFixture[str]

ROWS = [
    b'{"reward":NaN,"meta":{"key":"n/0"}}',
    b'{"reward":1,"speed":-Infinity,"meta":{"key":"n/1"}}',
    b'{"reward":1e999}',
    b'{"reward":1,"count":' + b"9" * 400 + b"}",
    b'{"reward":"high","meta":{"key":"s/0"}}',
    b'{"reward":[1],"response":[1],"meta":{"key":"s/1"}}',
    b'{"reward":1,"output":["text",null,5]}',
    b'{"reward":1,"output":[{"role":"assistant","tool_calls":7}]}',
    b'{"reward":1,"usage":[1],"meta":7}',
    b'{"reward":1,"meta":{"key":"no repeat","timing":"soon","finished_at":"now"}}',
    b'{"reward":1,"meta":{"key":["a/0"],"timing":{"total_s":NaN},"finished_at":Infinity}}',
    b'{"responses_create_params":[1]}',
    b'{"reward":1,"text":"\\ud800 \xff"}',
    b"{}",
]
OTHERS = [b"[1]", b"5", b"null", b'"text"', b"{", b"[" * 2000, b"", b"x" * (MAX_LINE_BYTES + 1)]
TORN = b'{"reward":1,"meta":{"key":"t'
TIMES = ("total_s", "model_s", "tools_s", "retries", "rate_limited", "model_calls", "in_flight")
PLACES = [
    *(("reward",), ("score",), ("usage", "total_tokens"), ("usage", "input_tokens")),
    *(("meta", name) for name in ("task_index", "rollout_index", "finished_at")),
    *(("meta", "timing", name) for name in TIMES),
]
VALUES = [
    *(str(whole) for whole in (2**64 - 1, 2**63 - 1, 2**63, -(2**63), -5, MAX_TOKENS + 1, 10**30)),
    *("1e308", "-1e308", "1e400", "-1e400", "NaN", "1.5", "true", '"7"', "[1]", '{"a": 1}', "null"),
]
GOOD = 4
NUMBERED = 2 * len(PLACES) * len(VALUES)
KEPT = GOOD + len(ROWS) + NUMBERED
PAGES = ["", "/rollouts", "/rollouts?sort=-tokens", "/rollouts?q=reward>1", "/tasks", "/rollout/3", "/task?id=t0-7"]


def hostile_numbers() -> Iterator[bytes]:
    """Every number that cannot be, in every place twice: sums of two are beyond 64 bits and beyond a float."""
    good = clean(1, 1)[0]
    for repeat in range(2):
        for number, place in enumerate(PLACES):
            for other, value in enumerate(VALUES):
                row: dict[str, Any] = orjson.loads(encode(good))
                row["meta"]["key"] = f"t{number}-{other}/{repeat}"
                part = row
                for name in place[:-1]:
                    part = part.setdefault(name, {})
                part[place[-1]] = "@"
                yield json.dumps(row).replace('"@"', value).encode()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of every kind of line, of which so many are `KEPT`."""
    good = [encode(row)[:-1] for row in clean(GOOD, 2)]
    path = tmp_path_factory.mktemp("hostile") / "r.jsonl"
    lines = [*good[:2], *ROWS[:6], *OTHERS, *ROWS[6:], *hostile_numbers(), *good[2:], TORN]
    path.write_bytes(b"\n".join(lines))
    return path


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is in the JSON")


@pytest.mark.parametrize(
    ("words", "counted"),
    [
        (["metrics", "FILE"], ["rollouts/kept"]),
        (["metrics", "FILE", "--json", "--by", "task"], ["run", "rollouts"]),
        (["compare", "FILE", "FILE", "--json"], ["a", "rollouts/kept"]),
        (["check", "FILE", "--json", "--fail-on", "never"], ["rollouts"]),
        (["profile", "FILE", "--json"], ["rows"]),
        (["export", "grpo", "FILE", "--to", "TO"], ["rollouts"]),
        (["export", "parquet", "FILE", "--to", "TO"], ["rollouts"]),
    ],
    ids=lambda value: "-".join(value[:2]),
)
def test_every_verb_counts_the_same_rollouts(
    hostile: Path, tmp_path: Path, words: list[str], counted: list[str], capsys: Capture
):
    names = {"FILE": str(hostile), "TO": str(tmp_path / "out")}
    assert main([names.get(word, word) for word in words]) == 0
    result: Any = json.loads(capsys.readouterr().out, parse_constant=no_constant)
    count = result
    for name in counted:
        count = count[name]
    assert count == KEPT
    if words == ["metrics", "FILE"]:
        tokens = clean(1, 1)[0]["usage"]["total_tokens"]
        assert result["tokens/total"] == tokens * (GOOD + NUMBERED - 2 * len(VALUES))  # no value there is a count
        # below 0 or beyond the bound; the others are of a wrong type
        assert any(note.startswith("usage.total_tokens: 12 of ") for note in read_metrics(hostile)[1])


def test_the_index_counts_them_too_and_an_export_says_what_it_left_out(hostile: Path, tmp_path: Path, capsys: Capture):
    index = Index(hostile)
    assert index.refresh().rows == KEPT
    assert len(index.page(Query.parse(""), Sort(), limit=1000).entries) == KEPT
    assert main(["export", "nemo_gym", str(hostile), "--to", str(tmp_path / "out.jsonl")]) == 0
    written = len((tmp_path / "out.jsonl").read_bytes().splitlines())
    assert (written + orjson.loads(capsys.readouterr().out)["unfit"], written >= GOOD) == (KEPT, True)


def test_every_page_of_the_viewer_shows_the_file_with_the_same_count(hostile: Path):
    with viewing(hostile) as client:
        words = wait_for(client, "/run/r", "Metrics Means").words
        assert f"Rollouts {KEPT} Tasks" in words
        assert f"{KEPT} kept + 0 failed" in words
        for page in PAGES:
            words = page_at(client, f"/run/r{page}").words
            assert (" inf " in words, " nan " in words) == (False, False), page


def test_a_failure_without_a_key_that_is_a_text_counts_nowhere(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", clean(2, 1), [{"key": 5}, {"error": "x"}, {"key": "z/0", "error": "x"}])
    counts = [read_metrics(path)[0]["rollouts/failed"], len(read_shards([path], lambda _: None).failed)]
    index = Index(path)
    assert [*counts, read_checks(path).failed, index.refresh().failed] == [1] * 4


NAMES = ["reward", "output", "usage", "meta", "response", "responses_create_params", "key", "timing", "total_s", "role",
         "finished_at", "tool_calls", "total_tokens", "content", "input", "agent", "extracted_answer"]  # fmt: skip
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5) | st.just("a/0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(NAMES), VALUE, max_size=6), min_size=1, max_size=4))
def test_whatever_stands_in_an_object_it_is_counted_once_and_nothing_raises(rows: list[dict[str, Any]]):
    reading = RunReading(MetricsSettings(by="meta.agent"))
    checks, profile = Checks(), Profile()
    for row in rows:
        facts = RowFacts(row)
        reading.add(facts)
        checks.add(facts)
        profile.add(facts)
    assert reading.metrics["rollouts/kept"] == checks.rollouts == profile.report()["rows"] == len(rows)
    orjson.dumps([reading.metrics, reading.notes])
