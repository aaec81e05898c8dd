"""Several choices of one chat request: each is a call of its own, made at the same time as the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import TypeVar

from velodrome.contracts import Json
from velodrome.errors import ModelError, VelodromeError, blame
from velodrome.responses_api_agents.simple_agent.app import add_usage
from velodrome.serving.apps.routes import BadRequest

MOST_CHOICES = 128

_Got = TypeVar("_Got")


def number_of_choices(body: Json) -> int:
    """The `n` of a chat request, which is taken out of it."""
    number = body.pop("n", None)
    if number is None:
        return 1
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MOST_CHOICES:
        raise BadRequest(400, f'"n" must be a whole number from 1 to {MOST_CHOICES}, not {number!r:.40}', param="n")
    return number


def requests_of(request: Json, number: int) -> list[Json]:
    """As many requests; one with a seed gets the seeds that follow, because equal seeds would give equal choices."""
    seed = request.get("seed")
    if number == 1 or not isinstance(seed, int):
        return [request] * number
    return [{**request, "seed": seed + index} for index in range(number)]


async def all_of(works: Sequence[Awaitable[_Got]]) -> list[_Got]:
    """The results of all; the first error cancels the rest, and is the one that is raised."""
    if len(works) == 1:
        return [await works[0]]

    async def result(work: Awaitable[_Got]) -> _Got:
        with blame(ModelError, "model"):  # in the task: a `SystemExit` that left it would end the loop
            return await work

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(result(work)) for work in works]
    except* VelodromeError as errors:
        first = _first_of(errors)
        raise first from first.__cause__
    return [task.result() for task in tasks]


def _first_of(errors: BaseExceptionGroup[VelodromeError]) -> VelodromeError:
    error = errors.exceptions[0]
    return _first_of(error) if isinstance(error, BaseExceptionGroup) else error


def one_completion(completions: Sequence[Json]) -> Json:
    """The completion that has the choice of each, and what they used together."""
    first = completions[0]
    if len(completions) == 1:
        return first
    choices = [{**each["choices"][0], "index": index} for index, each in enumerate(completions)]
    return {**first, "choices": choices, "usage": usage_of_all(each["usage"] for each in completions)}


def usage_of_all(usages: Iterable[Json | None]) -> Json | None:
    """Every call is counted, the prompt of each too; None if no call said."""
    total: Json = {}
    for usage in usages:
        add_usage(total, usage or {})
    return total or None
