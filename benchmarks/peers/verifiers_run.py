"""The job in verifiers: a taskset with a tool server, its own chat program (`null`) as a process per rollout."""

from __future__ import annotations

import asyncio

from calculator_job import MODEL, read_job, report
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig


def main() -> None:
    """Evaluate as `vf-eval` does, and report."""
    job = read_job()
    taskset = {"id": "calculator_taskset", "input": str(job.input), "count": job.rollouts}
    agent = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}}
    config = EvalConfig.model_validate(
        {
            "model": MODEL,
            "push": False,
            "rich": None,
            "output_dir": str(job.output),
            "run": {"name": "run"},
            "client": {"base_url": job.url, "api_key_var": "NO_KEY"},
            "sampling": {"temperature": 0.7},
            "max_concurrent": job.parallel,
            "env": {"taskset": taskset, "agent": agent},
        }
    )
    episodes = asyncio.run(run_eval(config))
    report(trace.reward for episode in episodes for trace in episode.traces if trace.ok)


if __name__ == "__main__":
    main()
