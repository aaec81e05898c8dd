"""Lines are whole or absent: what a crash, a full disk or a second writer leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from velodrome.errors import InputError
from velodrome.records import jsonl
from velodrome.records.appender import Appender
from velodrome.records.jsonl import LongLineError, read_lines


def lines(path: Path) -> list[tuple[int, bytes]]:
    return list(read_lines(path))


def test_lines_keep_their_numbers_when_blank_ones_are_passed_over(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a":1}\r\n\r\n  \n{"a":2}')
    assert lines(path) == [(1, b'{"a":1}\r\n'), (4, b'{"a":2}')]


def test_an_endless_line_is_refused_without_being_held(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    with path.open("wb") as stream:
        stream.write(b"1\n")
        stream.truncate(jsonl.MAX_LINE_BYTES * 4)
    with pytest.raises(LongLineError, match=r"x\.jsonl:2: the line is longer than 32 MiB"):
        lines(path)


def test_a_torn_last_line_is_cut_wherever_it_was_torn(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    whole, last = b'{"a":"one"}\n', b'{"b":{"c":[1,"}"]}}'
    for kept in range(1, len(last)):
        path.write_bytes(whole + last[:kept])
        appender = Appender(path)
        appender.close()
        assert path.read_bytes() == whole
        assert len(appender.notes) == 1
    for tail in (b'{"a":"' + b"x" * (3 * 1024 * 1024), bytes(5000)):  # longer than a chunk; what a power cut leaves
        path.write_bytes(whole + tail)
        Appender(path).close()
        assert path.read_bytes() == whole


def test_a_whole_last_line_without_its_end_is_kept_and_what_is_appended_is_in_the_file_at_once(tmp_path: Path):
    path = tmp_path / "deep" / "x.jsonl"
    path.parent.mkdir()
    path.write_bytes(b'{"a":1}\n{"a":2}')
    appender = Appender(path)
    appender.append(b'{"a":3}\n')
    assert path.read_bytes() == b'{"a":1}\n{"a":2}\n{"a":3}\n'
    assert (len(appender.notes), appender.size_found, appender.size) == (1, 15, 24)
    appender.clear()
    appender.append(b"3\n")
    appender.close()
    appender.close()
    assert path.read_bytes() == b"3\n"


@pytest.mark.slow
def test_a_second_writer_in_another_process_is_refused(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    first = Appender(path)
    code = f"from pathlib import Path; from velodrome.records.appender import Appender; Appender(Path({str(path)!r}))"
    second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"InputError: {path}: another collection is writing to it" in second.stderr
    first.close()
    Appender(path).close()


def test_a_path_that_cannot_be_read_or_written_is_one_clear_line(tmp_path: Path):
    with pytest.raises(InputError, match=r"none\.jsonl: cannot be read: No such file or directory"):
        lines(tmp_path / "none.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"x\.jsonl: cannot be written: "):
        Appender(tmp_path / "file" / "x.jsonl")


FULL_DISK = """
import resource, sys
from pathlib import Path
from velodrome.errors import StorageError
from velodrome.records.appender import Appender

resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
appender = Appender(Path(sys.argv[1]))
for size in (40, 40, 40, 10):
    try:
        appender.append(b"x" * (size - 1) + b"\\n")
    except StorageError as error:
        print(error)
appender.close()
"""


@pytest.mark.slow
def test_a_line_the_disk_refuses_is_taken_back_whole_and_a_smaller_one_still_fits(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.startswith(f"{path}: File too large; everything finished before is in the file")
    assert [len(line) for line in path.read_bytes().splitlines(keepends=True)] == [40, 40, 10]
