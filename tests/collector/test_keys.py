"""The keys file: a resume relies on it only where it is right, and then reads next to nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from velodrome.collector.keys import Earlier, Entry, entry_of, keys_path, read_earlier
from velodrome.collector.settings import CollectSettings
from velodrome.collector.sink import Sink, open_sink


def line(number: int, text: str = "") -> bytes:
    meta = {"key": f"task-{number}/0", "task_digest": f"{number + 1:016x}"}
    return orjson.dumps({"output": text, "meta": meta}) + b"\n"


def write(output: Path, numbers: range) -> None:
    """Write rows as a collection does, in batches of three."""
    with open_sink(CollectSettings(output=output), read_earlier(output), by_task=True) as sink:
        assert isinstance(sink, Sink)
        for number in numbers:
            sink.keep(line(number), entry_of(line(number)))
            if number % 3 == 2:
                sink.seal()
        sink.seal()


@pytest.fixture
def output(tmp_path: Path) -> Path:
    path = tmp_path / "rollouts.jsonl"
    write(path, range(20))
    return path


def rows(earlier: Earlier) -> list[bytes]:
    return sorted(earlier.records[at : at + 32] for at in range(0, len(earlier.records), 32))


def counted(output: Path) -> tuple[Earlier, int]:
    """What the output has, and how many of its lines were parsed to know."""
    seen: list[bytes] = []

    def read(text: bytes) -> Entry | None:
        seen.append(text)
        return entry_of(text)

    return read_earlier(output, read), len(seen)


def whole(output: Path) -> Earlier:
    """What the output has, read from its lines alone."""
    aside = keys_path(output).with_suffix(".aside")
    if keys_path(output).exists():
        keys_path(output).rename(aside)
    earlier = read_earlier(output)
    if aside.exists():
        aside.rename(keys_path(output))
    return earlier


def test_an_output_with_its_keys_is_not_read_again(output: Path):
    earlier, parsed = counted(output)
    assert (earlier.rows, parsed) == (20, 1)  # the last line, to see that it is the same file
    assert rows(earlier) == rows(whole(output))


def test_the_keys_go_on_where_they_stopped(output: Path):
    write(output, range(20, 31))
    earlier, parsed = counted(output)
    assert (earlier.rows, parsed) == (31, 1)


def test_a_row_that_was_written_after_the_last_key_is_read_and_no_other(output: Path):
    with output.open("ab") as stream:
        stream.write(line(20) + line(21) + b'{"torn')
    earlier, parsed = counted(output)
    assert (earlier.rows, rows(earlier)) == (22, rows(whole(output)))
    assert parsed == 3


def test_a_copy_of_both_files_is_as_good_as_they_are(output: Path, tmp_path: Path):
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(output.read_bytes())
    keys_path(copy).write_bytes(keys_path(output).read_bytes())
    earlier, parsed = counted(copy)
    assert (earlier.rows, parsed) == (20, 0)


def edit(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return spoil


def other_file(keys: Path) -> None:
    write(keys.with_name("other.jsonl"), range(100, 120))
    keys.write_bytes(keys_path(keys.with_name("other.jsonl")).read_bytes())


KEYS: dict[str, Callable[[Path], None]] = {
    "gone": Path.unlink,
    "empty": edit(lambda data: b""),
    "a folder": lambda keys: (keys.unlink(), keys.mkdir())[0],
    "of another output": other_file,
    "of another version": edit(lambda data: data.replace(b"keys 1", b"keys 9")),
    **{f"torn by {size}": edit(lambda data, size=size: data[:-size]) for size in (1, 31, 32, 33, 100, 600)},
    **{f"damaged at {at}": edit(lambda data, at=at: data[:at] + b"#" + data[at + 1 :]) for at in (5, 40, 200, 700)},
    "with rows of its own": edit(lambda data: data + data[-64:-32]),
    "twice": edit(lambda data: data + data[32:]),
}


@pytest.mark.parametrize("spoil", KEYS.values(), ids=KEYS)
def test_keys_that_are_not_right_change_nothing(output: Path, spoil: Callable[[Path], None]):
    spoil(keys_path(output))
    assert rows(read_earlier(output)) == rows(whole(output))
    if keys_path(output).is_dir():
        keys_path(output).rmdir()
    write(output, range(20, 22))
    earlier, parsed = counted(output)
    assert (rows(earlier), parsed) == (rows(whole(output)), 1)


def in_place(output: Path) -> None:
    """Overwrite the start of a line in the middle; size and inode stay."""
    with output.open("r+b") as stream:
        stream.seek(len(line(0)) * 5)
        stream.write(b"#" * 10)


OUTPUTS: dict[str, Callable[[Path], None]] = {
    "overwritten in place": in_place,
    "first line gone": edit(lambda data: data.split(b"\n", 1)[1]),
    "last line gone": edit(lambda data: data[: data[:-1].rindex(b"\n") + 1]),
    "lines exchanged": edit(lambda data: b"\n".join([*data.split(b"\n")[1::-1], *data.split(b"\n")[2:]])),
    "another key": edit(lambda data: data.replace(b"task-7/", b"mine-7/")),
    "another digest": edit(lambda data: data.replace(f"{8:016x}".encode(), f"{99:016x}".encode())),
    "blank lines": edit(lambda data: b"\n" + data + b"\n\n"),
    "no final line end": edit(lambda data: data.rstrip(b"\n")),
    "a line added": edit(lambda data: data + line(50)),
    "emptied": edit(lambda data: b""),
}


@pytest.mark.parametrize("spoil", OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_that_was_edited_counts_as_it_is(output: Path, spoil: Callable[[Path], None]):
    spoil(output)
    assert rows(read_earlier(output)) == rows(whole(output))


@pytest.mark.parametrize("name", [b"task-13/", b"task-19/"])
def test_an_edit_that_keeps_size_and_modification_time_is_noticed(output: Path, name: bytes):
    state = output.stat()
    edit(lambda data: data.replace(name, b"task-91/"))(output)
    os.utime(output, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert rows(read_earlier(output)) == rows(whole(output))


def test_a_line_after_the_last_seal_is_named_by_its_number_in_the_file(output: Path):
    with output.open("ab") as stream:
        stream.write(b"no rollout\n")
    (note,) = read_earlier(output).notes
    assert note.startswith(f"{output}:21: ")
    assert read_earlier(output).notes == whole(output).notes


def test_a_compressed_output_has_no_keys(tmp_path: Path):
    path = tmp_path / "rollouts.jsonl.zst"
    write(path, range(5))
    assert (read_earlier(path).rows, keys_path(path).exists()) == (5, False)


def test_overwriting_an_output_forgets_its_keys(output: Path):
    with open_sink(CollectSettings(output=output, overwrite=True), Earlier(), by_task=True):
        pass
    assert read_earlier(output).rows == 0
