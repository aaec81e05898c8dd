"""One pass over a file gives what four readers of it would, and is kept for the next viewer."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import orjson

from tests.support.made_runs import rollout
from tests.support.patience import DEADLINE_S
from velodrome.checks import read_checks
from velodrome.index.check_field import as_json
from velodrome.profiling.profile import read_profile
from velodrome.stats.metrics import read_metrics
from velodrome.viewer.measure import scan
from velodrome.viewer.viewed_file import SCAN, opened


def alone(path: Path) -> dict[str, Any]:
    findings = as_json(read_checks(path, keeps_lines=True).findings())
    return {"metrics": read_metrics(path)[0], "profile": read_profile(path), "checks": findings}


def test_a_scan_is_what_each_reader_finds_alone(run: Path):
    with run.open("ab") as stream:
        stream.write(b"not a rollout\n" + orjson.dumps({"reward": 1.0}) + b"\n")
    assert {name: value for name, value in scan(run).items() if name != "tools"} == alone(run)
    rows = run.read_bytes().splitlines(keepends=True)
    Random(3).shuffle(rows)  # not in the order they finished in
    run.write_bytes(b"".join(rows))
    assert {name: value for name, value in scan(run).items() if name != "tools"} == alone(run)


def test_a_scan_is_kept_until_the_file_changes(run: Path):
    with opened(run) as source:
        assert source.saved(SCAN) is None
        assert source.measure("metrics", patience_s=DEADLINE_S).value["rollouts/kept"] == 111
    with opened(run) as source:
        assert source.saved(SCAN) == orjson.loads(orjson.dumps(scan(run)))
        with run.open("ab") as stream:
            stream.write(orjson.dumps(rollout(77, 0, Random(5))) + b"\n")
        assert source.saved(SCAN) is None
        assert source.measure("metrics", patience_s=DEADLINE_S).value["rollouts/kept"] == 112
