"""`/aggregate_metrics` of agents and environments, as NeMo Gym's collector asks for it at the end of a run.

The body has one object per rollout: its reward and other fields, and the `usage` of its response. The answer describes
every number in them, over all rollouts and for each task.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from velodrome.contracts import Json
from velodrome.serving.apps.routes import BadRequest, json_response, read_json

_TASK, _ROLLOUT = "_ng_task_index", "_ng_rollout_index"


async def answer(request: Request) -> Response:
    """The answer of the route."""
    rollouts = (await read_json(request)).get("verify_responses")
    if not isinstance(rollouts, list) or not all(isinstance(each, dict) for each in rollouts):
        raise BadRequest(422, 'the body must be {"verify_responses": [rollouts]}')
    return json_response(await asyncio.to_thread(aggregate, rollouts))  # seconds, for 100,000 rollouts


def aggregate(rollouts: list[Json]) -> Json:
    """NeMo Gym's three tables: of all rollouts, its means alone, and one entry per task."""
    tasks: dict[Any, list[dict[str, float]]] = {}
    for each in rollouts:
        index = each.get(_TASK, 0)
        if not isinstance(index, int):
            raise BadRequest(422, f'"{_TASK}" is not a whole number but {index!r:.40}')
        tasks.setdefault(index, []).append(_numbers(each))
    all_metrics = _describe([numbers for group in tasks.values() for numbers in group])
    return {
        "agent_metrics": all_metrics,
        "key_metrics": {name: value for name, value in all_metrics.items() if name.startswith("mean/")},
        "group_level_metrics": [
            {_TASK: index, "num_rollouts": len(tasks[index]), **_describe(tasks[index])} for index in sorted(tasks)
        ],
    }


def _numbers(rollout: Json) -> dict[str, float]:
    """The numbers of a rollout, and of the usage of its response; without its indices."""
    response = rollout.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    fields = rollout | usage if isinstance(usage, dict) else rollout
    return {
        name: float(value)
        for name, value in fields.items()
        if isinstance(value, int | float) and name not in (_TASK, _ROLLOUT)
    }


def _describe(rollouts: list[dict[str, float]]) -> dict[str, float]:
    """`mean/NAME` and so on. One rollout deviates by 0; one value among several rollouts has no deviation."""
    import numpy as np

    columns: dict[str, list[float]] = {}
    for numbers in rollouts:
        for name, value in numbers.items():
            columns.setdefault(name, []).append(value)
    metrics: dict[str, float] = {}
    for name, values in columns.items():
        column = np.array(values)
        with np.errstate(over="ignore", invalid="ignore"):  # a sum beyond floats is null in the answer
            for kind, function in (("mean", np.mean), ("max", np.max), ("min", np.min), ("median", np.median)):
                metrics[f"{kind}/{name}"] = float(function(column))
            if len(values) > 1 or len(rollouts) == 1:
                metrics[f"std/{name}"] = float(np.std(column, ddof=1)) if len(values) > 1 else 0.0
    return metrics
