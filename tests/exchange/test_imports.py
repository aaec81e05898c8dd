"""Other people's files become rollouts and tasks; our own come back as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.api.exchanging import export
from velodrome.errors import InputError
from velodrome.exchange.export.nemo_gym import record
from velodrome.exchange.imports import from_nemo_gym
from velodrome.exchange.imports.importing import ImportOptions, ImportResult, import_file
from velodrome.records.rollout import make_rollout
from velodrome.records.task import digest

Json = dict[str, Any]

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
THEIRS: Json = {
    "responses_create_params": {
        "input": [{"content": "What is 37 + 58?", "role": "user", "type": "message"}],
        "instructions": None,
        "temperature": None,
        "tools": [],
    },
    "response": {
        "id": "resp_1",
        "created_at": 1786127168.0,
        "model": "policy_model",
        "object": "response",
        "status": None,
        "output": [
            {"id": "rs_1", "summary": [], "type": "reasoning", "encrypted_content": None},
            {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":37,"b":58}'},
            {"type": "function_call_output", "call_id": "c1", "output": "95"},
            {
                **TOKENS,
                "id": "msg_1",
                "content": [{"annotations": [], "text": "It is 95.", "type": "output_text", "logprobs": None}],
                "role": "assistant",
                "status": "completed",
                "type": "message",
            },
        ],
        "usage": {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5},
    },
    "reward": 1.0,
    "expected_answer": "95",
    "extracted_answer": "95",
    "_ng_task_index": 4,
    "_ng_rollout_index": 2,
    "agent_ref": {"name": "math_agent"},
}


CONTENT = digest(
    {"input": THEIRS["responses_create_params"]["input"], "tools": [], "expected_answer": "95"},
)


def lines(*rows: Any) -> bytes:
    return b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows)


def imported(folder: Path, form: str, *rows: Any, **options: Any) -> tuple[ImportResult, list[Any]]:
    source, to = folder / "theirs.jsonl", folder / "ours.jsonl"
    source.write_bytes(lines(*rows))
    outcome = import_file(form, source, ImportOptions(to=to, **options))
    return outcome, [orjson.loads(line) for line in to.read_bytes().splitlines()]


def test_a_rollout_of_nemo_gym_becomes_one_of_ours(tmp_path: Path):
    outcome, rows = imported(tmp_path, "nemo_gym", THEIRS)
    assert outcome == ImportResult(lines=1, written=1, repeated=0, bad=0, notes=[])
    assert rows == [
        {
            "responses_create_params": {
                "input": [{"content": "What is 37 + 58?", "role": "user", "type": "message"}],
                "tools": [],
            },
            "output": [
                {"role": "assistant", "tool_calls": [{"id": "c1", "name": "add", "arguments": '{"a":37,"b":58}'}]},
                {"role": "tool", "tool_call_id": "c1", "content": "95", "name": "add"},
                {"role": "assistant", "content": "It is 95.", **TOKENS},
            ],
            "response": {"id": "resp_1", "model": "policy_model", "content": "It is 95."},
            "usage": {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5},
            "reward": 1.0,
            "expected_answer": "95",
            "extracted_answer": "95",
            "agent_ref": {"name": "math_agent"},
            "meta": {
                "key": f"{CONTENT}/2",
                "task_index": 4,
                "rollout_index": 2,
                "agent": "math_agent",
                "schema": 1,
                "scored": ["reward"],
            },
        }
    ]


def without(*names: str, **more: Any) -> Json:
    return {**{name: value for name, value in THEIRS.items() if name not in names}, **more}


def task_of_key(row: Json) -> str:
    return str(row["meta"]["key"].rpartition("/")[0])


def test_the_key_is_the_tasks_own_name_else_its_content(tmp_path: Path):
    unnumbered = without("_ng_task_index", "_ng_rollout_index")
    _, rows = imported(tmp_path, "nemo_gym", without(id="own"), THEIRS, unnumbered, unnumbered)
    assert [row["meta"]["key"] for row in rows] == ["own/2", *(f"{CONTENT}/{repeat}" for repeat in (2, 0, 1))]


def test_the_same_task_has_one_key_in_two_files_and_another_task_has_another(tmp_path: Path):
    def request(text: str, **more: Any) -> Json:
        return {"input": [{"role": "user", "content": text}], **more}

    one = [without(responses_create_params=request(f"q{n}"), _ng_task_index=n, expected_answer="1") for n in (0, 1, 2)]
    two = [without(responses_create_params=request(f"r{n}"), _ng_task_index=n, expected_answer="1") for n in (0, 1)]
    two.append(without(responses_create_params=request("q2", temperature=0.1), _ng_task_index=2, expected_answer="1"))
    two.append(without(responses_create_params=request("q1"), _ng_task_index=3, expected_answer="2"))
    first = [task_of_key(row) for row in imported(tmp_path, "nemo_gym", *one)[1]]
    second = [task_of_key(row) for row in imported(tmp_path, "nemo_gym", *two, overwrite=True)[1]]
    assert [task_of_key(row) for row in imported(tmp_path, "nemo_gym", *one, overwrite=True)[1]] == first
    assert len({*first, *second}) == 6
    assert set(first) & set(second) == {first[2]} == {second[2]}


def test_what_a_line_does_not_say_is_found_elsewhere(tmp_path: Path):
    """The task without a prompt is its reference, the agent can be named, and a missing reward is deferred."""
    rows = [without("reward", responses_create_params={"input": []}, verifier_metadata={"level": n}) for n in (1, 2)]
    _, result = imported(tmp_path, "nemo_gym", *rows, agent="mine")
    assert len({task_of_key(row) for row in result}) == 2
    told = [(row["reward"], row["meta"]["verification"], row["meta"]["agent"]) for row in result]
    assert told == [(None, "deferred", "mine")] * 2


def test_tasks_of_nemo_gym_are_tasks_of_ours_and_each_is_there_once(tmp_path: Path):
    task = {
        "responses_create_params": {"input": "Hi", "temperature": None},
        "verifier": {"x": 1},
        "_ng_task_index": 3,
        "agent_ref": {"name": "a"},
    }
    outcome, rows = imported(tmp_path, "nemo_gym", task, task, kind="tasks")
    assert rows == [{"responses_create_params": {"input": "Hi"}, "verifier": {"x": 1}, "agent_ref": {"name": "a"}}]
    assert (outcome.written, outcome.repeated) == (1, 1)


def test_mistakes_are_told_all_at_once_with_their_lines_and_nothing_is_written(tmp_path: Path):
    with pytest.raises(InputError) as caught:
        imported(
            tmp_path,
            "nemo_gym",
            THEIRS,
            b"{\n",
            without("response"),
            without(reward="high"),
            without("response"),
            without(response={"output": 5}),
            b"[]\n",
            without(_velodrome={"meta": 5}),
            without(_velodrome=7),
        )
    source = tmp_path / "theirs.jsonl"
    report = caught.value.problems
    assert report[0].startswith(f"{source}:2: not JSON: ")
    assert report[1:5] == (
        f'{source}:3: no "response" in it; a file of tasks is imported with --as tasks (and 1 more like it)',
        f"{source}:4: \"reward\" is not a number but 'high'",
        f'{source}:6: no list "response.output" in it',
        f"{source}:7: a task is a JSON object, not a list (see docs/rollouts.md#task)",
    )
    assert report[5].startswith(f'{source}:8: "_velodrome" is not what velo export writes there')
    assert report[6].startswith(f"{source}:9: not a line of this format (")
    assert report[7:] == ("nothing is written; --skip-bad leaves such lines out",)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.jsonl"]


def test_the_list_of_mistakes_is_bounded_and_bad_lines_can_be_skipped(tmp_path: Path):
    rows = [without(reward=f"word {number}") for number in range(100)]
    with pytest.raises(InputError) as caught:
        imported(tmp_path, "nemo_gym", *rows)
    assert len(caught.value.problems) == 22
    assert caught.value.problems[20] == "and 80 more places with mistakes of other kinds"
    outcome, rows = imported(tmp_path, "nemo_gym", b"nonsense\n", THEIRS, skip_bad=True)
    assert (len(rows), outcome.bad, len(outcome.notes)) == (1, 1, 1)


def test_a_file_with_nothing_in_it_and_a_format_that_is_none_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match="nothing in it to import"):
        imported(tmp_path, "nemo_gym")
    with pytest.raises(InputError, match="no format 'x' to import; there are nemo_gym, openai_chat"):
        imported(tmp_path, "x", THEIRS)


# There and back


def message(content: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    text = st.text(max_size=10)
    parts = st.fixed_dictionaries(
        {"role": st.just("assistant")},
        optional={
            "content": content,
            "reasoning_content": text,
            "reasoning_encrypted": text,
            "refusal": text,
            "tool_calls": st.lists(st.fixed_dictionaries({"id": text, "name": text, "arguments": text}), max_size=2),
            "annotations": st.lists(st.just({"type": "x"}), max_size=1),
            **{name: st.lists(st.integers(0, 9), max_size=2) for name in TOKENS},
        },
    )
    tool = st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": text, "content": text})
    user = st.fixed_dictionaries({"role": st.sampled_from(["user", "system", "developer"]), "content": text})
    other = st.fixed_dictionaries({"role": st.just("other"), "item": st.dictionaries(text, text, max_size=2)})
    return parts | tool | user | other


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.text(max_size=5) | st.sampled_from(["agent_ref", "id", "usage", "accuracy", "reward"])
ROWS = st.fixed_dictionaries(
    {
        "responses_create_params": st.fixed_dictionaries(
            {"input": st.just("Hi")}, optional={"temperature": VALUES, "tools": st.just([]), "seed": st.none()}
        ),
        "output": st.lists(message(st.text(max_size=10)), max_size=4),
        "response": st.fixed_dictionaries(
            {"content": st.text(max_size=5)}, optional={name: st.text(max_size=5) for name in ("id", "model", "status")}
        ),
        "usage": st.dictionaries(st.sampled_from(["input_tokens", "total_tokens", "x"]), st.integers(0, 99)),
        "reward": st.none() | st.floats(0, 1),
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


@settings(max_examples=80, deadline=None)
@given(parts=ROWS)
def test_every_rollout_comes_back_from_nemo_gym_as_it_was(parts: Json):
    fields = {name: value for name, value in parts.pop("fields").items() if name not in parts}
    meta = parts.pop("meta")
    row = {**parts, **fields, "meta": meta}
    before = orjson.dumps(row)
    sent = orjson.loads(orjson.dumps(record(row, 0, 0)))
    if "agent_ref" in sent and not from_nemo_gym.agent_of(sent):
        return  # an agent_ref that no reader of theirs takes
    assert from_nemo_gym.rollout(sent) == row
    assert orjson.dumps(row) == before


def test_a_file_of_rollouts_comes_back_byte_for_byte(tmp_path: Path):
    response = {**THEIRS["response"], "status": "completed"}
    task = {"responses_create_params": {"input": "What is 37 + 58?"}, "id": "sum", "reward": 5, "output": "mine"}
    rows = []
    for repeat, score in enumerate(({"reward": 1.0, "accuracy": 0.5}, None)):
        meta = {"key": f"sum/{repeat}", "task_index": 7, "rollout_index": repeat, "agent": "a", "schema": 1}
        result = {**task, "response": response, **(score or {})}
        rows.append(make_rollout(task, result, meta, deferred=score is None))
    sent = [record(row, 7, repeat) for repeat, row in enumerate(rows)]
    imported(tmp_path, "nemo_gym", *sent)
    assert (tmp_path / "ours.jsonl").read_bytes() == lines(*rows)


def kept(key: str) -> Json:
    task = {"responses_create_params": {"input": "Hi"}}
    return make_rollout(task, {**task, "response": {}, "reward": 1.0}, {"key": key, "schema": 1})


def test_only_a_rollout_whose_key_was_there_before_is_renamed_and_told(tmp_path: Path):
    rows = [kept(key) for key in ("t/0", "t/0", "t/1", "t/2", "u/0", "t/1")]
    outcome, back = imported(tmp_path, "nemo_gym", *[record(row, 0, place) for place, row in enumerate(rows)])
    assert [row["meta"]["key"] for row in back] == ["t/0", "t/3", "t/1", "t/2", "u/0", "t/4"]
    assert [*back[:1], *back[2:5]] == [*rows[:1], *rows[2:5]]
    source = tmp_path / "theirs.jsonl"
    assert (outcome.repeated, outcome.renamed) == (
        2,
        [
            f"{source}:2: its key t/0 was there before; it is t/3 now",
            f"{source}:6: its key t/1 was there before; it is t/4 now",
        ],
    )


def test_what_an_import_would_refuse_is_not_exported_but_told_with_its_key(tmp_path: Path):
    rows = [kept(f"t/{repeat}") for repeat in range(4)]
    rows[1]["reward"] = "1.0"
    rows[2]["responses_create_params"] = {"input": 5}
    rows[3]["meta"]["key"] = f"t/{10**30}"
    source, to = tmp_path / "r.jsonl", tmp_path / "theirs.jsonl"
    source.write_bytes(lines(*rows))
    outcome = export("nemo_gym", source, to)
    assert [note for note in outcome.notes if note.endswith("; left out")] == [
        "rollout t/1: \"reward\" is not a number but '1.0'; left out",
        'rollout t/2: "responses_create_params.input" is a text that is not empty, or a list of messages '
        "(see docs/rollouts.md#task); left out",
        f"rollout t/{10**30}: it cannot be written: Integer exceeds 64-bit range; left out",
    ]
    import_file("nemo_gym", to, ImportOptions(to=tmp_path / "back.jsonl"))
    assert (tmp_path / "back.jsonl").read_bytes() == lines(rows[0])


# Logs of chat completions

ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
REQUEST = {
    "model": "gpt-x",
    "stream": False,
    "temperature": 0.5,
    "max_tokens": 9,
    "tools": [ADD],
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 1?"}],
}


def choice(text: str | None, **more: Any) -> Json:
    return {"index": 0, "message": {"role": "assistant", "content": text, **more}, "finish_reason": "stop"}


RESPONSE = {
    "id": "chatcmpl-1",
    "model": "gpt-x-1",
    "choices": [choice("2")],
    "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
}
ASKED = {
    "temperature": 0.5,
    "input": REQUEST["messages"],
    "max_output_tokens": 9,
    "tools": [{"strict": False, "type": "function", "name": "add", "parameters": {"type": "object"}}],
}


def test_a_request_with_its_answer_becomes_a_rollout_that_waits_for_its_score(tmp_path: Path):
    _, [row] = imported(tmp_path, "openai_chat", {"request": REQUEST, "response": RESPONSE}, agent="mine")
    key = row["meta"].pop("key")
    assert key.endswith("/0")
    assert row == {
        "responses_create_params": ASKED,
        "output": [{"role": "assistant", "content": "2"}],
        "response": {"id": "chatcmpl-1", "model": "gpt-x-1", "status": "completed", "content": "2"},
        "usage": {
            "input_tokens": 9,
            "output_tokens": 1,
            "total_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
        "reward": None,
        "meta": {
            "task_index": 0,
            "rollout_index": 0,
            "agent": "mine",
            "schema": 1,
            "verification": "deferred",
            "scored": [],
        },
    }


def test_calls_with_the_same_request_and_further_choices_are_repeats_of_one_task(tmp_path: Path):
    two = {**RESPONSE, "choices": [choice("2"), choice("two")]}
    other = {**REQUEST, "messages": [{"role": "user", "content": "2 + 2?"}]}
    _, rows = imported(
        tmp_path,
        "openai_chat",
        {"request": {**REQUEST, "model": "gpt-y"}, "response": two},
        {"request": other, "response": RESPONSE},
        {"request": REQUEST, "response": RESPONSE},
    )
    tasks = [row["meta"]["key"].rpartition("/") for row in rows]
    assert [(task == tasks[0][0], int(repeat)) for task, _, repeat in tasks] == [
        (True, 0),
        (True, 1),
        (False, 0),
        (True, 2),
    ]
    assert [row["meta"]["task_index"] for row in rows] == [0, 0, 1, 0]
    assert [row["response"]["content"] for row in rows] == ["2", "two", "2", "2"]
    assert [row["usage"].get("total_tokens") for row in rows] == [10, None, 10, 10]


def test_every_shape_of_a_log_gives_the_same_rollout(tmp_path: Path):
    conversation = {**REQUEST, "messages": [*REQUEST["messages"], {"role": "assistant", "content": "2"}]}
    shapes = [
        {"request": REQUEST, "response": RESPONSE},
        {"custom_id": "one", "body": REQUEST, "response": {"status_code": 200, "body": RESPONSE}},
        {**RESPONSE, "messages": REQUEST["messages"], "tools": [ADD]},
        {"messages": conversation["messages"], "tools": [ADD], "expected_answer": "2"},
    ]
    _, rows = imported(tmp_path, "openai_chat", *shapes)
    assert [row["output"] for row in rows] == [[{"role": "assistant", "content": "2"}]] * 4
    assert [row["responses_create_params"]["input"] for row in rows] == [REQUEST["messages"]] * 4
    assert [row["responses_create_params"]["tools"] for row in rows] == [ASKED["tools"]] * 4
    assert [row["reward"] for row in rows] == [None] * 4
    assert rows[1]["id"] == "one"
    assert rows[1]["meta"]["key"] == rows[0]["meta"]["key"].replace("/0", "/1")  # a custom_id numbers lines, not tasks
    assert rows[3]["expected_answer"] == "2"


def test_a_conversation_is_split_after_the_last_question_with_its_tool_calls(tmp_path: Path):
    calls = [{"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
    talk = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
        {"role": "assistant", "content": "2"},
    ]
    _, [row] = imported(tmp_path, "openai_chat", {"messages": talk})
    assert row["responses_create_params"]["input"] == talk[:3]
    assert row["output"] == [
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "add", "arguments": "{}"}]},
        {"role": "tool", "tool_call_id": "c", "content": "2", "name": "add"},
        {"role": "assistant", "content": "2"},
    ]


def test_questions_of_a_log_become_tasks(tmp_path: Path):
    outcome, rows = imported(
        tmp_path,
        "openai_chat",
        {"request": REQUEST, "response": RESPONSE},
        {"request": REQUEST},
        {"messages": [{"role": "user", "content": "Hi"}], "expected_answer": "Hello"},
        kind="tasks",
        agent="mine",
    )
    assert rows == [
        {"responses_create_params": ASKED, "agent_ref": {"name": "mine"}},
        {
            "expected_answer": "Hello",
            "responses_create_params": {"input": [{"role": "user", "content": "Hi"}]},
            "agent_ref": {"name": "mine"},
        },
    ]
    assert outcome.repeated == 1


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (5, "a line of a log is a JSON object"),
        ({}, 'neither "request" and "response" nor a list "messages" in it'),
        ({"request": {}}, 'no list "messages" in the request'),
        ({"request": REQUEST}, "no answer in it; questions alone are imported with --as tasks"),
        ({"request": REQUEST, "response": {"error": "429"}}, "the call has no answer but '429'"),
        ({"request": REQUEST, "response": {}}, 'no "choices" in the response'),
        ({"request": REQUEST, "response": {"choices": [5]}}, 'chat completion: no "choices[0].message"'),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "no question in it"),
        ({"messages": [5]}, 'neither "request" and "response" nor'),
    ],
)
def test_a_line_that_is_no_call_is_told(tmp_path: Path, line: Any, why: str):
    with pytest.raises(InputError) as caught:
        imported(tmp_path, "openai_chat", line)
    assert caught.value.problems[0].startswith(f"{tmp_path / 'theirs.jsonl'}:1: {why}")
