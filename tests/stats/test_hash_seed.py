"""What is printed and written does not depend on how Python hashes texts, which differs from process to process."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import DEADLINE_S
from tests.support.planted import clean, write

COMMANDS = """
import sys
from velodrome.cli.main import main
for arguments in (
    ["metrics", "r.jsonl"],
    ["metrics", "r.jsonl", "--json", "--by", "kind", "--k", "1,2,8,32"],
    ["metrics", "r.jsonl", "--by", "task"],
    ["compare", "r.jsonl", "s.jsonl", "--json", "--by", "kind"],
    ["check", "r.jsonl", "--fail-on", "never"],
    ["profile", "r.jsonl"],
    ["export", "dpo", "r.jsonl", "--to", sys.argv[1], "--shuffle", "--split", "train=0.7,test=0.3"],
):
    print(arguments[:2], main(arguments))
"""


@pytest.mark.slow
def test_nothing_depends_on_the_hash_seed(tmp_path: Path):
    chance = random.Random(2)
    for name in ("r.jsonl", "s.jsonl"):
        rows = clean(240)
        for number, row in enumerate(rows):
            row["kind"], row["score"] = chance.choice("xyz"), chance.random()
            row["output"][1]["name"] = f"tool_{number % 7}"
            if number < 80:  # more repeats of one task than vote, and keys that are there twice
                row["meta"]["key"], row["extracted_answer"] = f"t0/{number // 3}", chance.choice("abc")
        failures = [{"key": f"f{n}/0", "boundary": "model", "error": f"status {n % 5}"} for n in range(30)]
        write(tmp_path / name, rows, failures)
    printed = []
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        arguments = [sys.executable, "-c", COMMANDS, "out"]
        done = subprocess.run(
            arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=DEADLINE_S
        )
        assert done.returncode == 0, done.stderr
        files = sorted((tmp_path / "out").glob("*.jsonl"))
        printed.append((done.stdout, [path.read_bytes() for path in files]))
        (tmp_path / "out").rename(tmp_path / f"out{seed}")
        assert [line for line in done.stdout.splitlines() if line.startswith("['") and not line.endswith(" 0")] == []
        assert files
    assert printed[0] == printed[1]
