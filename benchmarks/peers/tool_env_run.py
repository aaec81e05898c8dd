"""The job in verifiers' own process: `ToolEnv`, which its releases up to 0.3.1 have, and a rubric of one function."""

from __future__ import annotations

import uvloop
import verifiers.legacy as vf
from calculator_job import MODEL, calculate, read_job, read_questions, report
from datasets import Dataset
from verifiers.legacy.types import ClientConfig


async def calculator(expression: str) -> str:
    """Evaluate an arithmetic expression.

    Args:
        expression: numbers with + - * / and parentheses
    """
    return calculate(expression)


async def right(completion: vf.Messages, answer: str) -> float:
    """1 if the last message ends with the answer."""
    return float(str(completion[-1].content).endswith(f" {answer}"))


async def main() -> None:
    """Evaluate and report."""
    job = read_job()
    rows = [
        {
            "prompt": [{"role": "system", "content": each.system}, {"role": "user", "content": each.user}],
            "answer": each.answer,
        }
        for each in read_questions(job.input, job.rollouts)
    ]
    env = vf.ToolEnv(tools=[calculator], eval_dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[right]))
    outputs = await env.evaluate(
        client=ClientConfig(api_base_url=job.url, api_key_var="NO_KEY", connect_timeout=60),
        model=MODEL,
        sampling_args={"temperature": 0.7},
        max_concurrent=job.parallel,
        results_path=job.output,
        save_results=True,
        independent_scoring=True,
    )
    report(each["reward"] for each in outputs["outputs"])


if __name__ == "__main__":
    uvloop.run(main())
