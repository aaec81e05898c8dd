"""Data sets become tasks, line by line; a file of tasks is looked at."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.errors import InputError
from velodrome.exchange.api import export
from velodrome.exchange.data.preparing import Missing, PrepareOptions, PrepareResult, Template, prepare
from velodrome.exchange.data.validate import survey
from velodrome.records.rollout import encode

Json = dict[str, Any]


def test_a_template_is_filled_with_fields():
    row = {"q": "1 + 1", "n": 2, "meta": {"topic": {"name": "sums"}}, "a.b": "dotted", "list": [1, "x"]}
    row["braces"] = "{q} {{0.__class__}}"
    for text, filled in {
        "What is {q}?": "What is 1 + 1?",
        "{ q }{n}": "1 + 12",
        "{{q}} {q}": "{q} 1 + 1",
        "}}{{": "}{",
        "{meta.topic.name}/{a.b}": "sums/dotted",
        "{list} {meta}": '[1,"x"] {"topic":{"name":"sums"}}',
        "{braces}": "{q} {{0.__class__}}",
        "plain": "plain",
        "": "",
    }.items():
        assert Template(text, "--prompt").fill(row) == filled


def test_a_place_names_a_field_and_nothing_else():
    for name in ("q.__class__", "q.upper", "list.0", "none", "", "q!r", "q:>10", "0"):
        with pytest.raises((Missing, InputError)):
            Template(f"{{{name}}}", "--prompt").fill({"q": "x", "list": [1], "none": None})
    for text, at in (("a { b", 3), ("}", 1), ("{a} {}", 5), ("{a{b}}", 1)):
        with pytest.raises(InputError, match=f"--prompt, character {at}: a "):
            Template(text, "--prompt")


def prepared(folder: Path, source: str, **options: Any) -> tuple[PrepareResult, list[Json]]:
    to = folder / "tasks.jsonl"
    outcome = prepare(source, PrepareOptions(**{"to": to, "prompt": "What is {q}?", **options}))
    return outcome, [orjson.loads(line) for line in to.read_bytes().splitlines()]


def refusal(folder: Path, source: str, **options: Any) -> tuple[str, ...]:
    """The mistakes; nothing is written."""
    before = sorted(os.listdir(folder))
    with pytest.raises(InputError) as caught:
        prepared(folder, source, **options)
    assert sorted(os.listdir(folder)) == before
    return caught.value.problems


def write_parquet(path: Path, table: Any) -> str:
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, path)
    return str(path)


def jsonl(folder: Path, *rows: Any) -> str:
    path = folder / "rows.jsonl"
    path.write_bytes(b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows))
    return str(path)


def test_a_row_becomes_a_task(tmp_path: Path):
    source = jsonl(tmp_path, {"q": "1 + 1", "a": 2, "level": "easy", "name": 7, "unused": None})
    outcome, tasks = prepared(
        tmp_path, source, system="You like {level} sums.", answer="a", keep=("level",), id="name", agent="mine"
    )
    assert outcome == PrepareResult(rows=1, written=1, bad=0, notes=[])
    assert tasks == [
        {
            "id": "7",
            "responses_create_params": {
                "input": [
                    {"role": "system", "content": "You like easy sums."},
                    {"role": "user", "content": "What is 1 + 1?"},
                ]
            },
            "expected_answer": "2",
            "level": "easy",
            "agent_ref": {"name": "mine"},
        }
    ]


def prompts(tasks: list[Json]) -> list[str]:
    return [task["responses_create_params"]["input"][-1]["content"] for task in tasks]


def test_csv_is_read_with_quotes_line_ends_and_a_mark(tmp_path: Path):
    for name, mark in (("rows.csv", ","), ("rows.tsv", "\t")):
        text = '\ufeffq,a\r\n"1 + 1\nnow",2\r\n\r\n"say ""hi""",x\r\n'.replace(",", mark)
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        _, tasks = prepared(tmp_path, str(tmp_path / name), answer="a", overwrite=True)
        assert prompts(tasks) == ["What is 1 + 1\nnow?", 'What is say "hi"?']
        assert [task["expected_answer"] for task in tasks] == ["2", "x"]


def test_what_is_wrong_with_a_csv_is_told_with_its_line(tmp_path: Path):
    path = tmp_path / "rows.csv"
    for data, why in {
        b"q,a\n1,2,3\n": ":2: 3 values for 2 columns",
        b"q,q\n1,2\n": ":1: the first line names the columns, each once",
        b"": ":1: the first line names the columns, each once",
        b'q\n"open\n': ":2: not CSV from here on: ",
        b"q\n\xff\n": ": not UTF-8: ",
        b"q\n": ": no rows in it",
    }.items():
        path.write_bytes(data)
        assert refusal(tmp_path, str(path))[0].startswith(f"{path}{why}")


def test_parquet_is_read(tmp_path: Path):
    import pyarrow

    columns = {"q": ["1 + 1", "2 + 2"], "a": [2.5, 4.0], "when": [date(2026, 1, 2), None], "raw": [b"\xff", b""]}
    path = write_parquet(tmp_path / "rows.parquet", pyarrow.table(columns))
    _, tasks = prepared(tmp_path, path, answer="a", keep=("when",))
    assert prompts(tasks) == ["What is 1 + 1?", "What is 2 + 2?"]
    assert [(task["expected_answer"], task["when"]) for task in tasks] == [("2.5", "2026-01-02"), ("4.0", None)]
    assert "(it holds bytes)" in refusal(tmp_path, path, keep=("raw",), overwrite=True)[0]
    Path(path).write_bytes(b"no parquet")
    assert "cannot be read: " in refusal(tmp_path, path, overwrite=True)[0]


def test_mistakes_are_told_all_at_once_with_their_lines_and_nothing_is_written(tmp_path: Path):
    source = jsonl(tmp_path, {"q": "x"}, b"{\n", {"a": 1}, {"a": 1, "q": None}, b"[]\n", {"q": ""}, {})
    problems = refusal(tmp_path, source)
    assert problems[0].startswith(f"{source}:2: not JSON: ")
    assert problems[1:] == (
        f'{source}:3: no "q" in it, or it is null (there are: a)',
        f'{source}:4: no "q" in it, or it is null (there are: a, q)',
        f"{source}:5: a row is a JSON object",
        f'{source}:6: "q" is empty, so the prompt asks nothing',
        f'{source}:7: no "q" in it, or it is null (there are: no fields)',
        "nothing is written; --skip-bad leaves such rows out",
    )
    outcome, tasks = prepared(tmp_path, source, skip_bad=True)
    assert (prompts(tasks), outcome.bad) == (["What is x?"], 6)


def test_a_mistake_in_the_order_is_told(tmp_path: Path):
    source = jsonl(tmp_path, *[{"q": "x", "none": "", "t": [5]}] * 2)
    for options, why in (
        ({"prompt": "the same for all"}, "--prompt: no field in it"),
        ({"keep": ("agent_ref",)}, "--keep: agent_ref is set by the task itself"),
        ({"source": "nowhere.csv"}, "nowhere.csv: no such file"),
        ({"source": __file__}, "not a kind of data that is known here; .csv, .tsv"),
        ({"id": "q"}, "its id is that of an earlier row"),
        ({"answer": "nothing"}, 'no "nothing" in it'),
        ({"answer": "none"}, '"none" is empty'),
        ({"tools": "t"}, "is not a list of tools"),
        ({"tools": "tulz"}, '--tools: no row has "tulz"'),
    ):
        assert why in refusal(tmp_path, **{"source": source, **options})[0]


def test_a_shuffle_is_decided_by_the_seed_and_a_limit_draws_from_it(tmp_path: Path):
    source = jsonl(tmp_path, *({"q": number} for number in range(40)))

    def order(**options: Any) -> list[str]:
        return prompts(prepared(tmp_path, source, overwrite=True, **options)[1])

    plain, first, again, other = order(), *(order(shuffle=True, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == sorted(other) == sorted(plain)
    assert plain not in (first, other)
    assert (order(shuffle=True, seed=1, limit=5), order(limit=5)) == (first[:5], plain[:5])
    outcome, _ = prepared(tmp_path, jsonl(tmp_path, {"q": 1}, {"q": 2}, b"never looked at\n"), limit=2, overwrite=True)
    assert outcome == PrepareResult(rows=2, written=2, bad=0, notes=[])
    assert sorted(os.listdir(tmp_path)) == ["rows.jsonl", "tasks.jsonl"]


def test_tasks_are_not_overwritten_unless_asked(tmp_path: Path):
    source = jsonl(tmp_path, {"q": 1})
    (tmp_path / "tasks.jsonl").write_text("mine")
    with pytest.raises(InputError, match="overwrite"):
        prepared(tmp_path, source)
    with pytest.raises(InputError, match="the file that is read"):
        prepared(tmp_path, source, to=Path(source), overwrite=True)


TASK = {"responses_create_params": {"input": "Hi"}}


def test_a_survey_counts_what_is_there(tmp_path: Path):
    """Of endlessly many names the first."""
    tool = {"type": "function", "name": "add"}
    path = jsonl(
        tmp_path,
        {**TASK, "expected_answer": "1", "id": "a", "agent_ref": {"name": "mine"}},
        {**TASK, "expected_answer": 2, "id": "b"},
        {**TASK, "expected_answer": None, "id": "b", "flag": True},
        {"responses_create_params": {"input": [{"role": "user", "content": "x" * 90}], "instructions": "y" * 10}},
        {"responses_create_params": {"input": "Hi", "tools": [tool, {"type": "web_search"}]}, "more": [1]},
    )
    assert survey(Path(path)).summary() == {
        "tasks": 5,
        "bad": 0,
        "duplicates": 1,
        "missing_answers": 3,
        "prompt_characters": {"p50": 2, "p99": 100, "max": 100},
        "tools": {"add": 1, "web_search": 1},
        "agents": {"mine": 1},
        "fields": {
            "responses_create_params": {"object": 5},
            "expected_answer": {"text": 1, "number": 1, "null": 1},
            "id": {"text": 3},
            "agent_ref": {"object": 1},
            "flag": {"true or false": 1},
            "more": {"list": 1},
        },
    }
    path = jsonl(tmp_path, *({**TASK, f"field {at}": 1, "agent_ref": {"name": f"a{at}"}} for at in range(300)))
    summary = survey(Path(path)).summary()
    assert (len(summary["fields"]), len(summary["agents"]), summary["agents"]["(others)"]) == (200, 201, 100)


def test_a_survey_tells_every_line_that_is_no_task(tmp_path: Path):
    path = jsonl(tmp_path, TASK, b"{\n", {}, {"responses_create_params": {"input": ""}}, [1], {})
    result = survey(Path(path))
    lines = result.problems.lines()
    assert result.problems.count == 5
    assert [line.split(": ")[0] for line in lines] == [f"{path}:{number}" for number in (2, 3, 4, 5)]
    assert lines[1] == f'{path}:3: no "responses_create_params" (see docs/rollouts.md#task) (and 1 more like it)'


SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1 + 1?"}


def questions(tasks: list[Json]) -> list[Any]:
    return [task["responses_create_params"]["input"] for task in tasks]


def test_a_column_of_messages_that_stands_alone_is_the_conversation(tmp_path: Path):
    rows = [{"prompt": [SYSTEM, USER]}, {"prompt": [USER]}, {"prompt": "What is 2 + 2?"}]
    text = {"role": "user", "content": "What is 2 + 2?"}
    _, tasks = prepared(tmp_path, jsonl(tmp_path, *rows), prompt="{prompt}")
    assert questions(tasks) == [[SYSTEM, USER], [USER], [text]]
    source = jsonl(tmp_path, *rows[1:])
    _, tasks = prepared(tmp_path, source, prompt="{prompt}", system="Be brief.", overwrite=True)
    assert questions(tasks) == [[SYSTEM, USER], [SYSTEM, text]]


def test_a_null_in_arguments_is_kept_unless_a_column_of_one_type_added_it(tmp_path: Path):
    import pyarrow

    def turns(arguments: Json) -> list[Json]:
        calls = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}]
        return [{"role": "assistant", "content": "", "tool_calls": calls}, {"role": "user", "content": None} | USER]

    def arguments(source: str) -> list[str]:
        _, tasks = prepared(tmp_path, source, prompt="{prompt}", overwrite=True)
        return [question[0]["arguments"] for question in questions(tasks)]

    own, padded = [turns({"a": 1, "b": None}), turns({"b": 2})], [turns({"a": 1}), turns({"b": 2})]
    assert arguments(jsonl(tmp_path, *({"prompt": each} for each in own))) == ['{"a":1,"b":null}', '{"b":2}']
    column = pyarrow.array([orjson.dumps(each).decode() for each in own], pyarrow.json_())
    source = write_parquet(tmp_path / "json.parquet", pyarrow.table({"prompt": column}))
    assert arguments(source) == ['{"a":1,"b":null}', '{"b":2}']
    table = pyarrow.Table.from_pylist([{"prompt": each} for each in padded])
    assert arguments(write_parquet(tmp_path / "typed.parquet", table)) == ['{"a":1}', '{"b":2}']


def test_messages_that_cannot_be_asked_are_told(tmp_path: Path):
    for messages, options, why in (
        ([USER], {"prompt": "Q: {m}"}, '"m" is a list of messages, not text; use it alone: --prompt "{m}"'),
        ([SYSTEM, USER], {"system": "Hi"}, '"m" has a system message of its own; leave --system out'),
        ([{"role": "bot", "content": "x"}], {}, "\"m\" has a message of the role 'bot'"),
        ([{"role": "user", "content": None}], {}, '"m" has a message without content'),
        ([USER, {"role": "assistant", "content": "2"}], {}, '"m" ends with a message of the assistant'),
        ([{"role": "assistant", "tool_calls": [{}]}, USER], {}, '"m": tool_calls[0]: no function name'),
    ):
        source = jsonl(tmp_path, {"m": messages, "q": "x"})
        assert refusal(tmp_path, source, **{"prompt": "{m}", **options})[0].startswith(f"{source}:1: {why}")


CHAT_TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
FLAT_TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}


def test_a_column_of_tools_is_offered(tmp_path: Path):
    for tools in ([CHAT_TOOL], orjson.dumps([CHAT_TOOL]).decode(), [FLAT_TOOL]):
        source = jsonl(tmp_path, {"q": "x", "t": tools}, {"q": "y"})
        _, tasks = prepared(tmp_path, source, tools="t", overwrite=True)
        assert [task["responses_create_params"].get("tools") for task in tasks] == [[FLAT_TOOL], None]


EARLIER = [
    {"role": "user", "content": "1 + 1?"},
    {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a":0.25}', "status": "completed"},
    {"type": "function_call_output", "call_id": "c", "output": "2"},
    {"role": "assistant", "content": "2"},
]


GRPO = {"answer": "expected_answer", "tools": "tools", "id": "task"}
VERL = {"answer": "reward_model.ground_truth", "tools": "extra_info.tools", "id": "extra_info.task"}


@pytest.mark.parametrize(("file", "options"), [("grpo/train.jsonl", GRPO), ("verl/train.parquet", VERL)])
@pytest.mark.parametrize("earlier", [[], EARLIER], ids=["texts", "calls"])
def test_our_own_exports_are_read_back_as_the_tasks_they_came_from(
    tmp_path: Path, file: str, options: dict[str, str], earlier: list[Json]
):
    name = file.partition("/")[0]
    task = {
        "id": "sum",
        "responses_create_params": {"input": [SYSTEM, *earlier, USER], "tools": [FLAT_TOOL]},
        "expected_answer": "2",
    }
    answer = {"output": [{"role": "assistant", "content": "2"}], "response": {"content": "2"}, "usage": {}}
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_bytes(encode({**task, **answer, "reward": 1.0, "meta": {"key": "sum/0"}}))
    export(name, rollouts, tmp_path / name)
    outcome, tasks = prepared(tmp_path, str(tmp_path / file), prompt="{prompt}", **options)
    assert (outcome.bad, tasks) == (0, [task])


def test_without_datasets_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="the package datasets is not installed; pip install datasets"):
        prepared(tmp_path, "hf:some/set")
