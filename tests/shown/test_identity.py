"""One key is one task and one way of scoring it: what is another is said, and never skipped as done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.shown.test_served import terminal
from tests.support.running import free_port

COLLECT = "velo collect +input_jsonl_fpath=IN +output_jsonl_fpath=rollouts.jsonl"


def tasks(workplace: Any, name: str, text: str, count: int = 3) -> None:
    row = {"responses_create_params": {"input": text}, "expected_answer": "36"}
    workplace.write_rows(name, ({"id": f"t{index}", **row} for index in range(count)))


def test_a_second_input_with_the_same_ids_is_refused_or_added_under_keys_of_its_own(workplace: Any, typed: Any) -> None:
    workplace.scripted()
    tasks(workplace, "one.jsonl", "What is 15% of 240?")
    tasks(workplace, "two.jsonl", "What is 15% of 241?")
    assert typed(COLLECT.replace("IN", "one.jsonl") + " +limit=2").returncode == 0
    first = workplace.rows()
    assert len({row["meta"]["task_digest"] for row in first}) == 2

    refused = typed(COLLECT.replace("IN", "two.jsonl"))
    assert (refused.returncode, refused.stdout) == (2, "")
    [line] = refused.stderr.splitlines()
    assert line.startswith("velo: two.jsonl:1: the key 't0' is in rollouts.jsonl with other content (and 1 more")
    assert "allow_mixed" in line
    assert workplace.rows() == first

    mixed = COLLECT.replace("IN", "two.jsonl") + " +allow_mixed=true"
    assert typed(mixed).returncode == 0
    rows = workplace.rows()
    assert typed(mixed).returncode == 0
    assert workplace.rows() == rows
    digests = {row["id"]: row["meta"]["task_digest"] for row in rows[2:]}
    assert {row["meta"]["key"] for row in rows[2:]} == {f"t0@{digests['t0']}/0", f"t1@{digests['t1']}/0", "t2/0"}
    again = typed(COLLECT.replace("IN", "one.jsonl") + " +limit=2")
    assert "2 of 2 rollouts are there already" in again.stderr


ENVIRONMENT = """
from velodrome import Environment


class Mine(Environment):
    def verify(self, task, response):
        return {"reward": REWARD}
"""
CONFIG = """
mine:
  resources_servers:
    mine: {entrypoint: app.py}
my_agent:
  responses_api_agents:
    simple_agent:
      resources_server: {type: resources_servers, name: mine}
      model_server: {type: responses_api_models, name: policy_model}
policy_model:
  responses_api_models:
    scripted_model: {answers: ["36"]}
"""


@pytest.mark.slow
def test_changed_code_of_an_environment_is_noticed_embedded_served_and_when_scoring_again(workplace: Any) -> None:
    def write(reward: float) -> None:
        workplace.write("resources_servers/mine/app.py", ENVIRONMENT.replace("REWARD", str(reward)))

    def refused(done: Any) -> bool:
        return done.returncode == 2 and "mine: its code changed: source was" in done.stderr

    workplace.write("config.yaml", CONFIG)
    tasks(workplace, "tasks.jsonl", "hi")
    embedded = COLLECT.replace("IN", "tasks.jsonl") + " +config_paths=[config.yaml] +embedded=true"
    verify = "velo verify rollouts.jsonl +config_paths=[config.yaml] +embedded=true +limit=LIMIT"
    port = f"+head_server.port={free_port()}"
    served = COLLECT.replace("IN", "tasks.jsonl") + f" {port}"
    write(1.0)
    assert workplace.run(f"{embedded} +limit=1").returncode == 0
    with terminal(workplace, f"velo run +config_paths=[config.yaml] {port}", "all ready"):
        write(0.5)  # the server keeps the code that it loaded
        assert workplace.run(f"{served} +limit=2").returncode == 0
    assert refused(workplace.run(embedded))
    with terminal(workplace, f"velo run +config_paths=[config.yaml] {port}", "all ready"):
        assert refused(workplace.run(served))
    assert [row["reward"] for row in workplace.rows()] == [1.0, 1.0]
    assert workplace.run(f"{embedded} +allow_mixed=true").returncode == 0
    assert workplace.run(verify.replace("LIMIT", "1")).returncode == 0
    write(0.25)
    assert refused(workplace.run(verify.replace("LIMIT", "2")))
