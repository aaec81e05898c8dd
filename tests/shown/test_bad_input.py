"""A mistake in the input gets one clear line, exit code 2, no traceback, and nothing is written over."""

from __future__ import annotations

import json
from typing import Any

import pytest

GOOD = {"responses_create_params": {"input": "What is 15% of 240?"}, "expected_answer": "36"}
LINE = json.dumps(GOOD)

BAD_ROWS = {
    "not json": ("{'a': 1}", "tasks.jsonl:2: not JSON"),
    "half a line": (LINE[:-20], "tasks.jsonl:2: not JSON"),
    "a list": ("[1, 2]", "tasks.jsonl:2: a task is a JSON object, not a list"),
    "null": ("null", "tasks.jsonl:2: a task is a JSON object, not null"),
    "no params": ('{"input": "x"}', 'tasks.jsonl:2: no "responses_create_params"'),
    "params text": (
        '{"responses_create_params": "x"}',
        'tasks.jsonl:2: "responses_create_params" must be an object, not a text',
    ),
    "no input": ('{"responses_create_params": {}}', 'tasks.jsonl:2: no "responses_create_params.input"'),
    "empty input": (
        '{"responses_create_params": {"input": ""}}',
        'tasks.jsonl:2: "responses_create_params.input" must be',
    ),
    "nested content": (
        '{"responses_create_params": {"input": [{"role": "user", "content": [["hi"]]}]}}',
        'tasks.jsonl:2: "responses_create_params.input[0].content" must be a text or a list of objects',
    ),
    "input number": (
        '{"responses_create_params": {"input": 7}}',
        'tasks.jsonl:2: "responses_create_params.input" must be',
    ),
    "input of texts": ('{"responses_create_params": {"input": ["x"]}}', "tasks.jsonl:2: a message of"),
    "nan": (LINE.replace('"36"', "NaN"), "tasks.jsonl:2: not JSON"),
    "agent_ref": (json.dumps({**GOOD, "agent_ref": "my_agent"}), 'tasks.jsonl:2: "agent_ref" must be an object'),
    "nul bytes": ("\x00" * 100, "tasks.jsonl:2: not JSON"),
    "nul in text": (LINE.replace("What", "Wh\x00at"), "tasks.jsonl:2: not JSON"),
    "deep nesting": ('{"a":' * 5000 + "1" + "}" * 5000, "tasks.jsonl:2: not JSON"),
    "unknown agent": (
        json.dumps({**GOOD, "agent_ref": {"name": "my_agnet"}}),
        "no agent is called 'my_agnet'; did you mean",
    ),
}


def refused(workplace: Any, command: str, words: str, *, lines: int = 1) -> None:
    """The command fails with exit code 2 and this, and leaves an output that was there as it was."""
    output = workplace.write("rollouts.jsonl", '{"meta":{"key":"old/0"}}\n')
    before = sorted(path.name for path in workplace.folder.iterdir())
    done = workplace.run(command)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) <= lines, done.stderr
    assert done.stdout == ""
    assert output.read_text() == '{"meta":{"key":"old/0"}}\n'
    assert sorted(path.name for path in workplace.folder.iterdir()) == before


COLLECT = "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl"


@pytest.mark.parametrize(("line", "words"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_a_bad_row_is_named_with_its_line(workplace: Any, line: str, words: str) -> None:
    workplace.scripted()
    workplace.write("tasks.jsonl", f"{LINE}\n{line}\n{LINE}\n")
    refused(workplace, COLLECT, words)


def test_a_line_of_fifty_megabytes_is_refused(workplace: Any) -> None:
    workplace.scripted()
    workplace.write("tasks.jsonl", LINE + "\n" + json.dumps({**GOOD, "blob": "x" * 50_000_000}) + "\n")
    refused(workplace, COLLECT, "tasks.jsonl:2: the line is longer than 32 MiB")


def test_every_kind_of_bad_row_is_told_at_once_and_the_same_kind_once(workplace: Any) -> None:
    workplace.scripted()
    workplace.write("tasks.jsonl", "\n".join([LINE, "[]", '{"a": 1}', "[]", "[]", LINE]) + "\n")
    refused(
        workplace,
        COLLECT,
        "tasks.jsonl:2: a task is a JSON object, not a list (see docs/rollouts.md#task) (and 2 more",
        lines=2,
    )
    refused(workplace, COLLECT, 'tasks.jsonl:3: no "responses_create_params"', lines=2)


DAPO = "resources_servers/math_with_judge/data/dapo17k_bytedtsinghua_train.jsonl"
COMMANDS = {
    "no input": ("ng_collect_rollouts +output_jsonl_fpath=rollouts.jsonl", "no input: give +input_jsonl_fpath"),
    "copies without workers": (
        "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl +speculate=true",
        "speculate: copies run on another worker; add num_workers, or executor=ray",
    ),
    "missing input": ("ng_collect_rollouts +input_jsonl_fpath=nowhere.jsonl", "nowhere.jsonl: no such file"),
    "data to be fetched": (
        f"ng_collect_rollouts +input_jsonl_fpath={DAPO}",
        f"to fetch it: python -m velodrome.resources_servers.math_with_judge.prepare --output {DAPO}",
    ),
    "input is a folder": (
        "mkdir d; ng_collect_rollouts +input_jsonl_fpath=d; c=$?; rmdir d; exit $c",
        "d: not a regular file",
    ),
    "same file": (COLLECT.replace("rollouts.jsonl", "tasks.jsonl"), "input and output are the same file"),
    "output name": (COLLECT.replace("rollouts.jsonl", "out.csv"), "out.csv: an output ends in .jsonl"),
    "unknown agent": (COLLECT + " +agent_name=my_agnet", "no agent is called 'my_agnet'; did you mean 'my_agent'?"),
    "unknown key": (COLLECT + " +num_sampels_in_parallel=3", "num_samples_in_parallel"),
    "bad count": (COLLECT + " +limit=-1", "limit: "),
    "bad parallel": (
        COLLECT + " +num_samples_in_parallel=lots",
        "num_samples_in_parallel: ",
    ),
    "dashes": (COLLECT + " --limits=2", 'unknown option --limits; did you mean "--limit"?'),
    "bad override": (COLLECT + " +limit=[1", "limit"),
    "missing config": (COLLECT + " +config_paths=[nowhere.yaml]", "nowhere.yaml"),
    "cyclic config": (COLLECT + " +config_paths=[a.yaml]", "a.yaml"),
    "cyclic references": (COLLECT + " +config_paths=[loop.yaml]", "loop"),
    "interpolation": (COLLECT + " +config_paths=[needs.yaml]", "nowhere_to_be_found"),
}


@pytest.mark.parametrize(("command", "words"), COMMANDS.values(), ids=COMMANDS.keys())
def test_a_bad_command_or_config_is_one_clear_line(workplace: Any, command: str, words: str) -> None:
    workplace.scripted()
    workplace.write("tasks.jsonl", LINE + "\n")
    workplace.write("a.yaml", "config_paths: [b.yaml]\n")
    workplace.write("b.yaml", "config_paths: [a.yaml]\n")
    workplace.write(
        "needs.yaml", "policy_model: {responses_api_models: {scripted_model: {answers: ['${nowhere_to_be_found}']}}}\n"
    )
    block = "{{responses_api_agents: {{simple_agent: {{model_server: {{type: responses_api_agents, name: {}}}}}}}}}\n"
    workplace.write("loop.yaml", "loop1: " + block.format("loop2") + "loop2: " + block.format("loop1"))
    refused(workplace, command, words)


def test_every_misspelt_key_of_a_block_is_told_at_once_with_the_nearest_name(workplace: Any) -> None:
    workplace.scripted()
    workplace.write("tasks.jsonl", LINE + "\n")
    workplace.write("resources_servers/mine/app.py", MINE)
    words = " +my_agent.responses_api_agents.simple_agent.max_step=1"
    words += " +calculator.resources_servers.calculator.thread=2"
    words += " +policy_model.responses_api_models.scripted_model.latency=1"
    done = workplace.run(COLLECT + words)
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.partition(".yaml: ")[2] for line in sorted(done.stderr.splitlines())] == [
        'calculator.resources_servers.calculator: unknown key "thread"; did you mean "threads"?',
        'my_agent.responses_api_agents.simple_agent: unknown key "max_step"; did you mean "max_steps"?',
        'policy_model.responses_api_models.scripted_model: unknown key "latency"; did you mean "latency_s"?',
    ]
    agent = (workplace.folder / "agent.yaml").read_text().replace("calculator: {entry", "mine: {strict: 1, entry")
    workplace.write("agent.yaml", agent)
    words = " +calculator.resources_servers.mine.strickt=2 +limit=1 +output_jsonl_fpath=mine.jsonl"
    assert 'unknown key "strickt"; did you mean "strict"?' in workplace.run(COLLECT + words).stderr
    workplace.write("resources_servers/mine/app.py", MINE.replace("    strict: int = 0\n", ""))
    assert workplace.run(COLLECT + words).returncode == 0  # nothing is declared, so nothing is a mistake


MINE = """
from velodrome import Environment


class Mine(Environment):
    strict: int = 0

    def verify(self, task, response):
        return {"reward": 1.0}
"""


def test_an_empty_input_is_said(workplace: Any) -> None:
    workplace.scripted()
    workplace.write("tasks.jsonl", "\n\n")
    refused(workplace, COLLECT, "tasks.jsonl: no tasks in it")


def test_duplicate_rows_are_all_run_under_keys_of_their_own(workplace: Any) -> None:
    workplace.scripted()
    workplace.write("tasks.jsonl", f"{LINE}\n{LINE}\n{LINE}\n")
    done = workplace.run(COLLECT)
    assert done.returncode == 0, done.stderr
    keys = sorted(workplace.keys())
    plain = keys[0].split("/")[0].split("#")[0]
    assert keys == sorted([f"{plain}/0", f"{plain}#2/0", f"{plain}#3/0"])


def test_crlf_and_a_byte_order_mark_are_no_mistakes(workplace: Any) -> None:
    workplace.scripted()
    (workplace.folder / "tasks.jsonl").write_bytes(b"\xef\xbb\xbf" + LINE.encode() + b"\r\n" + LINE.encode())
    assert workplace.run(COLLECT).returncode == 0
    assert len(workplace.rows()) == 2


def test_a_broken_environment_of_the_user_is_named_with_its_file(workplace: Any) -> None:
    workplace.scripted()
    workplace.write(
        "agent.yaml", (workplace.folder / "agent.yaml").read_text().replace("calculator: {entry", "mine: {entry")
    )
    workplace.write("resources_servers/mine/app.py", "import no_such_module\n")
    workplace.write("tasks.jsonl", LINE + "\n")
    refused(
        workplace,
        COLLECT,
        "resources_servers/mine/app.py: cannot be imported: ModuleNotFoundError: No module named 'no_such_module'",
    )
