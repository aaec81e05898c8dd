"""What a class of the user's offers: its tools and its hooks.

All of it is read once, before the first rollout, and a mistake in it is an `InputError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar, overload

from velodrome.errors import InputError, defined_at
from velodrome.resources_servers.schema import Hook, Tool, make_tool

MARK = "__velodrome_tool__"
HOOKS = {
    "verify": ("task", "response"),
    "seed_session": ("task",),
    "close_session": ("session",),
    "reset": ("task",),
    "step": ("action",),
}
Method = TypeVar("Method", bound=Callable[..., Any])


@overload
def tool(method: Method, /) -> Method: ...
@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[Method], Method]: ...
def tool(method: Any = None, /, *, name: str | None = None, description: str | None = None) -> Any:
    """Offer a method to the model. The method itself stays as it is."""

    def mark(method: Any) -> Any:
        if not callable(method) or isinstance(method, staticmethod | type):
            raise InputError(f"@tool: {method!r} is not a plain method; put @tool on a def with self")
        setattr(method, MARK, {"name": name, "description": description})
        return method

    return mark if method is None else mark(method)


@dataclass(frozen=True, slots=True)
class Shape:
    """What one class offers. A hook is None where the class leaves it as it was."""

    tools: dict[str, Tool]
    verify: Hook | None
    seed: Hook | None
    close: Hook | None


def make_shape(owner: type, base: type) -> Shape:
    """Read a class; `base` has the hooks it may have replaced."""
    tools: dict[str, Tool] = {}
    in_order = dict.fromkeys(name for each in reversed(owner.__mro__) for name in vars(each))
    for attribute in in_order:
        function = inspect.getattr_static(owner, attribute)
        mark = getattr(function, MARK, None)
        if isinstance(function, staticmethod | classmethod) or mark is None:
            continue
        made = make_tool(owner, attribute, function, **mark)
        if made.name in tools:
            raise InputError(f'{owner.__name__}.{attribute}: there is another tool named "{made.name}"')
        tools[made.name] = made
    _refuse_misspelt(owner, base)
    return Shape(
        tools, hook(owner, base, "verify"), hook(owner, base, "seed_session"), hook(owner, base, "close_session")
    )


def hook(owner: type, base: type, name: str) -> Hook | None:
    """The method of that name, unless it is still that of `base`."""
    function = getattr(owner, name)
    if function is getattr(base, name):
        return None
    signature = inspect.signature(function)
    wants_session = "session" in signature.parameters
    arguments = HOOKS[name]
    try:
        signature.bind(None, *arguments, **({"session": None} if wants_session and "session" not in arguments else {}))
    except TypeError as error:
        wanted = ", ".join(("self", *arguments))
        raise InputError(
            f"{owner.__name__}.{name}{signature}: {error}; write def {name}({wanted}) ({defined_at(function)})"
        ) from None
    return Hook(name, function, inspect.iscoroutinefunction(function), wants_session)


def no_verify(owner: type) -> str:
    """What is wrong with an environment that cannot give a score."""
    own = [name for name, value in vars(owner).items() if callable(value) and name != "verify"]
    near = get_close_matches("verify", own, 1)
    hint = f'; did you mean verify where it says "{near[0]}"?' if near else ""
    return f"{owner.__name__} has no verify; write def verify(self, task, response){hint}"


def _refuse_misspelt(owner: type, base: type) -> None:
    """A hook under a name that is nearly right would never be called."""
    for name_of_hook in ("seed_session", "close_session"):
        if getattr(owner, name_of_hook) is getattr(base, name_of_hook):
            own = [
                name
                for name, value in vars(owner).items()
                if callable(value) and not hasattr(value, MARK) and not hasattr(base, name)
            ]
            near = get_close_matches(name_of_hook, own, 1, cutoff=0.85)
            if near:
                raise InputError(f'{owner.__name__}.{near[0]} is never called; did you mean "{name_of_hook}"?')
