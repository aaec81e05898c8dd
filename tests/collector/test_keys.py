"""The keys file: a resume relies on it only where it fits the output, and then reads no line."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from velodrome.collector.keys import Earlier, Entry, entry_of, keys_path, read_earlier
from velodrome.collector.settings import CollectSettings
from velodrome.collector.sink import Sink, open_sink


def line(number: int) -> bytes:
    meta = {"key": f"task-{number}/0", "task_digest": f"{number + 1:016x}"}
    return orjson.dumps({"output": [], "meta": meta}) + b"\n"


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


def rows(earlier: Earlier) -> list[tuple[int, ...]]:
    return sorted(struct.iter_unpack("<QQq", earlier.records))


def counted(output: Path) -> tuple[list[tuple[int, ...]], int]:
    """The rows of the output, and how many of its lines were parsed to know them."""
    seen: list[bytes] = []

    def read(text: bytes) -> Entry | None:
        seen.append(text)
        return entry_of(text)

    return rows(read_earlier(output, read)), len(seen)


def whole(output: Path) -> list[tuple[int, ...]]:
    """The rows of the output, read from its lines alone."""
    lines = output.with_name("lines.jsonl")
    lines.write_bytes(output.read_bytes())
    return rows(read_earlier(lines))


def test_an_output_with_its_keys_is_not_read_again(output: Path):
    assert counted(output) == (whole(output), 0)
    write(output, range(20, 25))
    assert counted(output) == (whole(output), 0)
    assert len(whole(output)) == 25


def test_an_output_that_was_written_to_after_its_keys_is_read_and_a_bad_line_is_named(output: Path):
    with output.open("ab") as stream:
        stream.write(line(20) + line(21) + b"no rollout\n" + b'{"torn')
    assert counted(output) == (whole(output), 24)
    (note,) = read_earlier(output).notes
    assert note.startswith(f"{output}:23: ")


def edit(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return spoil


def other_file(keys: Path) -> None:
    write(keys.with_name("other.jsonl"), range(100, 120))
    keys.write_bytes(keys_path(keys.with_name("other.jsonl")).read_bytes())


KEYS: dict[str, Callable[[Path], None]] = {
    "gone": Path.unlink,
    "of another output": other_file,
    "of another version": edit(lambda data: data.replace(b"keys 3", b"keys 9")),
    **{f"torn by {size}": edit(lambda data, size=size: data[:-size]) for size in (1, 24, 470)},
    "with rows of its own": edit(lambda data: data + data[-24:]),
}


@pytest.mark.parametrize("spoil", KEYS.values(), ids=KEYS)
def test_keys_that_do_not_fit_change_nothing_and_are_rebuilt(output: Path, spoil: Callable[[Path], None]):
    spoil(keys_path(output))
    assert counted(output) == (whole(output), 20)
    write(output, range(20, 22))
    assert counted(output) == (whole(output), 0)


def test_overwriting_an_output_forgets_its_keys_and_a_compressed_one_has_none(output: Path, tmp_path: Path):
    with open_sink(CollectSettings(output=output, overwrite=True), Earlier(), by_task=True):
        pass
    assert read_earlier(output).rows == 0
    path = tmp_path / "packed.jsonl.zst"
    write(path, range(5))
    assert (read_earlier(path).rows, keys_path(path).exists()) == (5, False)
