"""What people say of rollouts filters, counts and sorts like any other field, and never counts for another rollout."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

import velodrome as velo
from tests.support.index_rows import failure, rollout, write
from velodrome.cli.main import main
from velodrome.index import FAILED, Index, Query, Sort, matching_lines
from velodrome.index.judgements import make_judgement, save_judgement

AT = 1_790_000_000.0
TASK = {"responses_create_params": {"input": "?"}}


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """Five rollouts and a failure; three of them are judged, one by two people."""
    path = write(tmp_path / "r.jsonl", [rollout("a", repeat, rating=repeat) for repeat in range(5)])
    write(tmp_path / "r.failures.jsonl", [failure("b")])
    said = [
        make_judgement("a/0", "anna", tags="good clear", rating=5, finished_at=AT),
        make_judgement("a/0", "ben", tags="good", rating=2, finished_at=AT),
        make_judgement("a/1", "ben", tags="bad", note="It guesses the answer.", finished_at=AT),
        make_judgement("b/0", "anna", tags="flaky", rating=1, finished_at=AT + 1),
        make_judgement("a/4", "anna", tags="gone", rating=1, finished_at=AT),
        make_judgement("a/4", "anna", finished_at=AT),  # taken back
    ]
    for each in said:
        save_judgement(path, each)
    return path


def found(path: Path, text: str) -> list[int]:
    index = Index(path, judged=True)
    index.refresh()
    numbers = [entry.number for entry in index.select(Query.parse(text))]
    assert index.count(Query.parse(text)) == len(numbers)
    return numbers


def test_every_part_of_a_judgement_filters(judged: Path):
    for text, numbers in {
        "tag:good": [1],
        "tag=goo": [],
        "-tag:bad state:kept": [1, 3, 4, 5],
        "tag:*": [1, 2, FAILED + 1],
        "tag:gone": [],
        "rating=3.5": [1],  # the mean of 5 and 2
        "rating:none": [2, 3, 4, 5],
        'note:"the answer"': [2],
        "by:anna by:ben": [1],
        "judged:yes": [1, 2, FAILED + 1],
        "-judged:yes": [3, 4, 5],
        "row.rating>2": [4, 5],
    }.items():
        assert found(judged, text) == numbers, text
    index = Index(judged, judged=True)
    index.refresh()
    assert {"tag", "note", "by", "judged"} <= {*index.names().texts}
    assert [each.number for each in index.page(Query(), Sort.parse("-rating")).entries][:2] == [1, FAILED + 1]


def test_exports_that_can_hold_judgements_have_them(judged: Path, tmp_path: Path):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    velo.export("parquet", judged, tmp_path / "own.parquet", where="")
    table = parquet.read_table(tmp_path / "own.parquet").to_pylist()
    assert [row["rating"] for row in table] == [0.0, 1.0, 2.0, 3.0, 4.0]  # the rows' own
    write(judged, [rollout("a", repeat) for repeat in range(2)])
    velo.export("parquet", judged, tmp_path / "people.parquet", where="")
    first, second = parquet.read_table(tmp_path / "people.parquet").to_pylist()
    said = {each["by"]: each["tags"] for each in orjson.loads(first["fields"])["judgements"]}
    assert (first["rating"], said) == (3.5, {"anna": ["good", "clear"], "ben": ["good"]})
    assert second["rating"] is None
    judged.with_name("r.notes.jsonl").unlink()
    velo.export("parquet", judged, tmp_path / "none.parquet", where="")
    assert "rating" not in parquet.read_table(tmp_path / "none.parquet").column_names


def test_judgements_are_read_printed_and_compared(judged: Path, capsys: pytest.CaptureFixture[str]):
    assert [number for number, _ in matching_lines(judged, "tag:good")] == [1]
    assert [each.key for each in velo.read(judged, where="rating>3")] == ["a/0"]
    said = [(each.key, each.by, each.rating) for each in velo.judgements(judged)]
    assert sorted(said)[:2] == [("a/0", "anna", 5), ("a/0", "ben", 2)]
    assert [each.key for each in velo.judgements(judged, "by:ben reward>=1")] == ["a/0", "a/0", "a/1"]
    assert main(["judgements", str(judged)]) == 0
    printed = orjson.loads(capsys.readouterr().out)
    assert [each["key"] for each in printed["judgements"]] == ["a/0", "a/0", "a/1", "b/0"]
    assert printed["agreement"] == [{"people": ["anna", "ben"], "both": 1, "same": 0, "mean_difference": 3.0}]
    assert main(["judgements", str(judged), "--where", "tag:bad", "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[1].startswith("a/1,ben,")) == ("key,by,at,rating,tags,note", True)
    assert main(["judgements", str(judged.with_name("r.notes.jsonl"))]) == 2


def test_overwriting_the_rollouts_keeps_what_was_said_of_the_old_ones(tmp_path: Path):
    async def agent(task: dict[str, object]) -> dict[str, object]:
        return {"output": "an answer", "reward": 1.0}

    def collect(**settings: bool) -> None:
        asyncio.run(velo.collect([{"id": "a", **TASK}], agent, out=path, progress=False, **settings))

    path = tmp_path / "r.jsonl"
    collect()
    [made] = velo.read(path)
    save_judgement(path, make_judgement("a/0", "anna", rating=5, finished_at=made.row["meta"]["finished_at"]))
    said = path.with_name("r.notes.jsonl").read_bytes()
    assert found(path, "rating:5") == [1]
    collect(overwrite=True)
    assert (found(path, "judged:yes"), path.with_name("r.notes.jsonl").read_bytes()) == ([], said)
