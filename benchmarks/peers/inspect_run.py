"""The job in Inspect: `use_tools`, `generate` with its tool loop, the `match` scorer, an `.eval` log."""

from __future__ import annotations

import os

from calculator_job import MODEL, calculate, read_job, read_questions, report
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate, system_message, use_tools
from inspect_ai.tool import tool


@tool
def calculator():
    """One tool."""

    async def execute(expression: str) -> str:
        """Evaluate an arithmetic expression.

        Args:
            expression: numbers with + - * / and parentheses
        """
        return calculate(expression)

    return execute


def main() -> None:
    """Evaluate and report."""
    job = read_job()
    questions = read_questions(job.input, job.rollouts)
    os.environ["INSPECT_HTTP_POOL_CONNECTIONS"] = str(2 * job.parallel)
    samples = [Sample(input=each.user, target=each.answer, id=at) for at, each in enumerate(questions)]
    logs = evaluate(
        Task(
            dataset=MemoryDataset(samples),
            solver=[system_message(questions[0].system), use_tools(calculator()), generate()],
            scorer=match(location="end"),
        ),
        model=get_model(f"openai-api/{MODEL}/{MODEL}", base_url=job.url, api_key="none"),
        log_dir=str(job.output),
        max_samples=job.parallel,
        max_connections=job.parallel,
        temperature=0.7,
        display="none",  # and nothing for live viewing: it costs most where the model is fast
        log_realtime=False,
        score_display=False,
        ctl_server=False,
    )
    (log,) = logs
    assert log.status == "success", log.error
    report(1.0 if sample.scores["match"].value == "C" else 0.0 for sample in log.samples)


if __name__ == "__main__":
    main()
