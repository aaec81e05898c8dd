"""What people say of rollouts: one line per change, whole or absent, the last of a person counts."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import orjson
import pytest

from velodrome.errors import InputError
from velodrome.index.judgements import Judgements, make_judgement, notes_file, save_judgement
from velodrome.records.other_files import other_file


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    path = tmp_path / "rollouts.jsonl"
    path.write_text('{"meta": {"key": "t/0"}, "output": []}\n')
    return path


def said(rollouts: Path, key: str = "t/0") -> dict[str, tuple[tuple[str, ...], str, int | None]]:
    notes = Judgements(notes_file(rollouts)).refresh()
    return {each.by: (each.tags, each.note, each.rating) for each in notes.of(key)}


def test_the_last_line_of_a_person_counts_and_an_empty_one_takes_it_back(rollouts: Path):
    save_judgement(rollouts, make_judgement("t/0", "anna", tags="good, clear good", note=" why\r\nnot ", rating=5))
    save_judgement(rollouts, make_judgement("t/0", "ben", tags=["bad"], rating=1))
    save_judgement(rollouts, make_judgement("t/0", "anna", tags="good", rating=4))
    save_judgement(rollouts, make_judgement("t/1", "anna", note="other"))
    assert said(rollouts) == {"anna": (("good",), "", 4), "ben": (("bad",), "", 1)}
    save_judgement(rollouts, make_judgement("t/0", "ben"))
    assert said(rollouts) == {"anna": (("good",), "", 4)}
    assert notes_file(rollouts.with_suffix(".jsonl.zst")) == notes_file(rollouts)
    assert "velo judgements" in (other_file(notes_file(rollouts)) or "")  # which is no rollouts file
    first = orjson.loads(notes_file(rollouts).read_bytes().splitlines()[0])
    assert (first["tags"], first["note"], first["rating"]) == (["good", "clear"], "why\nnot", 5)
    assert Judgements(notes_file(rollouts)).refresh().tags() == ["good"]


def test_a_rollout_is_a_key_and_the_time_it_finished(rollouts: Path):
    save_judgement(rollouts, make_judgement("t/0", "anna", rating=1, finished_at=100.5))
    save_judgement(rollouts, make_judgement("t/0", "anna", rating=5, finished_at=200.5))
    old, new = sorted(Judgements(notes_file(rollouts)).refresh().of("t/0"), key=lambda each: each.finished_at or 0)
    assert (old.rating, old.is_of(100.5), old.is_of(200.5), old.is_of(None)) == (1, True, False, True)
    assert (new.rating, new.is_of(200.5)) == (5, True)


@pytest.mark.parametrize(
    "values", [{"by": "  "}, {"tags": ["x" * 61]}, {"note": "x" * 10_001}, {"rating": 6}, {"rating": "5"}]
)
def test_what_is_too_long_or_not_a_rating_is_refused(values: dict[str, object]):
    with pytest.raises(InputError, match=f"^{next(iter(values))}: "):
        make_judgement("t/0", **{"by": "anna", **values})  # type: ignore[arg-type]


def test_other_lines_are_kept_and_named(rollouts: Path):
    path = notes_file(rollouts)
    save_judgement(rollouts, make_judgement("t/0", "anna", rating=3))
    whole = path.read_bytes()
    other = [b"not json", b"[1]", b'{"key": "t/0", "by": "eve", "at": "now"}', b'{"key": 7, "by": "eve", "at": 1}']
    other.append(b'{"key": "t/0", "by": "eve", "at": 1, "rating": 9}')
    newer = b'{"key": "t/0", "by": "zoe", "at": 2, "new": 1, "note": "x"}'
    path.write_bytes(whole + b"\n".join([b"", *other, newer, b""]))
    save_judgement(rollouts, make_judgement("t/0", "ben", rating=2))
    notes = Judgements(path).refresh()
    assert (notes.foreign, len(notes.notes)) == ([3, 4, 5, 6, 7], 1)
    assert said(rollouts) == {"anna": ((), "", 3), "zoe": ((), "x", None), "ben": ((), "", 2)}
    assert all(line in path.read_bytes() for line in other)


def test_a_reader_reads_on_and_notices_a_file_that_was_rewritten(rollouts: Path):
    path = notes_file(rollouts)
    notes = Judgements(path).refresh()
    assert (list(notes), empty := notes.version) == ([], notes.version)
    save_judgement(rollouts, make_judgement("t/0", "anna", rating=3))
    assert [each.rating for each in notes.refresh()] == [3]
    assert (before := notes.version) != empty
    assert notes.refresh().version == before
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key": "t/0", "by": "ben", "at"')  # on its way
    assert [each.by for each in notes.refresh()] == ["anna"]
    save_judgement(rollouts, make_judgement("t/2", "emma", rating=1))  # as after a writer that was killed
    assert ([each.by for each in notes.refresh()], notes.foreign) == (["anna", "emma"], [])
    path.write_bytes(whole + b'{"key": "t/0", "by": "ben", "at": 1, "rating": 1}\n')
    assert [each.by for each in notes.refresh()] == ["anna", "ben"]
    path.write_bytes(whole.replace(b"anna", b"emma") + b'{"key": "t/1", "by": "ben", "at": 1, "rating": 1}\n' * 3)
    assert [(each.key, each.by) for each in notes.refresh()] == [("t/0", "emma"), ("t/1", "ben")]
    path.unlink()
    assert list(notes.refresh()) == []


@pytest.mark.slow
def test_many_writers_at_once_lose_nothing(rollouts: Path):
    script = (
        "import sys\nfrom pathlib import Path\nfrom velodrome.index.judgements import *\n"
        "for number in range(20):\n"
        "    save_judgement(Path(sys.argv[1]), make_judgement(f't/{number}', sys.argv[2], rating=number % 5 + 1))\n"
    )
    people = ["anna", "ben"]
    children = [subprocess.Popen([sys.executable, "-c", script, str(rollouts), name]) for name in people]

    def write() -> None:
        for number in range(20):
            save_judgement(rollouts, make_judgement(f"t/{number}", threading.current_thread().name, note="n"))

    threads = [threading.Thread(target=write, name=f"thread {number}") for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [child.wait() for child in children] == [0, 0]
    notes = Judgements(notes_file(rollouts)).refresh()
    assert (notes.known, notes.foreign, len(list(notes))) == (100, [], 100)


def test_a_file_that_is_something_else_is_left_alone(rollouts: Path):
    path = notes_file(rollouts)
    path.write_text('{"meta": {"key": "t/0"}, "output": []}\nsome words')
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"rollouts\.notes\.jsonl: not saved: there is something else in it"):
        save_judgement(rollouts, make_judgement("t/0", "ben", rating=1))
    assert path.read_bytes() == before
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=r"rollouts\.notes\.jsonl: not saved: it is not a file"):
        save_judgement(rollouts, make_judgement("t/0", "ben", rating=1))
