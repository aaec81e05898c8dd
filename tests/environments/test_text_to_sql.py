"""text_to_sql: results decide, also on rows that were not shown; a query reads and does nothing else, within limits."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.resources_servers.playing import Json, closing, opened, says, score
from velodrome.environments.text_to_sql.app import TextToSql
from velodrome.environments.text_to_sql.database import (
    Database,
    QueryLimits,
    QueryRefused,
    is_ordered,
    last_query,
    same_results,
)
from velodrome.errors import VerifyError

TASK: Json = {
    "responses_create_params": {"input": "How many?"},
    "schema": "CREATE TABLE t (a INTEGER, b TEXT, c REAL)",
    "rows": {"t": [[1, "x", 0.1], [2, "y", 0.2], [2, "y", 0.2]]},
    "hidden_rows": [{"t": [[7, "z", 1.5]]}],
    "reference_query": "SELECT a, b FROM t",
}


def scored(query: str, **changed: Any) -> Json:
    return score(TextToSql(), {**TASK, **changed}, f"```sql\n{query}\n```")


@pytest.mark.parametrize(
    ("query", "changed", "reward"),
    [
        ("SELECT a AS x, b AS y FROM t ORDER BY a DESC", {}, 1.0),
        ("SELECT DISTINCT a, b FROM t", {}, 0.0),
        ("SELECT a, b FROM t ORDER BY a", {"reference_query": "SELECT a, b FROM t ORDER BY a DESC"}, 0.0),
        ("SELECT 3 * 0.1", {"reference_query": "SELECT 0.3"}, 1.0),
        ("SELECT '2'", {"reference_query": "SELECT 2"}, 0.0),
        ("SELECT 3", {"reference_query": "SELECT count(*) FROM t"}, 0.0),  # right on what is shown
    ],
)
def test_equal_results_are_right(query: str, changed: Json, reward: float):
    assert scored(query, **changed)["reward"] == reward


@pytest.mark.parametrize(
    "query",
    [
        *("DELETE FROM t", "INSERT INTO t VALUES (1, 'a', 1)", "UPDATE t SET a = 1", "DROP TABLE t", "BEGIN"),
        *("CREATE TEMP VIEW t AS SELECT 1", "ATTACH ':memory:' AS m", "PRAGMA user_version", "VACUUM INTO '/tmp/x'"),
        *("SELECT load_extension('x')", "SELECT random()", "SELECT printf('%.*c', 900000000, 'x')", "REINDEX"),
        *("SELECT zeroblob(100000000)", "SELECT 1; SELECT 2", "SELECT 1 WHERE " + "(" * 500 + "1" + ")" * 500),
        *("SELECT * FROM pragma_table_info('t')", "SELECT fts3_tokenizer('x')"),
        *(
            f"WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT {x} FROM n"
            for x in ("x", "count(*)")
        ),
        "WITH RECURSIVE n(x) AS (SELECT 'aaaaaaaa' UNION ALL SELECT x || x FROM n) SELECT x FROM n",
        *("SELECT \x00", "\ud800", "", "-- nothing", "SELECT ?", "SELECT * FROM t, t, t, t, t, t, t, t, t, t, t, t"),
    ],
)
def test_a_query_reads_and_nothing_else_within_limits(query: str):
    limits = QueryLimits(instructions=200_000, rows=1000, result_bytes=100_000)
    database = Database(TASK["schema"], TASK["rows"], limits)
    with pytest.raises(QueryRefused):
        database.run(query)
    assert database.run("SELECT count(*) FROM t")[1] == [(3,)]
    database.close()


def test_a_query_that_sorts_a_gigabyte_is_refused_and_the_next_one_runs():
    task = {**TASK, "reference_query": "SELECT 3"}
    environment = TextToSql(worker_processes=1, query_memory_mb=16)
    large = environment.cheats(task)["a large sort"]
    reasons, rewards = [], []

    async def use() -> None:
        for text in (large, "```sql\nSELECT 3\n```"):
            result = await environment.score("1", task, says(text))
            reasons.append(result["reason"])
            rewards.append(result["reward"])

    closing(environment, use())
    assert (reasons, rewards) == (["the query takes too much memory", ""], [0.0, 1.0])


@pytest.mark.slow
def test_a_query_whose_process_hangs_is_a_failure_and_the_next_one_is_scored():
    environment = TextToSql(worker_processes=1)
    right = says("```sql\nSELECT a, b FROM t\n```")

    async def use() -> Any:
        await environment.score("1", TASK, right)
        (idle,) = environment._queries._idle
        os.kill(idle.result().child.pid, signal.SIGSTOP)
        environment.query_wall_s = 0.1
        with pytest.raises(VerifyError, match="gave no result: no answer within"):
            await environment.score("1", TASK, right)
        environment.query_wall_s = 60.0
        return await environment.score("1", TASK, right)

    assert closing(environment, use())["reward"] == 1.0


def test_a_result_written_out_is_right_only_on_the_visible_rows():
    result = scored("SELECT 1, 'x' UNION ALL SELECT 2, 'y' UNION ALL SELECT 2, 'y'")
    assert (result["reward"], result["visible_right"]) == (0.0, 1.0)


def test_the_tool_shows_rows_and_tells_what_is_wrong():
    queries = ("SELECT a, b FROM t", "SELECT absent", "DROP TABLE t", "SELECT name FROM sqlite_master")
    shown, *others = opened(TextToSql(shown_rows=2), TASK, *(("run_query", {"query": query}) for query in queries))
    assert json.loads(shown) == {"columns": ["a", "b"], "rows": [[1, "x"], [2, "y"]], "row_count": 3}
    assert others[0] == "error: no such column: absent"
    assert others[1] == "error: not authorized"
    assert json.loads(others[2])["rows"] == [["t"]]


def test_the_query_is_in_the_last_fence_and_its_order_counts_only_outside_of_parentheses_texts_and_comments():
    assert last_query("```SQL\nSELECT 1;\n```\ntext\n``` sqlite\nSELECT 2\n```\n") == "SELECT 2"
    for text in ("```\nSELECT 1\n```", "```sql\nSELECT 1", "```" * 300_000, "```\n" * 300_000):
        assert last_query(text) is None
    assert is_ordered("SELECT a FROM (SELECT 1 ORDER  BY 1) ORDER\nBY a")
    assert not is_ordered("SELECT row_number() OVER (ORDER BY a), ' order by ' FROM t -- order by a")


def test_nearly_equal_numbers_find_their_partners_in_any_order():
    rows = [(1.0000000001, "a"), (1.0, "b"), (None, b"x")]
    assert same_results(rows, [(1.0, "a"), (None, b"x"), (1.0000000001, "b")], ordered=False)
    assert not same_results(rows, [(1.0, "a"), (None, b"x"), (1.1, "b")], ordered=False)
    assert not same_results([(5_000_001,)], [(5_000_000,)], ordered=True)  # whole numbers exactly
    assert same_results([(5_000_000,)], [(5_000_000.1,)], ordered=True)
