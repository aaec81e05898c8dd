"""text_to_sql: results decide, also on rows that were not shown; a query reads and does nothing else, within limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from velodrome.errors import TaskError
from velodrome.resources_servers.text_to_sql.app import TextToSql
from velodrome.resources_servers.text_to_sql.text_to_sql_database import Database, QueryLimits, QueryRefused
from velodrome.resources_servers.text_to_sql.text_to_sql_results import is_ordered, last_query, same_results

Json = dict[str, Any]
Says = Callable[..., Json]
TASK: Json = {
    "responses_create_params": {"input": "How many?"},
    "schema": "CREATE TABLE t (a INTEGER, b TEXT, c REAL)",
    "rows": {"t": [[1, "x", 0.1], [2, "y", 0.2], [2, "y", 0.2]]},
    "hidden_rows": [{"t": [[7, "z", 1.5]]}],
    "reference_query": "SELECT a, b FROM t",
}


def score(says: Says, query: str, **changed: Any) -> Json:
    return asyncio.run(TextToSql().score("", {**TASK, **changed}, says(f"```sql\n{query}\n```")))


@pytest.mark.parametrize(
    ("query", "changed", "reward"),
    [
        ("SELECT a AS x, b AS y FROM t ORDER BY a DESC", {}, 1.0),
        ("SELECT DISTINCT a, b FROM t", {}, 0.0),
        ("SELECT b, a FROM t", {}, 0.0),
        ("SELECT a, b FROM t ORDER BY a", {"reference_query": "SELECT a, b FROM t ORDER BY a DESC"}, 0.0),
        ("SELECT 3 * 0.1", {"reference_query": "SELECT 0.3"}, 1.0),
        ("SELECT sum(c) * 1.00001 FROM t", {"reference_query": "SELECT sum(c) FROM t"}, 0.0),
        ("SELECT 2", {"reference_query": "SELECT 2.0"}, 1.0),
        ("SELECT '2'", {"reference_query": "SELECT 2"}, 0.0),
        ("SELECT 3", {"reference_query": "SELECT count(*) FROM t"}, 0.0),  # right on what is shown
    ],
)
def test_equal_results_are_right(says: Says, query: str, changed: Json, reward: float) -> None:
    assert score(says, query, **changed)["reward"] == reward


def test_a_result_written_out_is_right_only_on_the_visible_rows(says: Says) -> None:
    result = score(says, "SELECT 1, 'x' UNION ALL SELECT 2, 'y' UNION ALL SELECT 2, 'y'")
    assert (result["reward"], result["visible_right"]) == (0.0, 1.0)
    assert result["reason"] == "another result on rows 2 of 2"


@pytest.mark.parametrize(
    "query",
    [
        *(
            "DELETE FROM t",
            "INSERT INTO t VALUES (1, 'a', 1)",
            "UPDATE t SET a = 1",
            "DROP TABLE t",
            "CREATE TABLE u (a)",
        ),
        *("CREATE TEMP VIEW t AS SELECT 1", "ATTACH ':memory:' AS m", "PRAGMA user_version", "VACUUM INTO '/tmp/x'"),
        *("SELECT load_extension('x')", "SELECT random()", "SELECT printf('%.*c', 900000000, 'x')", "BEGIN"),
        *("SELECT zeroblob(100000000)", "SELECT 1; SELECT 2", "SELECT 1 WHERE " + "(" * 500 + "1" + ")" * 500),
        *("SELECT * FROM pragma_table_info('t')", "REINDEX", "ANALYZE", "SELECT fts3_tokenizer('x')"),
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n",
        "WITH RECURSIVE n(x) AS (SELECT 'aaaaaaaa' UNION ALL SELECT x || x FROM n) SELECT x FROM n",
        *("SELECT \x00", "\ud800", "", "-- nothing", "SELECT ?", "SELECT * FROM t, t, t, t, t, t, t, t, t, t, t, t"),
    ],
)
def test_a_query_reads_and_nothing_else_within_limits(query: str) -> None:
    limits = QueryLimits(instructions=200_000, rows=1000, result_bytes=100_000)
    database = Database(TASK["schema"], TASK["rows"], limits)
    with pytest.raises(QueryRefused):
        database.run(query)
    assert database.run("SELECT count(*) FROM t")[1] == [(3,)]
    database.close()


def test_the_tool_shows_rows_and_tells_what_is_wrong() -> None:
    environment = TextToSql(shown_rows=2)

    async def main() -> list[str]:
        session = await environment.open(TASK)
        queries = ("SELECT a, b FROM t", "SELECT absent", "DROP TABLE t", "SELECT name FROM sqlite_master")
        texts = [await environment.call(session, "run_query", {"query": query}) for query in queries]
        await environment.close(session)
        await environment.aclose()
        return texts

    shown, *others = asyncio.run(main())
    assert json.loads(shown) == {"columns": ["a", "b"], "rows": [[1, "x"], [2, "y"]], "row_count": 3}
    assert others[0] == "error: no such column: absent"
    assert others[1] == "error: not authorized"
    assert json.loads(others[2])["rows"] == [["t"]]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schema": None}, 'no "schema"'),
        ({"rows": []}, '"rows" must be'),
        ({"reference_query": 1}, '"reference_query" must be'),
        ({"hidden_rows": {}}, '"hidden_rows" must be a list'),
        ({"schema": "CREATE TABEL t"}, "is not a database"),
        ({"rows": {"u": [[1]]}}, "is not a database"),
        ({"reference_query": "SELECT b FROM u"}, '"reference_query" does not run'),
    ],
)
def test_a_task_that_is_wrong_is_blamed(says: Says, changed: Json, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        score(says, "SELECT 1", **changed)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("```sql\nSELECT 1\n```", "SELECT 1"),
        ("```SQL\nSELECT 1;\n```\ntext\n``` sqlite\nSELECT 2\n```\n", "SELECT 2"),
        ("```python\nx\n```\n", None),
        ("```\nSELECT 1\n```", None),
        ("```sql\nSELECT 1", None),
        ("```" * 300_000, None),
        ("```\n" * 300_000, None),
    ],
)
def test_the_query_is_in_the_last_fence(text: str, query: str | None) -> None:
    assert last_query(text) == query


def test_the_order_counts_only_outside_of_parentheses_texts_and_comments() -> None:
    assert is_ordered("SELECT a FROM (SELECT 1 ORDER  BY 1) ORDER\nBY a")
    assert not is_ordered("SELECT row_number() OVER (ORDER BY a), ' order by ' FROM t -- order by a")


def test_nearly_equal_numbers_find_their_partners_in_any_order() -> None:
    rows = [(1.0000000001, "a"), (1.0, "b"), (None, b"x")]
    assert same_results(rows, [(1.0, "a"), (None, b"x"), (1.0000000001, "b")], ordered=False)
    assert not same_results(rows, [(1.0, "a"), (None, b"x"), (1.1, "b")], ordered=False)
    assert not same_results([(5_000_001,)], [(5_000_000,)], ordered=True)  # whole numbers exactly
    assert same_results([(5_000_000,)], [(5_000_000.1,)], ordered=True)
