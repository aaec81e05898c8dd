"""The job in Velodrome: `velo collect`, everything in one process."""

from __future__ import annotations

import json
import sys

from calculator_job import read_job, report

from benchmarks.workload import http_settings
from velodrome.cli.main import main as velo


def main() -> None:
    """Collect and report."""
    job = read_job()
    job.output.mkdir()
    output = job.output / "rollouts.jsonl"
    settings = [
        *http_settings(job.url, "chat"),
        "+embedded=true",
        f"+input_jsonl_fpath={job.input}",
        f"+output_jsonl_fpath={output}",
        f"+limit={job.rollouts}",
        f"+num_samples_in_parallel={job.parallel}",
    ]
    code = velo(["collect", *settings])
    if code:
        sys.exit(code)
    with output.open(encoding="utf-8") as lines:
        report(json.loads(line)["reward"] for line in lines)


if __name__ == "__main__":
    main()
