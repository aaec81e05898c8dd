"""One key is one task and one way of scoring it: what is another is said, and never skipped as done."""

from __future__ import annotations

import json
from typing import Any

COLLECT = "velo collect +input_jsonl_fpath=IN +output_jsonl_fpath=rollouts.jsonl"


def tasks(workplace: Any, name: str, text: str, count: int = 3) -> None:
    rows = [
        {"id": f"t{index}", "responses_create_params": {"input": text}, "expected_answer": "36"}
        for index in range(count)
    ]
    workplace.write(name, "".join(json.dumps(row) + "\n" for row in rows))


def test_a_second_input_with_the_same_ids_is_refused_or_added_under_keys_of_its_own(workplace: Any) -> None:
    workplace.scripted()
    tasks(workplace, "one.jsonl", "What is 15% of 240?")
    tasks(workplace, "two.jsonl", "What is 15% of 241?")
    assert workplace.run(COLLECT.replace("IN", "one.jsonl") + " +limit=2").returncode == 0
    first = workplace.rows()
    assert len({row["meta"]["task_digest"] for row in first}) == 2

    refused = workplace.run(COLLECT.replace("IN", "two.jsonl"))
    assert (refused.returncode, refused.stdout) == (2, "")
    [line] = refused.stderr.splitlines()
    assert line.startswith("velo: two.jsonl:1: the key 't0' stands in rollouts.jsonl with other content (and 1 more")
    assert "+allow_mixed=true" in line
    assert workplace.rows() == first

    mixed = COLLECT.replace("IN", "two.jsonl") + " +allow_mixed=true"
    assert workplace.run(mixed).returncode == 0
    rows = workplace.rows()
    assert workplace.run(mixed).returncode == 0
    assert workplace.rows() == rows
    digests = {row["id"]: row["meta"]["task_digest"] for row in rows[2:]}
    assert {row["meta"]["key"] for row in rows[2:]} == {f"t0@{digests['t0']}/0", f"t1@{digests['t1']}/0", "t2/0"}
    again = workplace.run(COLLECT.replace("IN", "one.jsonl") + " +limit=2")
    assert "2 of 2 rollouts are there already" in again.stderr
