"""The wrapper of public calls: an unknown keyword is refused, with the nearest name as a suggestion."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from velodrome.errors import InputError
from velodrome.settings.names import hint

P = ParamSpec("P")
R = TypeVar("R")


def public_call(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function: an unknown keyword raises an `InputError`, like an unknown setting of a verb."""
    names = [name for name, each in inspect.signature(function).parameters.items() if each.kind is not each.VAR_KEYWORD]

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        unknown = [name for name in keywords if name not in names]
        if unknown:
            all_names = f"; the keywords are {', '.join(names)}"
            where = function.__name__
            raise InputError(*(f'{where}: unknown key "{name}"{hint(name, names) or all_names}' for name in unknown))
        return function(*args, **keywords)

    return call
