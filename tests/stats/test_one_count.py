"""A line that is a JSON object is a rollout: to every reader, whatever stands in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import clean, write
from viewing import viewing, wait_for

from velodrome.checks import Checks
from velodrome.cli.main import main
from velodrome.index import Index, Query, Sort
from velodrome.profiling.profile import Profile
from velodrome.profiling.profile_file import read_profile
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.records.rollout import encode
from velodrome.stats.compare import compare
from velodrome.stats.group import MetricsSettings
from velodrome.stats.groups import RunReading, read_groups
from velodrome.stats.metrics import read_metrics, read_shards

ROWS = [
    b'{"reward":NaN,"meta":{"key":"n/0"}}',
    b'{"reward":1,"speed":-Infinity,"meta":{"key":"n/1"}}',
    b'{"reward":1e999}',
    b'{"reward":1,"count":' + b"9" * 400 + b"}",
    b'{"reward":"high","meta":{"key":"s/0"}}',
    b'{"reward":[1],"response":[1],"meta":{"key":"s/1"}}',
    b'{"reward":1,"response":"text"}',
    b'{"reward":1,"output":"text"}',
    b'{"reward":1,"output":["text",null,5]}',
    b'{"reward":1,"output":[{"role":"assistant","tool_calls":7}]}',
    b'{"reward":1,"usage":[1]}',
    b'{"reward":1,"usage":{"total_tokens":"many"}}',
    b'{"reward":1,"meta":7}',
    b'{"reward":1,"meta":{"key":"no repeat","timing":"soon","finished_at":"now"}}',
    b'{"reward":1,"meta":{"key":["a/0"],"timing":{"total_s":NaN},"finished_at":Infinity}}',
    b'{"responses_create_params":[1]}',
    b'{"reward":1,"text":"\\ud800 \xff"}',
    b"{}",
]
OTHERS = [b"[1]", b"5", b"null", b'"text"', b"{", b"[" * 2000, b"", b"x" * (MAX_LINE_BYTES + 1)]
NAMES = ["reward", "output", "usage", "meta", "response", "responses_create_params", "key", "timing", "total_s", "role",
         "finished_at", "tool_calls", "total_tokens", "content", "input", "agent", "extracted_answer"]  # fmt: skip
TORN = b'{"reward":1,"meta":{"key":"t'


@pytest.fixture
def hostile(tmp_path: Path) -> tuple[Path, int]:
    """A file of every kind of line, and how many of them are objects."""
    good = [encode(row)[:-1] for row in clean(4, 2)]
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\n".join([*good[:2], *ROWS[:9], *OTHERS, *ROWS[9:], *good[2:], TORN]))
    return path, len(good) + len(ROWS)


def test_every_reader_counts_the_same_rollouts(hostile: tuple[Path, int], capsys: pytest.CaptureFixture[str]):
    path, kept = hostile
    assert main(["metrics", str(path)]) == 0
    assert orjson.loads(capsys.readouterr().out)["rollouts/kept"] == kept
    assert read_groups([path])["run"]["rollouts"] == kept
    assert compare([path], [path])["a"]["rollouts/kept"] == kept
    assert main(["check", str(path), "--json", "--fail-on", "never"]) == 0
    assert orjson.loads(capsys.readouterr().out)["rollouts"] == kept
    assert read_profile(path)["rows"] == kept
    index = Index(path)
    assert index.refresh().rows == kept
    assert len(index.page(Query.parse(""), Sort(), limit=1000).entries) == kept
    index.close()


def test_what_an_export_writes_and_what_it_says_it_left_out_are_all_rollouts(
    hostile: tuple[Path, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path, kept = hostile
    assert main(["export", "nemo_gym", str(path), "--to", str(tmp_path / "out.jsonl")]) == 0
    capsys.readouterr()
    written = len((tmp_path / "out.jsonl").read_bytes().splitlines())
    card = next(tmp_path.glob("*.md")).read_text()
    [unfit] = [int(line.split("`")[1]) for line in card.splitlines() if line.startswith("| no form in this format")]
    assert (written + unfit, written >= 4) == (kept, True)


def test_the_run_page_of_the_viewer_has_the_same_count(hostile: tuple[Path, int]):
    path, kept = hostile
    with viewing(path) as client:
        page = wait_for(client, "/run/r", "Metrics Means")
    assert f"Rollouts {kept} Tasks" in page.words
    assert f"{kept} kept + 0 failed" in page.words


def test_a_failure_without_a_key_that_is_a_text_counts_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path / "r.jsonl", clean(2, 1), [{"key": 5}, {"error": "x"}, {"key": "z/0", "error": "x"}])
    assert read_metrics(path)[0]["rollouts/failed"] == 1
    assert len(read_shards([path], lambda _: None).failed) == 1
    assert main(["check", str(path), "--json", "--fail-on", "never"]) == 0
    assert orjson.loads(capsys.readouterr().out)["failed"] == 1
    index = Index(path)
    assert index.refresh().failed == 1
    index.close()


@pytest.mark.parametrize("tokens", [b"1.5", b"1" + b"0" * 30, b'"7"', b"[1]"])
def test_tokens_that_are_no_whole_numbers_are_left_out_by_all_that_count_them(tmp_path: Path, tokens: bytes):
    rows = [encode(row) for row in clean(2, 1)]
    rows[1] = rows[1].replace(b'"input_tokens":30', b'"input_tokens":' + tokens)
    path = write(tmp_path / "r.jsonl", rows)
    note = "usage.input_tokens: 1 of 2 rollouts have it in a wrong type; they are counted without it"
    found, notes = read_metrics(path)
    assert (found["tokens/input"], notes) == (30, [note])
    grouped = read_groups([path])
    told = grouped["run"]["fields"]["input_tokens"]
    assert (told["n"], told["mean"], grouped["notes"]) == (1, 30, [note])
    index = Index(path)
    index.refresh()
    entries = index.page(Query.parse("input_tokens>=0"), Sort(), limit=10).entries
    assert [entry.number for entry in entries] == [1]
    index.close()


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
