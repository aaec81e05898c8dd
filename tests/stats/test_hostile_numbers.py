"""One file with every number that cannot be: each reader names what it leaves out, and none ends in a fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from planted import clean
from viewing import page_at, viewing, wait_for

from velodrome.cli.main import main
from velodrome.records.bounds import MAX_TOKENS
from velodrome.records.rollout import encode

PLACES = [
    ("reward",),
    ("score",),
    ("usage", "total_tokens"),
    ("usage", "input_tokens"),
    ("meta", "task_index"),
    ("meta", "rollout_index"),
    ("meta", "finished_at"),
    ("meta", "timing", "total_s"),
    ("meta", "timing", "model_s"),
    ("meta", "timing", "tools_s"),
    ("meta", "timing", "retries"),
    ("meta", "timing", "rate_limited"),
    ("meta", "timing", "model_calls"),
    ("meta", "timing", "in_flight"),
]
VALUES = [
    *(str(whole) for whole in (2**64 - 1, 2**63 - 1, 2**63, -(2**63), -5, MAX_TOKENS + 1, 10**30)),
    *("1e308", "-1e308", "1e400", "-1e400", "NaN", "1.5", "true", '"7"', "[1]", '{"a": 1}', "null"),
]
PAGES = ["", "/rollouts", "/rollouts?sort=-tokens", "/rollouts?q=reward>1", "/tasks", "/rollout/3", "/task?id=t0-7"]


def hostile_rows() -> Iterator[bytes]:
    """Every value in every place twice, so that sums of two are beyond 64 bits and beyond a float."""
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


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\n".join(hostile_rows()) + b"\n")
    return path


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is in the JSON")


@pytest.mark.parametrize(
    "words",
    [
        ["metrics", "FILE"],
        ["metrics", "FILE", "--json", "--by", "task"],
        ["compare", "FILE", "FILE", "--json"],
        ["check", "FILE", "--json", "--fail-on", "never"],
        ["profile", "FILE", "--json"],
        ["export", "sft", "FILE", "--to", "sft.jsonl"],
        ["export", "grpo", "FILE", "--to", "grpo.jsonl"],
        ["export", "nemo_gym", "FILE", "--to", "theirs.jsonl"],
        ["show", "FILE", "--all"],
    ],
)
def test_every_verb_reads_the_file(
    hostile: Path, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(hostile.parent)
    assert main([word.replace("FILE", hostile.name) for word in words]) == 0
    out, err = capsys.readouterr()
    if words[0] not in ("export", "show"):
        found = json.loads(out, parse_constant=no_constant)
        assert found
    if words == ["metrics", "FILE"]:
        rows = len(PLACES) * len(VALUES) * 2
        tokens = clean(1, 1)[0]["usage"]["total_tokens"]
        assert found["rollouts/kept"] == rows
        assert found["tokens/total"] == tokens * (rows - 2 * len(VALUES))  # no value in that place is a count
        assert "usage.total_tokens: 12 of " in err  # below 0 or beyond the bound; the others are of a wrong type


def test_every_page_of_the_viewer_shows_the_file(hostile: Path):
    with viewing(hostile, hostile) as client:
        wait_for(client, "/run/r", "Metrics Means")
        for page in PAGES:
            words = page_at(client, f"/run/r{page}").words
            assert " inf " not in words, page
            assert " nan " not in words, page
