"""After a resume the whole output is read once: the same numbers as its readers give one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.planted import clean, write
from velodrome.checks import WHILE_COLLECTING, run_checks
from velodrome.collector.readings import read_output
from velodrome.profiling.profile import read_profile
from velodrome.records.rollout import encode
from velodrome.stats.metrics import read_metrics


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Rollouts, a damaged line, a row without a key, and failures, of which one was made up for."""
    rows = [encode(row) for row in clean(20, 2)]
    rows[3:3] = [b"#" * 200 + rows[3][200:], b'{"reward":NaN}\n']
    timing = {"total_s": 0.5, "queue_s": 0.0, "model_s": 0.5, "tools_s": 0.0, "verify_s": 0.0}
    failures = [
        {"key": key, "error": "x", "boundary": "model", "finished_at": 1.0, "timing": timing}
        for key in (clean(20, 2)[0]["meta"]["key"], "never/0")
    ]
    return write(tmp_path / "r.jsonl", rows, failures)


def test_one_pass_gives_what_metrics_checks_and_profile_give(output: Path):
    whole = read_output(output, profiled=True)
    metrics, _ = read_metrics(output)
    assert whole.tally.metrics(failed=whole.failed) == metrics
    assert (metrics["rollouts/kept"], metrics["rollouts/failed"], whole.rollouts) == (21, 1, 20)
    assert whole.checks.findings() == run_checks(output, only=WHILE_COLLECTING)
    assert whole.profile is not None
    assert whole.profile.report() == read_profile(output)
