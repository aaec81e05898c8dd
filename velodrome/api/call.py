"""What every public call has in common: a keyword it does not have is refused with the nearest name."""

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
    """The function, for which an unknown keyword is an `InputError`, as an unknown setting is for a verb."""
    names = [name for name, each in inspect.signature(function).parameters.items() if each.kind is not each.VAR_KEYWORD]

    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        unknown = [name for name in keywords if name not in names]
        if unknown:
            everything = f"; the keywords are {', '.join(names)}"
            where = function.__name__
            raise InputError(*(f'{where}: unknown key "{name}"{hint(name, names) or everything}' for name in unknown))
        return function(*args, **keywords)

    return call
