"""One index, several readers and writers; and an index file that is damaged, old, gone, or has no place."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.index_rows import OpenIndex, failure, rollout, write
from tests.support.patience import DEADLINE_S
from velodrome.errors import InputError
from velodrome.index import Index, Query, Sort, database


def count(index: Index) -> int:
    return index.count(Query())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "r.failures.jsonl", [failure("z", 0)])
    return write(tmp_path / "r.jsonl", [rollout(f"t{number // 4}", number % 4) for number in range(40)])


@pytest.mark.slow
def test_two_processes_that_index_one_file_count_nothing_twice(path: Path):
    write(path, [rollout(f"u{number}", prompt="x" * 2000) for number in range(1_500)], "ab")
    script = (
        "import sys; from pathlib import Path; from velodrome.index import Index\n"
        "index = Index(Path(sys.argv[1])); state = index.refresh()\n"
        "print(state.rows, state.failed, state.rebuilt)"
    )
    command = [sys.executable, "-c", script, str(path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert said == ["1540 1 None\n"] * 2
    index = Index(path)
    assert [index.state.rows, count(index), index.count(Query.parse("n=4"))] == [1540, 1541, 40]


def test_readers_in_many_threads_see_whole_states_while_rows_are_added(path: Path):
    index, other = Index(path), Index(path)
    index.refresh()
    wrong: list[Any] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            page = other.page(Query.parse("reward>=0"), Sort.parse("-tokens"), limit=1000)
            numbers = sorted(entry.number for entry in page.entries)
            if numbers != list(range(1, len(numbers) + 1)):
                wrong.append(numbers)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for more in range(30):
        write(path, [rollout(f"new{more}", repeat) for repeat in range(5)], "ab")
        index.refresh()
    done.set()
    for reader in readers:
        reader.join()
    assert (wrong, count(other)) == ([], 40 + 150 + 1)


def test_a_writer_that_holds_the_index_is_waited_for_and_reading_continues(opened: OpenIndex, path: Path):
    index = opened(path)
    index.refresh()
    write(path, [rollout("new")], "ab")
    with closing(database.connect(index.path)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        waiting = threading.Thread(target=index.refresh)
        waiting.start()
        assert (count(index), index.refresh(0.1).rows) == (41, 40)  # a page does not wait
        holder.execute("COMMIT")
    waiting.join(DEADLINE_S)
    assert count(index) == 42


def test_an_index_that_is_no_database_or_of_another_version_is_rebuilt(opened: OpenIndex, path: Path):
    place = database.index_path(path)
    place.write_bytes(b"this is not a database, and never was one" * 100)
    state = opened(path).refresh()
    assert (state.rows, state.failed, state.rebuilt) == (
        40,
        1,
        "the index file could not be read (file is not a database)",
    )
    with closing(database.connect(place)) as connection:
        connection.execute("PRAGMA user_version=99")
    state = opened(path).refresh()
    assert (state.rows, state.rebuilt) == (40, f"the index was of version 99, not {database.VERSION}")


def test_an_index_that_is_deleted_is_rebuilt(opened: OpenIndex, path: Path):
    index = opened(path)
    index.refresh()
    database.discard(index.path)
    assert count(index) == 41
    database.discard(index.path)
    write(path, [rollout("new")], "ab")
    state = index.refresh()
    assert (state.rows, state.failed, state.rebuilt) == (41, 1, "the index file was gone")


def test_where_the_folder_cannot_be_written_the_index_lies_in_the_cache(
    opened: OpenIndex, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path.with_name("r.jsonl.index.sqlite").mkdir()  # something is in the way
    index = opened(path)
    assert index.refresh().rows == 40
    assert index.path.parent == tmp_path / "cache" / "velodrome" / "index"
    again = opened(path)
    assert (again.path, again.state.rows) == (index.path, 40)
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(InputError, match=f"{path}: no place for its index: .*Not a directory"):
        Index(path)
