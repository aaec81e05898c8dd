"""What `make demo` runs, with the real model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from velodrome.profiling.sample import FEWEST

DEMO = Path(__file__).parent.parent.parent / "examples" / "demo.py"


@pytest.mark.slow
def test_the_demo_collects_with_a_real_model_and_earns_some_of_the_reward(workplace: Any) -> None:
    done = workplace.run(f"python {DEMO}")

    assert done.returncode == 0, done.stderr
    metrics = json.loads((workplace.folder / "demo/rollouts.metrics.json").read_text())
    assert 0 <= metrics["reward"] <= 1
    rows = workplace.rows("demo/rollouts.jsonl")
    assert len(rows) == metrics["rollouts/kept"] >= 1  # as many as a busy machine makes before the demo's time is over
    assert {row["response"]["model"] for row in rows} == {"smollm2-135m"}
    assert any("tool_calls" in message for row in rows for message in row["output"])
    verdict = json.loads((workplace.folder / "demo/rollouts.profile.json").read_text())["verdict"]
    assert verdict["bound"] == ("model" if len(rows) >= FEWEST else "unknown"), verdict["paragraph"]
    assert not [advice for advice in verdict["advice"] if advice["predicted_rollouts_per_s"] is not None]
    assert "Collecting rollouts:" in done.stderr
    end = done.stderr.split("rollouts of a real model")[-1]
    assert "velo view demo/rollouts.jsonl" in end  # offered, not opened
    assert len(end.splitlines()) <= 6  # below a table of up to 18 lines, which is on a terminal only
