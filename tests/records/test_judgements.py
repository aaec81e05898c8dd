"""What people say of rollouts: one line per change, whole or absent, the last of a person counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import orjson
import pytest

from velodrome.errors import InputError
from velodrome.records.other_files import other_file
from velodrome.records.people.judgements import (
    Judgement,
    Judgements,
    make_judgement,
    notes_file,
    save_judgement,
)


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
    first = orjson.loads(notes_file(rollouts).read_bytes().splitlines()[0])
    assert (first["tags"], first["note"], first["rating"]) == (["good", "clear"], "why\nnot", 5)
    assert Judgements(notes_file(rollouts)).refresh().tags() == ["good"]


def test_a_zst_file_and_a_plain_one_share_their_notes():
    assert (
        notes_file(Path("x/rollouts.jsonl.zst"))
        == notes_file(Path("x/rollouts.jsonl"))
        == Path("x/rollouts.notes.jsonl")
    )


def test_a_rollout_is_a_key_and_the_time_it_finished(rollouts: Path):
    save_judgement(rollouts, make_judgement("t/0", "anna", rating=1, finished_at=100.5))
    save_judgement(rollouts, make_judgement("t/0", "anna", rating=5, finished_at=200.5))
    old, new = sorted(Judgements(notes_file(rollouts)).refresh().of("t/0"), key=lambda each: each.finished_at or 0)
    assert (old.rating, old.is_of(100.5), old.is_of(200.5), old.is_of(None)) == (1, True, False, True)
    assert (new.rating, new.is_of(200.5)) == (5, True)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"by": "  "}, "by"),
        ({"by": "x" * 61}, "by"),
        ({"tags": ["x" * 61]}, "tags"),
        ({"tags": [str(n) for n in range(21)]}, "tags"),
        ({"note": "x" * 10_001}, "note"),
        ({"rating": 0}, "rating"),
        ({"rating": 6}, "rating"),
        ({"rating": True}, "rating"),
        ({"rating": "5"}, "rating"),
    ],
)
def test_what_is_too_long_or_not_a_rating_is_refused(values: dict[str, object], place: str):
    with pytest.raises(InputError, match=f"^{place}: "):
        make_judgement("t/0", **{"by": "anna", **values})  # type: ignore[arg-type]


def test_other_lines_are_kept_and_named(rollouts: Path):
    path = notes_file(rollouts)
    save_judgement(rollouts, make_judgement("t/0", "anna", rating=3))
    whole = path.read_bytes()
    other = [b"not json", b"[1]", b'{"key": "t/0", "by": "eve", "at": "now"}', b'{"key": 7, "by": "eve", "at": 1}']
    other += [
        b'{"key": "t/0", "by": "eve", "at": 1, "rating": 9}',
        b'{"key": "t/0", "by": "eve", "at": 1, "tags": [1]}',
    ]
    path.write_bytes(
        whole + b"\n" + b"\n".join(other) + b"\n" + b'{"key": "t/0", "by": "zoe", "at": 2, "new": 1, "note": "x"}\n'
    )
    save_judgement(rollouts, make_judgement("t/0", "ben", rating=2))
    notes = Judgements(path).refresh()
    assert notes.foreign == [3, 4, 5, 6, 7, 8]
    assert notes.notes == ["rollouts.notes.jsonl: lines 3, 4, 5, 6, 7 and 1 more: not a judgement; kept and not read"]
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
    path.write_bytes(whole + b'{"key": "t/0", "by": "ben", "at": 1, "rating": 1}\n')
    assert [each.by for each in notes.refresh()] == ["anna", "ben"]
    path.write_bytes(whole.replace(b"anna", b"emma") + b'{"key": "t/1", "by": "ben", "at": 1, "rating": 1}\n' * 3)
    assert [(each.key, each.by) for each in notes.refresh()] == [("t/0", "emma"), ("t/1", "ben")]
    path.unlink()
    assert list(notes.refresh()) == []


def test_many_writers_at_once_lose_nothing(rollouts: Path):
    script = (
        "import sys\nfrom pathlib import Path\nfrom velodrome.records.people.judgements import *\n"
        "for number in range(50):\n"
        "    save_judgement(Path(sys.argv[1]), make_judgement(f't/{number}', sys.argv[2], rating=number % 5 + 1))\n"
    )
    people = ["anna", "ben"]
    children = [subprocess.Popen([sys.executable, "-c", script, str(rollouts), name]) for name in people]

    def write() -> None:
        for number in range(50):
            save_judgement(rollouts, make_judgement(f"t/{number}", threading.current_thread().name, note="n"))

    threads = [threading.Thread(target=write, name=f"thread {number}") for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [child.wait() for child in children] == [0, 0]
    notes = Judgements(notes_file(rollouts)).refresh()
    assert (notes.known, notes.foreign, len(list(notes))) == (250, [], 250)


def test_a_writer_that_is_killed_leaves_whole_lines(rollouts: Path):
    script = (
        "import sys\nfrom pathlib import Path\nfrom velodrome.records.people.judgements import *\n"
        "for number in range(100000):\n"
        "    save_judgement(Path(sys.argv[1]), make_judgement(f't/{number}', 'anna', note='x' * 5000))\n"
        "    print(number, flush=True)\n"
    )
    command = [sys.executable, "-c", script, str(rollouts)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout
        for _ in range(30):
            last = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        last = int([last, *child.stdout.read().split()][-1])
    saved = {each.key for each in Judgements(notes_file(rollouts)).refresh()}
    assert saved >= {f"t/{number}" for number in range(last + 1)}
    with notes_file(rollouts).open("ab") as stream:
        stream.write(b'{"key": "t/0", "by": "torn')
    save_judgement(rollouts, make_judgement("t/0", "ben", rating=1))
    notes = Judgements(notes_file(rollouts)).refresh()
    assert (notes.foreign, {each.by for each in notes.of("t/0")}) == ([], {"anna", "ben"})


def test_a_file_that_is_something_else_is_left_alone(rollouts: Path):
    path = notes_file(rollouts)
    path.write_text('{"meta": {"key": "t/0"}, "output": []}\n')
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"rollouts\.notes\.jsonl: not saved: there is something else in it"):
        save_judgement(rollouts, make_judgement("t/0", "ben", rating=1))
    assert path.read_bytes() == before


def test_what_cannot_be_written_is_one_clear_line(rollouts: Path, tmp_path: Path):
    notes_file(rollouts).mkdir()
    with pytest.raises(InputError, match=r"rollouts\.notes\.jsonl: not saved: it is not a file"):
        save_judgement(rollouts, make_judgement("t/0", "ben", rating=1))
    with pytest.raises(InputError, match=r"gone\.jsonl: it is gone"):
        save_judgement(tmp_path / "gone.jsonl", make_judgement("t/0", "ben", rating=1))


def test_notes_are_not_rollouts(rollouts: Path):
    save_judgement(rollouts, make_judgement("t/0", "ben", rating=1))
    assert "velo judgements" in (other_file(notes_file(rollouts)) or "")
    assert Judgement("t/0", "ben", 1.0).empty
