"""`examine`: whether an environment keeps the rules that `velo test` has."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from velodrome.api.call import public_call
from velodrome.contracts import as_resources
from velodrome.examiner.examination import MAX_TASKS, Examination, examine_subject
from velodrome.examiner.subject import class_subject, live_subject, named_subject

Json = dict[str, Any]


@public_call
async def examine(
    environment: Any,
    tasks: str | Path | Iterable[str | Json] | None = None,
    *,
    only: Sequence[str] | None = None,
    most_tasks: int = MAX_TASKS,
    strict: bool = False,
) -> Examination:
    """Judge an environment by its own reference answers, wrong answers and cheats, as `velo test` does.

    `environment` is a live one, a class, which is made with its `example_settings`, or the name or path of one. `tasks`
    is a path or a list; without it they are those of `data/example.jsonl` beside the class. The result has `passed`,
    `rules` and `costs`, and prints as a report. With `strict` a rule that could not be checked is a failure.
    """
    if isinstance(environment, str | Path):
        subject = named_subject(str(environment), (), tasks)
    elif inspect.isclass(environment):
        subject = class_subject(environment, tasks)
    else:
        subject = live_subject(as_resources(environment), tasks)
    return await examine_subject(subject, only=only, max_tasks=most_tasks, strict=strict)
