"""Other people's files become rollouts and tasks; our own come back as they were."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import velodrome
from tests.interop import corpus
from velodrome.errors import InputError
from velodrome.exchange.api import export
from velodrome.exchange.export.chat import Unfit
from velodrome.exchange.export.nemo_gym import record
from velodrome.exchange.imports import from_nemo_gym
from velodrome.exchange.imports.importing import ImportOptions, ImportResult, import_file
from velodrome.records.rollout import make_rollout, task_of
from velodrome.records.task import digest
from velodrome.resources_servers.mcqa.app import Mcqa

Json = dict[str, Any]

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
QUESTION = [{"content": "What is 37 + 58?", "role": "user", "type": "message"}]
USAGE = {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
CALL = {"name": "add", "arguments": '{"a":37,"b":58}'}
TEXT = [{"annotations": [], "text": "It is 95.", "type": "output_text", "logprobs": None}]
SCORE = {"reward": 1.0, "expected_answer": "95", "extracted_answer": "95", "agent_ref": {"name": "math_agent"}}
THEIRS: Json = {
    "responses_create_params": {"input": QUESTION, "instructions": None, "temperature": None, "tools": []},
    "response": {
        "id": "resp_1",
        "created_at": 1786127168.0,
        "model": "policy_model",
        "object": "response",
        "status": None,
        "output": [
            {"id": "rs_1", "summary": [], "type": "reasoning", "encrypted_content": None},
            {"id": "fc_1", "type": "function_call", "call_id": "c1", **CALL},
            {"type": "function_call_output", "call_id": "c1", "output": "95"},
            {**TOKENS, "id": "msg_1", "content": TEXT, "role": "assistant", "status": "completed", "type": "message"},
        ],
        "usage": USAGE,
    },
    **SCORE,
    "_ng_task_index": 4,
    "_ng_rollout_index": 2,
}
ASKED_FOR = {"input": QUESTION, "tools": [], "expected_answer": "95"}
CONTENT = digest({**ASKED_FOR, "_ng_task_index": 4})


def lines(*rows: Any) -> bytes:
    return b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows)


def imported(folder: Path, form: str, *rows: Any, **options: Any) -> tuple[ImportResult, list[Any]]:
    source, to = folder / "theirs.jsonl", folder / "ours.jsonl"
    source.write_bytes(lines(*rows))
    outcome = import_file(form, source, ImportOptions(to=to, overwrite=True, **options))
    return outcome, [orjson.loads(line) for line in to.read_bytes().splitlines()]


def refusal(folder: Path, form: str, *rows: Any) -> tuple[str, ...]:
    """The mistakes, without the name of the file; nothing is written."""
    with pytest.raises(InputError) as caught:
        imported(folder, form, *rows)
    assert [path.name for path in folder.iterdir()] == ["theirs.jsonl"]
    return tuple(problem.removeprefix(f"{folder / 'theirs.jsonl'}") for problem in caught.value.problems)


def without(*names: str, **more: Any) -> Json:
    return {**{name: value for name, value in THEIRS.items() if name not in names}, **more}


def tasks(rows: list[Json]) -> list[str]:
    return [row["meta"]["key"].rpartition("/")[0] for row in rows]


def test_a_rollout_of_nemo_gym_becomes_one_of_ours(tmp_path: Path):
    outcome, rows = imported(tmp_path, "nemo_gym", THEIRS)
    assert outcome == ImportResult(lines=1, written=1, repeated=0, bad=0, notes=[])
    numbers = {"task_index": 4, "rollout_index": 2}
    assert rows == [
        {
            "responses_create_params": {"input": QUESTION, "tools": []},
            "output": [
                {"role": "assistant", "tool_calls": [{"id": "c1", **CALL}]},
                {"role": "tool", "tool_call_id": "c1", "content": "95", "name": "add"},
                {"role": "assistant", "content": "It is 95.", **TOKENS},
            ],
            "response": {"id": "resp_1", "model": "policy_model", "content": "It is 95."},
            "usage": USAGE,
            **SCORE,
            "meta": {
                "key": f"{CONTENT}/2",
                **numbers,
                "agent": "math_agent",
                "schema": 1,
                "outcome": "finished",
            },
        }
    ]


def test_the_key_is_the_tasks_own_name_else_its_content_else_its_reference(tmp_path: Path):
    unnumbered = without("_ng_task_index", "_ng_rollout_index")
    _, rows = imported(tmp_path, "nemo_gym", without(id="own"), THEIRS, unnumbered, unnumbered)
    keys = ["own/2", f"{CONTENT}/2", *(f"{digest(ASKED_FOR)}/{repeat}" for repeat in (0, 1))]
    assert [row["meta"]["key"] for row in rows] == keys
    bare = [without("reward", responses_create_params={"input": []}, verifier_metadata={"level": n}) for n in (1, 2)]
    _, rows = imported(tmp_path, "nemo_gym", *bare, agent="mine")
    assert len(set(tasks(rows))) == 2
    filled = [(row["reward"], row["meta"]["verification"], row["meta"]["agent"]) for row in rows]
    assert filled == [(None, "deferred", "mine")] * 2


def test_the_same_task_has_one_key_in_two_files_and_another_task_has_another(tmp_path: Path):
    def theirs(text: str, index: int, answer: str = "1", **sampling: Any) -> Json:
        params = {"input": [{"role": "user", "content": text}], **sampling}
        return without(responses_create_params=params, _ng_task_index=index, expected_answer=answer)

    one = [theirs(f"q{n}", n) for n in (0, 1, 2)]
    two = [theirs("r0", 0), theirs("r1", 1), theirs("q2", 2, temperature=0.1), theirs("q1", 3, "2")]
    first, second, again = (tasks(imported(tmp_path, "nemo_gym", *rows)[1]) for rows in (one, two, one))
    assert first == again
    assert len({*first, *second}) == 6
    assert set(first) & set(second) == {first[2]} == {second[2]}


def numbered(task: int, repeat: int, question: str = "Listen.", **more: Any) -> Json:
    params = {"input": [{"role": "user", "content": question}]}
    numbers = {"_ng_task_index": task, "_ng_rollout_index": repeat}
    return without("expected_answer", responses_create_params=params, **{**numbers, **more})


def test_tasks_with_different_numbers_are_never_repeats_and_one_number_of_a_run_is_one_task(tmp_path: Path):
    pairs = [(1, 0), (0, 1), (0, 0), (1, 1)]
    for own in ({}, {"id": "1"}):  # nothing but the number tells them apart; a number of theirs is in the file twice
        outcome, rows = imported(tmp_path, "nemo_gym", *[numbered(*pair, **own) for pair in pairs])
        first, second, third, fourth = tasks(rows)
        assert first == fourth != second == third
        assert (outcome.repeated, [row["meta"]["rollout_index"] for row in rows]) == (0, [0, 1, 0, 1])
        assert len(imported(tmp_path, "nemo_gym", *[numbered(*pair, **own) for pair in pairs], kind="tasks")[1]) == 2
    dealt = [numbered(0, repeat, question=f"Your hand: {repeat}") for repeat in range(3)]
    assert len(set(tasks(imported(tmp_path, "nemo_gym", *dealt)[1]))) == 1
    joined = [
        numbered(0, 0, question="One run"),
        numbered(0, 0, question="Another"),
        numbered(0, 1, question="Another"),
    ]
    first, second, third = tasks(imported(tmp_path, "nemo_gym", *joined)[1])
    assert first != second == third


def test_the_task_is_read_from_the_inputs_beside_the_rollouts(tmp_path: Path):
    given = numbered(0, 0, question="Count.", circles=[1, 2], agent_ref={"name": "counter"})
    for name in ("response", "reward", "extracted_answer"):
        del given[name]
    inputs = [{**given, "_ng_task_index": 1}, given]
    (tmp_path / "theirs_materialized_inputs.jsonl").write_bytes(lines(*inputs, b"{"))
    row = numbered(0, 0, question="Count.", expected_count=2)
    del row["agent_ref"]
    _, [known, unknown] = imported(tmp_path, "nemo_gym", row, {**row, "_ng_task_index": 2})
    assert known["meta"]["scored"] == ["reward", "extracted_answer", "expected_count"]
    assert known["meta"]["agent"] == "counter"
    task = {name: value for name, value in given.items() if not name.startswith("_ng")}
    assert task_of(known) == task
    assert "scored" not in unknown["meta"]
    _, [known, _] = imported(tmp_path, "nemo_gym", row, {**row, "_ng_task_index": 2}, kind="tasks")
    assert known == task


def test_scoring_refuses_imported_rollouts_without_the_answer_to_compare_with(tmp_path: Path):
    choice = {"options": [{"A": "94"}, {"B": "95"}], "expected_answer": "B"}
    whole = without(**choice, _ng_task_index=5)
    imported(tmp_path, "nemo_gym", whole, THEIRS, without("expected_answer", options=choice["options"]))
    source, scored = tmp_path / "ours.jsonl", tmp_path / "scored.jsonl"
    with pytest.raises(InputError) as refused:
        asyncio.run(velodrome.verify(source, Mcqa(), out=scored, progress=False))
    places = [problem.partition(",")[0] for problem in refused.value.problems]
    assert places == [f'{source}:3: no "expected_answer"']
    assert not scored.exists()
    imported(tmp_path, "nemo_gym", whole)
    run = asyncio.run(velodrome.verify(source, Mcqa(), out=scored, progress=False))
    assert (run.kept, run.failed) == (1, 0)


def test_tasks_of_nemo_gym_are_tasks_of_ours_and_each_is_there_once(tmp_path: Path):
    fields = {"verifier": {"x": 1}, "agent_ref": {"name": "a"}}
    task = {"responses_create_params": {"input": "Hi", "temperature": None}, "_ng_task_index": 3, **fields}
    outcome, rows = imported(tmp_path, "nemo_gym", task, task, kind="tasks")
    assert rows == [{"responses_create_params": {"input": "Hi"}, **fields}]
    assert (outcome.written, outcome.repeated) == (1, 1)


def test_mistakes_are_reported_all_at_once_with_their_lines_and_nothing_is_written(tmp_path: Path):
    bad = [
        b"{\n",
        without("response"),
        without(reward="high"),
        without("response"),
        without(response={"output": 5}),
        b"[]\n",
        without(_velodrome={"meta": 5}),
        without(_velodrome=7),
    ]
    problems = refusal(tmp_path, "nemo_gym", THEIRS, *bad)
    starts = (
        ":2: not JSON: ",
        ':3: no "response" in it; a file of tasks is imported with --as tasks (and 1 more like it)',
        ":4: \"reward\" is not a number but 'high'",
        ':6: no list "response.output" in it',
        ":7: a task is a JSON object, not a list",
        ':8: "_velodrome" is not what velo export writes there',
        "nothing is written; --skip-bad leaves such lines out",
    )
    assert [problem[: len(start)] for problem, start in zip(problems, starts, strict=True)] == list(starts)
    outcome, rows = imported(tmp_path, "nemo_gym", THEIRS, *bad, skip_bad=True)
    assert (len(rows), outcome.bad) == (1, len(bad))
    (tmp_path / "ours.jsonl").unlink()
    many = refusal(tmp_path, "nemo_gym", *(without(reward=f"word {number}") for number in range(100)))
    assert (len(many), many[20]) == (22, "and 80 more places with mistakes of other kinds")
    assert refusal(tmp_path, "nemo_gym") == (": nothing in it to import",)
    assert refusal(tmp_path, "x", THEIRS)[0].startswith("no format 'x' to import")


STEPS = [[{"role": "assistant", "content": "a"}], [{"role": "assistant", "content": "a"}] * 2]
WHOLE_STEPS = [{"output": step, "response": {"output": step}} for step in STEPS]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"response": {"output": STEPS}},
            '"response.output" has an entry for each step, as Aviary writes it; the last',
        ),
        ({"response": {"output": WHOLE_STEPS}}, '"response.output" has an entry for each step'),
        ({"response": WHOLE_STEPS}, '"response" has an entry for each step'),
        ({"output": STEPS}, '"output" has an entry for each step'),
        ({"output": WHOLE_STEPS}, '"output" has an entry for each step'),
        ({"output": [1]}, '"output" is not a list of objects'),
        ({"output": [{"role": "assistant", "tool_calls": ["x"]}]}, '"tool_calls" is not a list of objects'),
        ({"output": [{"role": "assistant", "tool_calls": "x"}]}, 'no list "tool_calls" in it'),
    ],
)
def test_a_rollout_of_steps_is_one_clear_line(tmp_path: Path, fields: Json, problem: str):
    row = {"responses_create_params": {"input": "Hi"}, "reward": 1.0, **fields}
    problems = refusal(tmp_path, "nemo_gym", row)
    assert (len(problems), problems[0].startswith(f":1: {problem}")) == (2, True), problems


WORD = st.text(max_size=10)
MESSAGE = (
    st.fixed_dictionaries(
        {"role": st.just("assistant")},
        optional={
            **dict.fromkeys(("content", "reasoning_content", "reasoning_encrypted", "refusal"), WORD),
            "tool_calls": st.lists(st.fixed_dictionaries({"id": WORD, "name": WORD, "arguments": WORD}), max_size=2),
            "annotations": st.lists(st.just({"type": "x"}), max_size=1),
            **{name: st.lists(st.integers(0, 9), max_size=2) for name in TOKENS},
        },
    )
    | st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": WORD, "content": WORD})
    | st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "developer"]), "content": WORD})
    | st.fixed_dictionaries({"role": st.just("other"), "item": st.dictionaries(WORD, WORD, max_size=2)})
)
NUMBER = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBER | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.text(max_size=5) | st.sampled_from(["agent_ref", "id", "usage", "accuracy", "reward"])
ROWS = st.fixed_dictionaries(
    {
        "responses_create_params": st.fixed_dictionaries(
            {"input": st.just("Hi")}, optional={"temperature": VALUES, "tools": st.just([]), "seed": st.none()}
        ),
        "output": st.lists(MESSAGE, max_size=4),
        "response": st.fixed_dictionaries({"content": WORD}, optional=dict.fromkeys(("id", "model", "status"), WORD)),
        "usage": st.dictionaries(st.sampled_from(["input_tokens", "total_tokens", "x"]), st.integers(0, 99)),
        "reward": st.floats(0, 1),
        "fields": st.dictionaries(NAMES, VALUES, max_size=3),
        "meta": st.fixed_dictionaries(
            {"key": st.just("a/0")},
            optional={
                "agent": st.text(max_size=5),
                "timing": st.just({"total_s": 0.5}),
                "shadowed": st.just({"meta": 1}),
                "verification": st.just("deferred"),
                "scored": st.just(["reward"]),
            },
        ),
    }
)


@settings(max_examples=50)
@given(parts=ROWS)
def test_every_rollout_comes_back_from_nemo_gym_as_it_was(parts: Json):
    fields = {name: value for name, value in parts.pop("fields").items() if name not in parts}
    meta = parts.pop("meta")
    row = {**parts, **fields, "meta": meta}
    before = orjson.dumps(row)
    try:
        sent = orjson.loads(orjson.dumps(record(row, 0, 0)))
    except Unfit:
        return
    if "agent_ref" in sent and not from_nemo_gym.agent_of(sent):
        return  # an agent_ref that no reader of theirs takes
    assert from_nemo_gym.restored_rollout(sent) == row
    assert orjson.dumps(row) == before


def kept(key: str) -> Json:
    task = {"responses_create_params": {"input": "Hi"}}
    return make_rollout(task, {**task, "response": {}, "reward": 1.0}, {"key": key, "schema": 1})


def test_only_a_rollout_whose_key_was_there_before_is_renamed_and_reported(tmp_path: Path):
    rows = [kept(key) for key in ("t/0", "t/0", "t/1", "t/2", "u/0", "t/1")]
    outcome, back = imported(tmp_path, "nemo_gym", *[record(row, 0, place) for place, row in enumerate(rows)])
    assert [row["meta"]["key"] for row in back] == ["t/0", "t/3", "t/1", "t/2", "u/0", "t/4"]
    assert [*back[:1], *back[2:5]] == [*rows[:1], *rows[2:5]]
    source = tmp_path / "theirs.jsonl"
    assert (outcome.repeated, outcome.renamed) == (
        2,
        [f"{source}:{line}: its key {old} was there before; it is {new} now"
         for line, old, new in ((2, "t/0", "t/3"), (6, "t/1", "t/4"))],
    )  # fmt: skip


def test_what_an_import_would_refuse_is_not_exported_but_named_with_its_key(tmp_path: Path):
    rows = [kept(f"t/{repeat}") for repeat in range(3)]
    rows[1]["reward"] = "1.0"
    rows[2]["responses_create_params"] = {"input": 5}
    source, to = tmp_path / "r.jsonl", tmp_path / "theirs.jsonl"
    source.write_bytes(lines(*rows))
    notes = [note for note in export("nemo_gym", source, to).notes if note.endswith("; left out")]
    starts = ('t/1: "reward" is not a number', 't/2: "responses_create_params.input" must be')
    assert [note.startswith(f"rollout {start}") for note, start in zip(notes, starts, strict=True)] == [True] * 2
    import_file("nemo_gym", to, ImportOptions(to=tmp_path / "back.jsonl"))
    assert (tmp_path / "back.jsonl").read_bytes() == lines(rows[0])


# Logs of chat completions

ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}]
REQUEST = {"model": "gpt-x", "stream": False, "temperature": 0.5, "max_tokens": 9, "tools": [ADD], "messages": TALK}
ASKED = {
    "temperature": 0.5,
    "input": TALK,
    "max_output_tokens": 9,
    "tools": [{"strict": False, "type": "function", "name": "add", "parameters": {"type": "object"}}],
}


def choice(text: str) -> Json:
    return {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}


COUNTS = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}
RESPONSE = {"id": "chatcmpl-1", "model": "gpt-x-1", "choices": [choice("2")], "usage": COUNTS}
ANSWER = {"role": "assistant", "content": "2"}


def test_a_request_with_its_answer_becomes_a_rollout_that_waits_for_its_score(tmp_path: Path):
    _, [row] = imported(tmp_path, "openai_chat", {"request": REQUEST, "response": RESPONSE}, agent="mine")
    assert row["meta"].pop("key").endswith("/0")
    counts = {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10}
    assert row.pop("usage").items() >= counts.items()
    assert row == {
        "responses_create_params": ASKED,
        "output": [ANSWER],
        "response": {"id": "chatcmpl-1", "model": "gpt-x-1", "status": "completed", "content": "2"},
        "reward": None,
        "meta": {
            "task_index": 0,
            "rollout_index": 0,
            "agent": "mine",
            "schema": 1,
            "verification": "deferred",
            "outcome": "finished",
            "scored": [],
        },
    }


def test_calls_with_the_same_request_and_further_choices_are_repeats_of_one_task(tmp_path: Path):
    two = {**RESPONSE, "choices": [choice("2"), choice("two")]}
    other = {**REQUEST, "messages": [{"role": "user", "content": "2 + 2?"}]}
    calls = ({**REQUEST, "model": "gpt-y"}, two), (other, RESPONSE), (REQUEST, RESPONSE)
    log = [{"request": request, "response": response} for request, response in calls]
    _, rows = imported(tmp_path, "openai_chat", *log)
    keys = [row["meta"]["key"].rpartition("/") for row in rows]
    repeats = [(task == keys[0][0], int(repeat)) for task, _, repeat in keys]
    assert repeats == [(True, 0), (True, 1), (False, 0), (True, 2)]
    assert [row["meta"]["task_index"] for row in rows] == [0, 0, 1, 0]
    assert [row["response"]["content"] for row in rows] == ["2", "two", "2", "2"]
    assert [row["usage"].get("total_tokens") for row in rows] == [10, None, 10, 10]


def test_every_shape_of_a_log_gives_the_same_rollout(tmp_path: Path):
    shapes = [
        {"request": REQUEST, "response": RESPONSE},
        {"custom_id": "one", "body": REQUEST, "response": {"status_code": 200, "body": RESPONSE}},
        {**RESPONSE, "messages": TALK, "tools": [ADD]},
        {"messages": [*TALK, ANSWER], "tools": [ADD], "expected_answer": "2"},
    ]
    _, rows = imported(tmp_path, "openai_chat", *shapes)
    for row in rows:
        params = row["responses_create_params"]
        assert (row["output"], params["input"], params["tools"]) == ([ANSWER], TALK, ASKED["tools"])
        assert row["reward"] is None
    assert rows[1]["id"] == "one"
    assert rows[1]["meta"]["key"] == rows[0]["meta"]["key"].replace("/0", "/1")  # a custom_id numbers lines, not tasks
    assert rows[3]["expected_answer"] == "2"


def test_a_conversation_is_split_after_the_last_question_with_its_tool_calls(tmp_path: Path):
    calls = [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
    asked = [{"role": role, "content": text} for role, text in (("user", "Hi"), ("assistant", "Hello"), ("user", "?"))]
    made = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]
    _, [row] = imported(tmp_path, "openai_chat", {"messages": [*asked, *made, ANSWER]})
    assert row["responses_create_params"]["input"] == asked
    assert row["output"] == [
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "add", "arguments": "{}"}]},
        {"role": "tool", "tool_call_id": "c", "content": "2", "name": "add"},
        ANSWER,
    ]


@pytest.mark.parametrize("arguments", ["object", "text"])
def test_what_sft_wrote_is_the_same_conversation_again(tmp_path: Path, arguments: str):
    written, again = tmp_path / "sft.jsonl", tmp_path / "again.jsonl"
    export("sft", [corpus.write(tmp_path)], written, arguments=arguments)
    import_file("openai_chat", written, ImportOptions(to=tmp_path / "back.jsonl"))
    export("sft", [tmp_path / "back.jsonl"], again, where="", arguments=arguments)
    first, second = ([orjson.loads(line) for line in path.read_bytes().splitlines()] for path in (written, again))
    assert [record["messages"] for record in second] == [record["messages"] for record in first]
    assert [functions(record) for record in second] == [functions(record) for record in first]


def functions(record: Json) -> Any:
    tools = record.get("tools")
    return orjson.loads(tools) if isinstance(tools, str) else tools


def test_questions_of_a_log_become_tasks(tmp_path: Path):
    asked = {"messages": [{"role": "user", "content": "Hi"}], "expected_answer": "Hello"}
    log = [{"request": REQUEST, "response": RESPONSE}, {"request": REQUEST}, asked]
    outcome, rows = imported(tmp_path, "openai_chat", *log, kind="tasks", agent="mine")
    named = {"agent_ref": {"name": "mine"}}
    assert rows == [
        {"responses_create_params": ASKED, **named},
        {"expected_answer": "Hello", "responses_create_params": {"input": asked["messages"]}, **named},
    ]
    assert outcome.repeated == 1


def test_a_line_that_is_no_call_is_refused(tmp_path: Path):
    for line, why in (
        (5, "a line of a log is a JSON object"),
        ({"messages": [5]}, 'neither "request" and "response" nor a list "messages" in it'),
        ({"request": {}}, 'no list "messages" in the request'),
        ({"request": REQUEST}, "no answer in it; questions alone are imported with --as tasks"),
        ({"request": REQUEST, "response": {"error": "429"}}, "the call has no answer but '429'"),
        ({"request": REQUEST, "response": {"choices": [5]}}, 'chat completion: no "choices[0].message"'),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "no question in it"),
    ):
        assert refusal(tmp_path, "openai_chat", line)[0].startswith(f":1: {why}")
