"""Whatever stands in files, the checks read on; every row costs the same memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.planted import Row, Rows, answered, clean, truncated, write
from velodrome.checks import Checks, read_checks, run_checks
from velodrome.errors import InputError
from velodrome.records.facts import RowFacts
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.records.rollout import encode
from velodrome.records.zst import pack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PLACES = ["reward", "output", "response", "usage", "meta", "responses_create_params", "meta.key", "meta.timing",
          "meta.scored", "meta.timing.total_s", "meta.timing.retries", "response.content", "response.status",
          "response.incomplete_details", "responses_create_params.tools", "output.0", "output.0.tool_calls",
          "output.0.tool_calls.0", "output.0.tool_calls.0.arguments", "output.1.content", "output.1.name",
          "output.2.content"]  # fmt: skip


@settings(max_examples=40)
@given(place=st.sampled_from(PLACES), value=JSON)
def test_a_hostile_row_never_raises_and_the_others_are_still_read(place: str, value: Any):
    rows = clean(3, 1)
    inside: Any = rows[1]
    *way, last = [int(step) if step.isdecimal() else step for step in place.split(".")]
    for step in way:
        inside = inside[step]
    inside[last] = value
    checks = Checks()
    for row in rows:
        checks.add(RowFacts(row))
    findings = checks.findings()
    assert checks.rollouts == 3
    assert {line for finding in findings for line in finding.examples} <= {2, 3}


@settings(max_examples=40)
@given(failure=st.dictionaries(st.sampled_from(["key", "boundary", "error"]), JSON))
def test_a_hostile_failure_never_raises(failure: Any):
    checks = Checks()
    checks.add(RowFacts(clean(1, 1)[0]))
    checks.fail(RowFacts(failure, failed=True))
    assert all(finding.name == "failures" for finding in checks.findings())


DEEP = b'{"output":' + b"[" * 900 + b"]" * 900 + b"}\n"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (DEEP, "schema"),
        (b"[" * 100_000 + b"]" * 100_000 + b"\n", "unreadable-lines"),
        (b'{"a":NaN,"b":' + b"[" * 100_000 + b"\n", "unreadable-lines"),
        (b'{"reward":1e999}\n', "bad-reward"),
        (b'{"reward":' + b"9" * 400 + b',"x":NaN}\n', "bad-reward"),
        (b'{"reward":1,"x":NaN,"output":[{"role":"tool","name":"\\ud800","content":"error"}]}\n', "schema"),
        (b'{"x":"' + b"y" * 2_000_000 + b'"}\n', "schema"),
        (b"x" * (MAX_LINE_BYTES + 2) + b"\n", "unreadable-lines"),
    ],
    ids=["deep", "deeper", "deep-nan", "large", "larger", "loose-surrogate", "long", "too long"],
)
def test_a_hostile_line_is_a_finding_and_the_rest_is_read(tmp_path: Path, line: bytes, name: str):
    checks = read_checks(write(tmp_path / "r.jsonl", [*clean(3, 1), line, *clean(6, 1)[3:]]))
    assert [finding.examples for finding in checks.findings() if finding.name == name] == [[4]]
    assert checks.rollouts == (6 if name == "unreadable-lines" else 7)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.zst"])
def test_a_compressed_file_is_checked_the_same_and_a_last_line_that_is_being_written_is_a_note(
    tmp_path: Path, suffix: str
):
    rows: Rows = clean()
    truncated(rows)
    lines = [encode(row) if suffix == ".jsonl" else pack(encode(row)) for row in rows]
    path = tmp_path / f"r{suffix}"
    path.write_bytes(b"".join(lines))
    [cut] = run_checks(path)
    assert (cut.name, cut.count, cut.examples) == ("truncated", 15, [11, 12, 13, 14, 15])
    path.write_bytes(b"".join(lines[:3]) + lines[3][:50])
    [torn] = run_checks(path)
    assert (torn.name, torn.severity, torn.examples) == ("unreadable-lines", "info", [4])


def test_bytes_that_cannot_be_decompressed_are_unreadable_lines_of_their_file(tmp_path: Path):
    rows = [encode(row) for row in clean(6, 1)]
    first, second = tmp_path / "a.jsonl.zst", tmp_path / "b.jsonl.zst"
    first.write_bytes(b"".join(map(pack, rows)))
    second.write_bytes(pack(rows[0]) + b"garbage" + pack(b"{\n") + pack(rows[1]) + b"garbage")
    checks = read_checks(first, second)
    [one] = checks.findings()
    assert (checks.rollouts, one.files, one.examples) == (8, [str(second)] * 3, [2, 3, 5])
    assert one.message.startswith("3 of 11 lines (27%) cannot be read: 7 bytes from byte ")


def test_a_file_or_a_check_that_is_not_there_is_a_mistake_that_names_the_nearest(tmp_path: Path):
    with pytest.raises(InputError, match="cannot be read"):
        run_checks(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="there is no check 'all-zeros'; did you mean \"all-zero\""):
        run_checks(write(tmp_path / "r.jsonl", clean(1)), only=["all-zeros"])


def test_lines_of_several_files_are_told_with_their_files_and_keys_may_be_the_same_in_them(tmp_path: Path):
    first, second, rows = write(tmp_path / "a.jsonl", clean(40, 1)), tmp_path / "b.jsonl", clean(40, 1, seed=2)
    answered(rows[2], "ERROR")
    answered(rows[3], "FAILED")
    none = write(tmp_path / "none.jsonl", [])
    write(second, [*rows, rows[0]])
    findings = {one.name: (one.count, one.examples, one.files) for one in run_checks(none, first, second, first)}
    twice = (1, [41], [str(second)])
    assert findings == {"error-answers": (2, [3, 4], [str(second)] * 2), "duplicate-keys": twice}


def test_memory_does_not_grow_with_rollouts_but_for_sixteen_bytes_for_a_key_and_eight_for_an_answer():
    rows = clean(200, 8)
    for row in rows:
        row["responses_create_params"]["input"] = "the same"

    def taken(rounds: int) -> int:
        tracemalloc.start()
        checks = Checks()
        for index in range(rounds):
            for row in rows:
                row["meta"]["key"] = f"{row['id']}/{index}"
                checks.add(RowFacts(row))
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return size

    few, many = taken(4), taken(12)
    assert (many - few) / (8 * len(rows)) < 28


@pytest.mark.parametrize("count", [3, 110_000])
def test_keys_that_are_there_twice_are_found_in_small_and_large_files(count: int):
    checks = Checks(only=["duplicate-keys"])
    row: Row = {"meta": {}}
    for number in [*range(count), 2, 0]:
        row["meta"] = {"key": f"t/{number}"}
        checks.add(RowFacts(row))
    [finding] = checks.findings()
    assert (finding.count, finding.examples) == (2, [count + 1, count + 2])
