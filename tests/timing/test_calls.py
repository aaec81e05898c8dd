"""Both clocks: who is charged for what, whoever runs beside it and whenever it is read; and what tables become."""

from __future__ import annotations

import asyncio
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from tests.support.patience import DEADLINE_S
from velodrome.timing.calls import Calls, is_project
from velodrome.timing.tables import Key, Row, Table, as_text

PACKAGE = Path(__file__).parents[2] / "velodrome"


def burn(seconds: float) -> float:
    """Use the CPU for so long; what was used."""
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(2000))
    return time.thread_time() - start


class Verifier:
    """Code to be measured."""

    def __init__(self) -> None:
        self._used: list[float] = []
        self._inner_used: list[float] = []
        self.reached = threading.Event()
        self.goes_on = threading.Event()

    @property
    def used_s(self) -> float:
        return sum(self._used) + self.inner_used_s

    @property
    def inner_used_s(self) -> float:
        return sum(self._inner_used)

    async def verify(self) -> None:
        self._used.append(burn(0.004))
        await asyncio.sleep(0.02)
        await self.inner()

    async def inner(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0.001)
            self._inner_used.append(burn(0.001))

    def check(self) -> None:
        self._used.append(burn(0.01))

    def stop_half_way(self) -> None:
        self._used.append(burn(0.02))
        self.reached.set()
        self.goes_on.wait(DEADLINE_S)
        self._used.append(burn(0.02))


@pytest.fixture
def calls() -> Iterator[Calls]:
    result = Calls()
    yield result
    result.stop()


def row_of(table: Table, name: str) -> Row:
    (result,) = [row for key, row in table.rows.items() if key.name == name]
    return result


def test_a_coroutine_is_charged_its_own_cpu_and_counts_once_however_often_it_waits(calls: Calls):
    verifier = Verifier()

    async def others() -> None:
        for _ in range(40):
            burn(0.002)
            await asyncio.sleep(0.001)

    async def main() -> None:
        await asyncio.gather(*(verifier.verify() for _ in range(20)), others())

    calls.start()
    uvloop.run(main())
    calls.stop()

    table = calls.table()
    verify, inner = row_of(table, "Verifier.verify"), row_of(table, "Verifier.inner")
    assert (verify.cost.ncall, inner.cost.ncall) == (20, 20)
    assert verify.cost.ttot == pytest.approx(verifier.used_s, rel=0.3)
    assert inner.cost.ttot == pytest.approx(verifier.inner_used_s, rel=0.3)
    assert verify.cost.tsub < 0.05 * verify.cost.ttot
    assert verify.children[inner.key].ncall == 20


def test_reading_in_the_middle_of_a_call_changes_neither_its_count_nor_its_own_time(calls: Calls):
    verifier = Verifier()
    calls.start()
    thread = threading.Thread(target=verifier.stop_half_way)
    thread.start()
    assert verifier.reached.wait(DEADLINE_S)
    half = row_of(calls.table(), "Verifier.stop_half_way")
    calls.table()
    verifier.goes_on.set()
    thread.join()
    verifier.stop_half_way()
    calls.stop()

    whole = row_of(calls.table(), "Verifier.stop_half_way")
    assert (half.cost.ncall, whole.cost.ncall) == (1, 2)
    assert whole.cost.ttot == pytest.approx(verifier.used_s, rel=0.3)
    assert whole.cost.tsub < 0.05 * whole.cost.ttot
    assert {key.name: cost.ncall for key, cost in whole.children.items() if key.name == "burn"} == {"burn": 4}


def test_no_call_is_missed_while_the_table_is_read_all_the_time(calls: Calls):
    def small() -> None:
        pass

    def work() -> None:
        for _ in range(10_000):
            small()

    calls.start()
    workers = [threading.Thread(target=work) for _ in range(3)]
    for each in workers:
        each.start()
    while any(each.is_alive() for each in workers):
        calls.table()
    calls.stop()

    name = f"{test_no_call_is_missed_while_the_table_is_read_all_the_time.__name__}.<locals>.small"
    assert row_of(calls.table(), name).cost.ncall == 30_000


def test_on_the_wall_clock_a_coroutine_is_charged_what_it_waits_for_and_counts_once():
    waited: list[float] = []

    async def wait() -> None:
        start = time.perf_counter()
        for _ in range(3):
            await asyncio.sleep(0.02)
        waited.append(time.perf_counter() - start)

    async def caller() -> None:
        await wait()

    async def main() -> None:
        await asyncio.gather(*(caller() for _ in range(5)))

    calls = Calls("wall")
    calls.start()
    uvloop.run(main())
    sorted([3, 1, 2])
    calls.stop()

    table = calls.table()
    rows = {key.name.rpartition(".")[2]: row for key, row in table.rows.items()}
    for name in ("wait", "caller"):
        assert rows[name].cost.ncall == 5
        assert rows[name].cost.ttot == pytest.approx(sum(waited), rel=0.1)
    assert rows["caller"].cost.tsub < 0.1 * rows["caller"].cost.ttot
    assert {key.name.rpartition(".")[2] for key in rows["caller"].children} >= {"wait"}
    assert "builtins.sorted" in {key.name for key in table.rows if key.file == "~"}  # what is written in C has a row


@pytest.mark.parametrize(
    ("file", "project"),
    [
        (PACKAGE / "resources_servers" / "math_with_judge" / "app.py", True),
        (PACKAGE / "resources_servers" / "environment.py", False),
        (Path(sysconfig.get_path("stdlib")) / "json" / "decoder.py", False),
        ("/somewhere/.venv/lib/python3.12/site-packages/velodrome/resources_servers/mine.py", False),
        ("/somewhere/project/resources_servers/mine/app.py", True),
        ("~", False),
    ],
)
def test_the_project_is_components_and_what_the_user_wrote(file: Path | str, project: bool):
    assert is_project(str(file)) is project


def made(*, ncall: int = 4, machinery: bool = True) -> Table:
    """verify calls check and, by way of the library, sorts."""
    table = Table("cpu")
    verify, check = Key("/srv/env/app.py", 10, "Mine.verify"), Key("/srv/env/app.py", 30, "check")
    sort, loads = Key("~", 0, "builtins.sorted"), Key("/lib/json/__init__.py", 299, "loads")
    table.row(verify).cost.add(ncall, ncall, 0.5, 18.0)
    table.row(verify).child(check).add(ncall, ncall, 2.0, 17.5)
    table.row(check).cost.add(ncall, ncall, 2.0, 17.5)
    if machinery:
        table.row(check).child(loads).add(8, 8, 15.0, 15.5)
        table.row(loads, project=False).cost.add(8, 8, 15.0, 15.5)
        table.row(loads, project=False).child(sort).add(1, 1, 0.5, 0.5)
        table.row(sort, project=False).cost.add(1, 1, 0.5, 0.5)
    return table


def test_the_text_has_the_columns_of_the_documentation_and_the_project_first():
    table = made()
    assert as_text(table) == (
        "name                                             ncall    tsub      ttot      tavg     \n"
        "Mine.verify                                      4        0.500000  18.00000  4.500000\n"
        "check                                            4        2.000000  17.50000  4.375000\n"
        "\n"
        "the rest: the standard library, other packages, Velodrome itself, functions written in C\n"
        "\n"
        "name                                             ncall    tsub      ttot      tavg     \n"
        "loads (json/__init__.py:299)                     8        15.00000  15.50000  1.937500\n"
        "builtins.sorted                                  1        0.500000  0.500000  0.500000\n"
    )
    for place, seconds in (("a", 123456.78), ("b", 1234567.8)):  # of one name: told apart by their place
        table.row(Key(f"/w/{place}/app.py", 1, "main")).cost.add(1, 1, 0.0097551, seconds)
    assert [line.split() for line in as_text(table).splitlines()[1:3]] == [
        ["main", "(b/app.py:1)", "1", "0.009755", "1234568", "1234568"],
        ["main", "(a/app.py:1)", "1", "0.009755", "123456.8", "123456.8"],
    ]
