"""One index, several readers and writers; and an index file that is damaged, old, gone, or has no place."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from index_rows import OpenIndex, failure, rollout, write
from patience import DEADLINE_S

from velodrome.errors import InputError
from velodrome.index import Index, Query, Sort, database

Json = dict[str, Any]


def count(index: Index) -> int:
    return index.count(Query())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "r.failures.jsonl", [failure("z", 0)])
    return write(tmp_path / "r.jsonl", [rollout(f"t{number // 4}", number % 4) for number in range(40)])


@pytest.mark.slow
def test_two_processes_that_index_one_file_count_nothing_twice(path: Path):
    write(path, [rollout(f"u{number}", prompt="x" * 2000) for number in range(4_000)], "ab")
    script = (
        "import sys; from pathlib import Path; from velodrome.index import Index\n"
        "index = Index(Path(sys.argv[1])); state = index.refresh(); index.close()\n"
        "print(state.rows, state.failed, state.searchable, state.rebuilt)"
    )
    command = [sys.executable, "-c", script, str(path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert said == ["4040 1 4041 None\n"] * 2
    index = Index(path)
    assert [index.state.rows, count(index), index.count(Query.parse("n=4"))] == [4040, 4041, 40]
    assert sum(point.finished for point in index.series()) == 4041
    index.close()


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
    index.close()
    other.close()


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


def test_an_index_that_is_no_database_is_rebuilt(opened: OpenIndex, path: Path):
    place = database.index_path(path)
    place.write_bytes(b"this is not a database, and never was one" * 100)
    index = opened(path)
    state = index.refresh()
    assert (state.rows, state.failed, state.rebuilt) == (40, 1, "the index file was damaged (file is not a database)")


def test_a_connection_that_cannot_be_set_up_is_closed(tmp_path: Path):
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"no database" * 100)
    with pytest.raises(sqlite3.DatabaseError) as raised:
        database.connect(damaged)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        raised.traceback[-1].frame.f_locals["connection"].execute("PRAGMA user_version")


def test_an_index_damaged_while_it_is_open_is_rebuilt(opened: OpenIndex, path: Path):
    index = opened(path)
    index.refresh()
    before = index.page(Query(), Sort())
    with database.connect(index.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with index.path.open("rb+") as stream:
        stream.seek(0)
        stream.write(b"\xff" * index.path.stat().st_size)
    other = Index(path)  # finds it damaged, and makes it again
    assert other.refresh().rows == 40
    other.close()
    assert index.page(Query(), Sort()) == before
    assert index.refresh().rows == 40


def test_an_index_that_is_deleted_is_rebuilt(opened: OpenIndex, path: Path):
    index = opened(path)
    index.refresh()
    database.discard(index.path)
    assert count(index) == 41
    database.discard(index.path)
    write(path, [rollout("new")], "ab")
    state = index.refresh()
    assert (state.rows, state.failed, state.rebuilt) == (41, 1, "the index file was gone")


def test_an_index_that_is_deleted_while_it_is_built_is_not_waited_for(opened: OpenIndex, path: Path):
    index = opened(path)
    with closing(database.connect(index.path)) as holder:
        holder.execute("BEGIN IMMEDIATE")  # a builder in another process that never ends
        builder = threading.Thread(target=index.refresh, daemon=True)
        builder.start()
        database.discard(index.path)
        rows: list[int] = []
        readers = [threading.Thread(target=lambda: rows.append(index.state.rows), daemon=True) for _ in range(3)]
        for thread in readers:
            thread.start()
        for thread in (*readers, builder):
            thread.join(DEADLINE_S)
        assert (len(rows), builder.is_alive()) == (3, False)  # a reader may see how far the new index is
        assert index.refresh().rows == 40


def test_an_index_of_another_version_is_rebuilt(opened: OpenIndex, path: Path):
    place = database.index_path(path)
    with database.connect(place) as connection:
        connection.execute("PRAGMA user_version=99")
        connection.execute("CREATE TABLE rollout (x)")
    connection.close()
    index = opened(path)
    state = index.refresh()
    assert (state.rows, state.rebuilt) == (40, f"the index was of version 99, not {database.VERSION}")


def test_where_the_folder_cannot_be_written_the_index_lies_in_the_cache(
    opened: OpenIndex, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path.with_name("r.jsonl.index.sqlite").mkdir()  # something is in the way
    index = opened(path)
    assert index.refresh().rows == 40
    assert index.path.parent == tmp_path / "cache" / "velodrome" / "index"
    again = Index(path)
    assert (again.path, again.state.rows) == (index.path, 40)
    again.close()


def test_no_place_for_an_index_is_one_line(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path.with_name("r.jsonl.index.sqlite").mkdir()
    with pytest.raises(InputError, match=f"{path}: no place for its index: .*Not a directory"):
        Index(path)


@pytest.mark.parametrize("place", [8192, 20_000, 60_000, 100_000])
def test_random_bytes_within_a_small_index_change_no_answer(path: Path, place: int):
    write(path, [rollout(f"more{at}", answer=f"it is {at}, zebra{at}") for at in range(300)], "ab")

    def answers() -> object:
        with closing(Index(path)) as index:
            index.refresh()
            matches = index.page(Query.parse("zebra17"), Sort()).entries
            return (
                index.page(Query(), Sort(), limit=2000).entries,
                matches,
                index.tasks(Sort()).entries,
                index.line(300),
            )

    right = answers()
    with closing(database.connect(database.index_path(path))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = database.index_path(path).read_bytes()
    for seed in range(4):
        with database.index_path(path).open("rb+") as stream:
            stream.write(whole)
            stream.truncate()
            stream.seek(place)
            stream.write(Random(seed).randbytes(64))
        assert answers() == right


def test_a_place_that_is_wrong_in_the_index_of_an_untouched_file_is_the_indexs_fault(path: Path):
    with closing(Index(path)) as index:
        index.refresh()
        right = index.line(7)
        with closing(database.connect(index.path)) as connection:
            connection.execute("UPDATE entry SET offset = offset + 3 WHERE number = 7")
        assert index.line(7) == right
        note = "the index file was damaged (a rollout is not where the index says)"
        assert (index.remade, index.state.rebuilt) == (1, note)


def test_an_index_that_many_make_at_the_same_moment_is_made(tmp_path: Path):
    for number in range(20):
        path = tmp_path / f"{number}.index"
        together = threading.Barrier(8)

        def make(path: Path = path, together: threading.Barrier = together) -> str | None:
            together.wait()
            return database.prepare(path)

        with ThreadPoolExecutor(8) as pool:
            assert [made.result() for made in [pool.submit(make) for _ in range(8)]] == [None] * 8
