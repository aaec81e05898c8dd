"""Data sets become tasks, line by line; a file of tasks is looked at."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.api.exchanging import export
from velodrome.errors import InputError
from velodrome.exchange.data.preparing import PrepareOptions, PrepareResult, prepare
from velodrome.exchange.data.template import Missing, Template
from velodrome.exchange.data.validate import survey
from velodrome.records.rollout import encode

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("What is {q}?", "What is 1 + 1?"),
        ("{ q }{n}", "1 + 12"),
        ("{{q}} {q}", "{q} 1 + 1"),
        ("}}{{", "}{"),
        ("{meta.topic.name}/{a.b}", "sums/dotted"),
        ("{list} {meta}", '[1,"x"] {"topic":{"name":"sums"}}'),
        ("{braces}", "{q} {{0.__class__}}"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_a_template_is_filled_with_fields(text: str, filled: str):
    row = {"q": "1 + 1", "n": 2, "meta": {"topic": {"name": "sums"}}, "a.b": "dotted", "list": [1, "x"]}
    row["braces"] = "{q} {{0.__class__}}"
    assert Template(text, "--prompt").fill(row) == filled


@pytest.mark.parametrize("name", ["q.__class__", "q.upper", "list.0", "none", "", "q!r", "q:>10", "0"])
def test_a_place_names_a_field_and_nothing_else(name: str):
    with pytest.raises((Missing, InputError)):
        Template(f"{{{name}}}", "--prompt").fill({"q": "x", "list": [1], "none": None})


@pytest.mark.parametrize(("text", "at"), [("a { b", 3), ("}", 1), ("{a} {}", 5), ("{a{b}}", 1)])
def test_a_brace_alone_is_told_with_its_place(text: str, at: int):
    with pytest.raises(InputError, match=f"--prompt, character {at}: a "):
        Template(text, "--prompt")


@settings(deadline=None)
@given(st.dictionaries(st.text("ab.", min_size=1, max_size=3), st.text(max_size=5), max_size=3), st.text(max_size=12))
def test_a_template_gives_a_text_or_says_what_is_wrong(row: Json, text: str):
    try:
        assert isinstance(Template(text, "--prompt").fill(row), str)
    except (Missing, InputError):
        pass


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


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv"])
def test_csv_is_read_with_quotes_line_ends_and_a_mark(tmp_path: Path, name: str):
    mark = "\t" if name.endswith("tsv") else ","
    text = '\ufeffq,a\r\n"1 + 1\nnow",2\r\n\r\n"say ""hi""",x\r\n'.replace(",", mark)
    (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    _, tasks = prepared(tmp_path, str(tmp_path / name), answer="a")
    assert prompts(tasks) == ["What is 1 + 1\nnow?", 'What is say "hi"?']
    assert [task["expected_answer"] for task in tasks] == ["2", "x"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"q,a\n1,2,3\n", ":2: 3 values for 2 columns"),
        (b"q,q\n1,2\n", ":1: the first line names the columns, each once"),
        (b"", ":1: the first line names the columns, each once"),
        (b'q\n"open\n', ":2: not CSV from here on: "),
        (b"q\n\xff\n", ": not UTF-8: "),
        (b"q\n", ": no rows in it"),
    ],
)
def test_what_is_wrong_with_a_csv_is_told_with_its_line(tmp_path: Path, data: bytes, why: str):
    path = tmp_path / "rows.csv"
    path.write_bytes(data)
    assert refusal(tmp_path, str(path))[0].startswith(f"{path}{why}")


def test_parquet_is_read(tmp_path: Path):
    import pyarrow

    columns = {"q": ["1 + 1", "2 + 2"], "a": [2.5, 4.0], "when": [date(2026, 1, 2), None], "raw": [b"\xff", b""]}
    path = write_parquet(tmp_path / "rows.parquet", pyarrow.table(columns))
    _, tasks = prepared(tmp_path, path, answer="a", keep=("when",))
    assert prompts(tasks) == ["What is 1 + 1?", "What is 2 + 2?"]
    assert [(task["expected_answer"], task["when"]) for task in tasks] == [("2.5", "2026-01-02"), ("4.0", None)]
    why = "a field that is kept has no form in JSON (it holds bytes)"
    assert why in refusal(tmp_path, path, keep=("raw",), overwrite=True)[0]
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


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"prompt": "the same for all"}, "--prompt: no field in it"),
        ({"keep": ("agent_ref",)}, "--keep: agent_ref is set by the task itself"),
        ({"keep": ("expected_answer",), "answer": "q"}, "--keep: expected_answer is set by the task itself"),
        ({"source": "nowhere.csv"}, "nowhere.csv: no such file"),
        ({"source": __file__}, "not a kind of data that is known here; .csv, .tsv"),
        ({"id": "q"}, "its id is that of an earlier row"),
        ({"keep": ("nothing",)}, 'no "nothing" in it'),
        ({"answer": "nothing"}, 'no "nothing" in it'),
        ({"answer": "none"}, '"none" is empty'),
    ],
)
def test_a_mistake_in_the_order_is_told(tmp_path: Path, options: Json, why: str):
    source = jsonl(tmp_path, *[{"q": "x", "none": ""}] * 2)
    assert why in refusal(tmp_path, options.pop("source", source), **options)[0]


def test_a_shuffle_is_decided_by_the_seed_and_a_limit_draws_from_it(tmp_path: Path):
    source = jsonl(tmp_path, *({"q": number} for number in range(40)))

    def order(**options: Any) -> list[str]:
        return prompts(prepared(tmp_path, source, overwrite=True, **options)[1])

    plain, first, again, other = order(), *(order(shuffle=True, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == sorted(other) == sorted(plain)
    assert plain not in (first, other)
    assert order(shuffle=True, seed=1, limit=5) == first[:5]
    assert order(limit=5) == plain[:5]
    assert sorted(os.listdir(tmp_path)) == ["rows.jsonl", "tasks.jsonl"]
    outcome, _ = prepared(tmp_path, jsonl(tmp_path, {"q": 1}, {"q": 2}, b"never looked at\n"), limit=2, overwrite=True)
    assert outcome == PrepareResult(rows=2, written=2, bad=0, notes=[])


def test_tasks_are_not_overwritten_unless_asked(tmp_path: Path):
    source = jsonl(tmp_path, {"q": 1})
    (tmp_path / "tasks.jsonl").write_text("mine")
    with pytest.raises(InputError, match="overwrite"):
        prepared(tmp_path, source)
    with pytest.raises(InputError, match="the file that is read"):
        prepared(tmp_path, source, to=Path(source), overwrite=True)


def test_without_datasets_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import sys

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="the package datasets is not installed; pip install datasets"):
        prepared(tmp_path, "hf:some/set")


TASK = {"responses_create_params": {"input": "Hi"}}


def test_a_survey_counts_what_is_there(tmp_path: Path):
    tool = {"type": "function", "name": "add"}
    path = jsonl(
        tmp_path,
        {**TASK, "expected_answer": "1", "id": "a", "agent_ref": {"name": "mine"}},
        {**TASK, "expected_answer": 2, "id": "b"},
        {**TASK, "expected_answer": None, "id": "b", "flag": True},
        {"responses_create_params": {"input": [{"role": "user", "content": "x" * 90}], "instructions": "y" * 10}},
        {"responses_create_params": {"input": "Hi", "tools": [tool, {"type": "web_search"}]}, "more": [1]},
    )
    result = survey(Path(path))
    assert result.summary() == {
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


def test_a_survey_tells_every_line_that_is_no_task(tmp_path: Path):
    path = jsonl(tmp_path, TASK, b"{\n", {}, {"responses_create_params": {"input": ""}}, [1], {})
    result = survey(Path(path))
    lines = result.problems.lines()
    assert result.problems.count == 5
    assert [line.split(": ")[0] for line in lines] == [f"{path}:{number}" for number in (2, 3, 4, 5)]
    assert lines[1] == f'{path}:3: no "responses_create_params" (see docs/rollouts.md#task) (and 1 more like it)'


def test_endlessly_many_names_are_bounded(tmp_path: Path):
    path = jsonl(
        tmp_path, *({**TASK, f"field {number}": 1, "agent_ref": {"name": f"a{number}"}} for number in range(300))
    )
    summary = survey(Path(path)).summary()
    assert len(summary["fields"]) == 200
    assert (len(summary["agents"]), summary["agents"]["(others)"]) == (201, 100)


SYSTEM, USER = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 1 + 1?"}


def questions(tasks: list[Json]) -> list[Any]:
    return [task["responses_create_params"]["input"] for task in tasks]


def test_a_column_of_messages_that_stands_alone_is_the_conversation(tmp_path: Path):
    rows = [{"prompt": [SYSTEM, USER]}, {"prompt": [USER]}, {"prompt": "What is 2 + 2?"}]
    _, tasks = prepared(tmp_path, jsonl(tmp_path, *rows), prompt="{prompt}")
    assert questions(tasks) == [[SYSTEM, USER], [USER], [{"role": "user", "content": "What is 2 + 2?"}]]
    source = jsonl(tmp_path, {"prompt": [USER]})
    _, tasks = prepared(tmp_path, source, prompt="{prompt}", system="Be brief.", overwrite=True)
    assert questions(tasks) == [[SYSTEM, USER]]


def test_an_earlier_turn_with_a_call_is_taken_as_such(tmp_path: Path):
    import pyarrow

    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    turns = [USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "2"}]
    source = write_parquet(tmp_path / "rows.parquet", pyarrow.Table.from_pylist([{"prompt": [*turns, USER]}]))
    _, tasks = prepared(tmp_path, source, prompt="{prompt}")
    assert questions(tasks) == [
        [
            USER,
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}', "status": "completed"},
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
            USER,
        ]
    ]


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


@pytest.mark.parametrize(
    ("messages", "options", "why"),
    [
        ([USER], {"prompt": "Q: {m}"}, '"m" is a list of messages, not text; use it alone: --prompt "{m}"'),
        ([USER], {"prompt": "{q}", "system": "{m}"}, '"m" is a list of messages, not text; use it alone'),
        ([SYSTEM, USER], {"system": "Hi"}, '"m" has a system message of its own; leave --system out'),
        ([{"role": "bot", "content": "x"}], {}, "\"m\" has a message of the role 'bot'"),
        ([{"role": "user", "content": None}], {}, '"m" has a message without content'),
        (
            [USER, {"role": "assistant", "content": "2"}],
            {},
            '"m" ends with a message of the assistant, so the question',
        ),
        ([{"role": "assistant", "tool_calls": [{}]}, USER], {}, '"m": tool_calls[0]: no function name'),
    ],
)
def test_messages_that_cannot_be_asked_are_told(tmp_path: Path, messages: Any, options: Json, why: str):
    source = jsonl(tmp_path, {"m": messages, "q": "x"})
    assert refusal(tmp_path, source, **{"prompt": "{m}", **options})[0].startswith(f"{source}:1: {why}")


CHAT_TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
FLAT_TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}


@pytest.mark.parametrize("tools", [[CHAT_TOOL], orjson.dumps([CHAT_TOOL]).decode(), [FLAT_TOOL]])
def test_a_column_of_tools_is_offered(tmp_path: Path, tools: Any):
    _, tasks = prepared(tmp_path, jsonl(tmp_path, {"q": "x", "t": tools}, {"q": "y"}), tools="t")
    assert [task["responses_create_params"].get("tools") for task in tasks] == [[FLAT_TOOL], None]


@pytest.mark.parametrize("tools", ["[", [5]])
def test_tools_that_are_none_are_refused(tmp_path: Path, tools: Any):
    source = jsonl(tmp_path, {"q": "x", "t": tools})
    assert "is not a list of tools" in refusal(tmp_path, source, tools="t")[0]
    assert refusal(tmp_path, source, tools="tulz") == ('--tools: no row has "tulz"',)


EARLIER = [
    {"role": "user", "content": "1 + 1?"},
    {
        "type": "function_call",
        "call_id": "c",
        "name": "add",
        "arguments": '{"a":0.25}',
        "status": "completed",
    },
    {"type": "function_call_output", "call_id": "c", "output": "2"},
    {"role": "assistant", "content": "2"},
]


@pytest.mark.parametrize(
    ("name", "file", "options"),
    [
        ("grpo", "train.jsonl", {"answer": "expected_answer", "tools": "tools", "id": "task"}),
        (
            "verl",
            "train.parquet",
            {"answer": "reward_model.ground_truth", "tools": "extra_info.tools", "id": "extra_info.task"},
        ),
    ],
)
@pytest.mark.parametrize("earlier", [[], EARLIER], ids=["texts", "calls"])
def test_our_own_exports_are_read_back_as_the_tasks_they_came_from(
    tmp_path: Path, name: str, file: str, options: dict[str, str], earlier: list[Json]
):
    task = {
        "id": "sum",
        "responses_create_params": {"input": [SYSTEM, *earlier, USER], "tools": [FLAT_TOOL]},
        "expected_answer": "2",
    }
    answer = {"output": [{"role": "assistant", "content": "2"}], "response": {"content": "2"}, "usage": {}}
    rollouts = tmp_path / "rollouts.jsonl"
    rollouts.write_bytes(encode({**task, **answer, "reward": 1.0, "meta": {"key": "sum/0"}}))
    export(name, rollouts, tmp_path / "data")
    outcome, tasks = prepared(tmp_path, str(tmp_path / "data" / file), prompt="{prompt}", **options)
    assert (outcome.bad, tasks) == (0, [task])
