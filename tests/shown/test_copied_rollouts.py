"""`+speculate=true` as a user has it: a rollout that hangs on its first run is finished by a copy, here and on Ray.

Its environment has a limiter with one place, which workers and actors share.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from test_killed_workers import content

COLLECT = (
    "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=OUT +num_samples_in_parallel=8 +seed=5"
)
ENVIRONMENT = '''
import asyncio
import os
from pathlib import Path

import velodrome as velo
from velodrome.http.limiter import Limiter


class Sums(velo.Environment):
    """The first process that verifies the task of a file beside this one removes the file, and hangs."""

    def setup(self):
        self._place = Limiter("database", 1)

    @velo.tool
    def calculator(self, expression: str) -> str:
        """Calculate."""
        return "36"

    async def verify(self, task, response):
        try:
            os.unlink(Path(__file__).with_name(task["id"]))
        except FileNotFoundError:
            pass
        else:
            await asyncio.sleep(1000)
        async with self._place:
            mark = Path(__file__).with_name(f"inside-{task['id']}")
            mark.touch()
            try:
                inside = len(list(mark.parent.glob("inside-*")))
                await asyncio.sleep(0.002)
            finally:
                mark.unlink()
        return {"reward": float(task["expected_answer"] in response.text), "inside": inside}
'''


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    ["+num_workers=2", pytest.param("+executor=ray +ray_actors=2", marks=pytest.mark.alone)],
)
def test_a_rollout_that_hangs_is_finished_by_its_copy_and_the_file_is_the_same(workplace: Any, where: str) -> None:
    workplace.scripted()
    agent = workplace.folder / "agent.yaml"
    agent.write_text(agent.read_text().replace("    calculator: {", "    sums: {"))
    workplace.write("resources_servers/sums/app.py", ENVIRONMENT)
    rows = [json.loads(line) for line in workplace.tasks("tasks.jsonl", 60).read_text().splitlines()]
    workplace.write("tasks.jsonl", "".join(json.dumps({**row, "id": f"t{n}"}) + "\n" for n, row in enumerate(rows)))
    assert workplace.run(COLLECT.replace("OUT", "calm.jsonl")).returncode == 0
    workplace.write("resources_servers/sums/t7", "")

    done = workplace.run(f"{COLLECT.replace('OUT', 'rollouts.jsonl')} {where} +speculate=true")

    assert done.returncode == 0, done.stderr
    assert content(workplace.rows()) == content(workplace.rows("calm.jsonl"))
    assert {row["inside"] for row in workplace.rows()} == {1}
    assert "requested 60 = kept 60 + failed 0" in done.stderr
    metrics = json.loads(done.stdout)
    line = re.search(r"speculate: (\d+) .*, (\d+) .*: (\d+) tokens", done.stderr)
    assert line is not None
    assert list(map(int, line.groups())) == [metrics[f"copies/{name}"] for name in ("made", "won", "tokens")]
    assert metrics["copies/won"] >= 1
