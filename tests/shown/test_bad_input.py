"""A mistake in the input gets one clear line, exit code 2, no traceback, and nothing is written over."""

from __future__ import annotations

import json
from typing import Any

import pytest

GOOD = {"responses_create_params": {"input": "What is 15% of 240?"}, "expected_answer": "36"}
LINE = json.dumps(GOOD)
COLLECT = "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl"
AN_INPUT = '"responses_create_params.input'
BAD_ROWS = {
    LINE[:-20]: "not JSON",
    "[1, 2]": "a task is a JSON object, not a list",
    '{"input": "x"}': 'no "responses_create_params"',
    '{"responses_create_params": {"input": [{"role": "user", "content": [[]]}]}}': f'{AN_INPUT}[0].content" must be',
    LINE.replace('"36"', "NaN"): "not JSON",
    '{"a":' * 5000 + "1" + "}" * 5000: "not JSON",
    json.dumps({**GOOD, "agent_ref": {"name": "my_agnet"}}): "no agent is called 'my_agnet'; did you mean",
}


@pytest.fixture
def refused(workplace: Any, typed: Any) -> Any:
    """The command fails with exit code 2 and these words, and changes no file."""
    workplace.scripted()

    def run(command: str, words: str, *, lines: int = 1) -> None:
        output = workplace.write("rollouts.jsonl", '{"meta":{"key":"old/0"}}\n')
        before = sorted(path.name for path in workplace.folder.iterdir())
        done = typed(command)
        assert (done.returncode, done.stdout, words in done.stderr) == (2, "", True), done.stderr
        assert len(done.stderr.strip().splitlines()) == lines, done.stderr
        assert output.read_text() == '{"meta":{"key":"old/0"}}\n'
        assert sorted(path.name for path in workplace.folder.iterdir()) == before

    return run


def test_every_kind_of_bad_row_is_told_at_once_and_the_same_kind_once(workplace: Any, typed: Any, refused: Any) -> None:
    workplace.write("tasks.jsonl", "\n".join([LINE, *BAD_ROWS, '{"input": "y"}']) + "\n")
    refused(COLLECT, "tasks.jsonl:2: ", lines=len(BAD_ROWS))
    said = typed(COLLECT).stderr.splitlines()
    for number, (line, words) in enumerate(zip(said, BAD_ROWS.values(), strict=True), 2):
        assert line.startswith(f"velo: tasks.jsonl:{number}: {words}")
    assert [line.endswith("(and 1 more like it)") for line in said].count(True) == 1


DAPO = "resources_servers/math_with_judge/data/dapo17k_bytedtsinghua_train.jsonl"
COMMANDS = {
    "ng_collect_rollouts +output_jsonl_fpath=rollouts.jsonl": "no input: give +input_jsonl_fpath",
    f"{COLLECT} +speculate=true": 'unknown key "speculate"',
    f"{COLLECT} +executor=ray +ray_address=ray://head:10001": "expected the host:port",
    f"{COLLECT} +executor=ray +num_workers=2": "ray_actors",
    f"{COLLECT} +ray_actors=2": "executor=ray",
    f"{COLLECT} +executor=slurm": "executor",
    "ng_collect_rollouts +input_jsonl_fpath=nowhere.jsonl": "nowhere.jsonl: no such file",
    f"ng_collect_rollouts +input_jsonl_fpath={DAPO}": "to fetch it: python -m velodrome.resources_servers.math_with_"
    f"judge.prepare --output {DAPO}",
    "ng_collect_rollouts +input_jsonl_fpath=.": ".: not a regular file",
    COLLECT.replace("rollouts.jsonl", "tasks.jsonl"): "input and output are the same file",
    COLLECT.replace("rollouts.jsonl", "out.csv"): "out.csv: an output ends in .jsonl",
    f"{COLLECT} +agent_name=my_agnet": "no agent is called 'my_agnet'; did you mean \"my_agent\"?",
    f"{COLLECT} +num_samples_in_parallel=lots": "num_samples_in_parallel: ",
    f"{COLLECT} --limits=2": 'unknown option --limits; did you mean "--limit"?',
    f"{COLLECT} +limit=[1": "limit",
    f"{COLLECT} +config_paths=[nowhere.yaml]": "nowhere.yaml",
    f"{COLLECT} +config_paths=[loop.yaml]": "loop",
    f"{COLLECT} +config_paths=[needs.yaml]": "nowhere_to_be_found",
}


def test_a_bad_command_or_config_is_one_clear_line(workplace: Any, refused: Any) -> None:
    workplace.write("tasks.jsonl", LINE + "\n")
    workplace.write(
        "needs.yaml", "policy_model: {responses_api_models: {scripted_model: {answers: ['${nowhere_to_be_found}']}}}\n"
    )
    block = "{{responses_api_agents: {{simple_agent: {{model_server: {{type: responses_api_agents, name: {}}}}}}}}}\n"
    workplace.write("loop.yaml", "loop1: " + block.format("loop2") + "loop2: " + block.format("loop1"))
    for command, words in COMMANDS.items():
        refused(command, words)


MINE = """
from velodrome import Environment


class Mine(Environment):
    strict: int = 0

    def verify(self, task, response):
        return {"reward": 1.0}
"""


def test_every_misspelt_key_of_a_block_is_told_at_once_with_the_nearest_name(workplace: Any, typed: Any) -> None:
    workplace.scripted()
    workplace.environment("mine", MINE, ", strict: 1")
    workplace.write("tasks.jsonl", LINE + "\n")
    words = " +my_agent.responses_api_agents.simple_agent.max_step=1"
    words += " +calculator.resources_servers.mine.strickt=2"
    words += " +policy_model.responses_api_models.scripted_model.latency=1"
    done = typed(COLLECT + words)
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.partition(".yaml: ")[2] for line in sorted(done.stderr.splitlines())] == [
        'calculator.resources_servers.mine: unknown key "strickt"; did you mean "strict"?',
        'my_agent.responses_api_agents.simple_agent: unknown key "max_step"; did you mean "max_steps"?',
        'policy_model.responses_api_models.scripted_model: unknown key "latency"; did you mean "latency_s"?',
    ]


def test_a_broken_environment_of_the_user_is_named_with_its_file(workplace: Any, refused: Any) -> None:
    workplace.environment("mine", "import no_such_module\n")
    workplace.write("tasks.jsonl", LINE + "\n")
    missing = "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"
    refused(COLLECT, f"resources_servers/mine/app.py: {missing}")
