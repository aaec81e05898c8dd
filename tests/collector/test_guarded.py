"""A file that other programs change while it is appended to: no whole line is lost, and nothing is claimed in vain."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from velodrome.collector.sink import GuardedFile, Sink
from velodrome.records.jsonl import read_lines


def line(number: int) -> bytes:
    return b'{"n":%d}\n' % number


def lines(path: Path) -> list[bytes]:
    return [each for _, each in read_lines(path)]


def removed(path: Path) -> None:
    path.unlink()


def renamed(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"")
    other.replace(path)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut_in_a_line(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


def appended_to_without_a_line_end(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b'{"half')


def folder_removed(path: Path) -> None:
    path.parent.rename(path.parent.with_name("gone"))


CHANGES = [removed, renamed, replaced, emptied, cut_in_a_line, appended_to_without_a_line_end, folder_removed]


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.zst"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_every_line_is_in_the_file_that_is_named_however_the_first_was_changed(
    tmp_path: Path, change: Callable[[Path], None], name: str
):
    path = tmp_path / "out" / name
    file = GuardedFile(path)
    file.append(line(1))
    file.append(line(2))
    change(path)
    file.append(line(3))  # may come before anybody has noticed
    file.compare()
    file.append(line(4))
    file.compare()
    file.close()
    assert file.changed is not None
    assert file.saved is not None
    assert sorted(lines(file.saved.path)) == [line(1), line(2), line(3), line(4)]
    assert f"4 of its rollouts are saved in {file.saved.path}" in file.report("rollouts")
    assert file.saved.path == path.with_name(name.replace("x.", "x.saved-1."))


def test_a_line_overwritten_in_place_is_noticed_at_the_end_and_the_others_are_saved(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    file = GuardedFile(path)
    for number in range(1, 4):
        file.append(line(number))
    os.utime(path, ns=(0, 0))
    file.compare(thorough=True)
    assert file.changed is None  # touched, and whole
    with path.open("r+b") as stream:
        stream.write(b"####")
    os.utime(path, ns=(0, 0))
    file.append(line(4))
    file.compare(thorough=True)
    file.close()
    assert file.changed == "it was overwritten by another program"
    assert file.saved is not None
    assert lines(file.saved.path) == [line(1), line(2), line(3), line(4)]  # the last ones are still known


def test_an_empty_file_that_is_removed_is_made_again_and_stays_locked(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    file = GuardedFile(path)
    path.unlink()
    file.compare()
    code = f"from pathlib import Path; from velodrome.records.appender import Appender; Appender(Path({str(path)!r}))"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "another collection is writing to it" in second.stderr
    file.append(line(1))
    file.compare()
    file.close()
    assert (file.changed, lines(path)) == (None, [line(1)])


def test_a_second_writer_that_took_the_path_keeps_it_and_the_first_writes_elsewhere(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    first = GuardedFile(path)
    first.append(line(1))
    path.unlink()
    second = GuardedFile(path)
    second.append(line(5))
    first.compare()
    first.append(line(2))
    first.close()
    second.compare()
    second.close()
    assert (second.changed, lines(path)) == (None, [line(5)])
    assert first.saved is not None
    assert sorted(lines(first.saved.path)) == [line(1), line(2)]


def test_names_that_are_taken_are_left_alone(tmp_path: Path):
    (tmp_path / "x.saved-1.jsonl").write_text("mine")
    file = GuardedFile(tmp_path / "x.jsonl")
    file.append(line(1))
    file.path.unlink()
    file.compare()
    file.close()
    assert (tmp_path / "x.saved-1.jsonl").read_text() == "mine"
    assert lines(tmp_path / "x.saved-2.jsonl") == [line(1)]


FULL_FOLDER = """
import os, resource, sys
from pathlib import Path
from velodrome.collector.sink import GuardedFile
from velodrome.errors import StorageError

os.chdir(sys.argv[1])
file = GuardedFile(Path(sys.argv[2]))
for number in range(5):
    file.append(b'{"n":%d}\\n' % number)
file.path.unlink()
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))  # no file can have more than two lines from now on
file.compare()
try:
    file.append(b'{"n":5}\\n')
except StorageError as error:
    print(error)
file.close()
print(file.report("rollouts"))
"""


def test_lines_that_fit_nowhere_are_said_to_be_lost_and_those_that_are_saved_are_named(tmp_path: Path):
    (tmp_path / "here").mkdir()
    path = tmp_path / "out" / "x.jsonl"
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FULL_FOLDER, str(tmp_path / "here"), str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=environ,
    )
    refused, report = done.stdout.splitlines()
    assert refused.startswith(f"{path}: it was removed or renamed, and its lines cannot be saved: ")
    saved = tmp_path / "x.saved-1.jsonl"  # in the last folder that is tried
    assert f"2 of its rollouts are saved in {saved}; the others could not be saved ({saved}: File too large)" in report
    assert lines(saved) == [line(0), line(1)]
    assert list(tmp_path.rglob("*.jsonl")) == [saved]


def test_an_empty_failures_file_that_somebody_replaced_is_not_removed(tmp_path: Path):
    sink = Sink(tmp_path / "r.jsonl")
    sink.keep(b'{"a":1}\n')
    failures = tmp_path / "r.failures.jsonl"
    failures.unlink()
    failures.write_text("somebody's own\n")
    sink.close()
    assert failures.read_text() == "somebody's own\n"
    assert sink.changed == f"{failures}: it was replaced by another file"


HALF_WRITTEN = """
import fcntl, os, resource, sys
from pathlib import Path
from velodrome.errors import StorageError
from velodrome.records.appender import Appender

held = os.memfd_create("x", os.MFD_ALLOW_SEALING)
fcntl.fcntl(held, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)  # what is written cannot be taken back
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
appender = Appender(Path(f"/proc/self/fd/{held}"))
for size in (40, 40, 40, 10):
    try:
        appender.append(b"x" * (size - 1) + b"\\n")
    except StorageError as error:
        print("refused")
print([len(line) for line in os.pread(held, 1000, 0).splitlines()])
"""


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="sealed memory is Linux's")
def test_nothing_is_glued_to_half_a_line_that_could_not_be_taken_back():
    done = subprocess.run([sys.executable, "-c", HALF_WRITTEN], capture_output=True, text=True, check=True)
    assert done.stdout == "refused\nrefused\n[39, 39, 20]\n"
