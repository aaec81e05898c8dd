"""The hooks and tools of a user's class, each tool with a JSON schema and a check of its arguments.

Schema and check come from the type hints, through pydantic; descriptions come from the docstring. The class is read
once, before the first rollout. A tool that cannot be offered is an `InputError` with the method and the parameter.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypeVar, overload

import orjson
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError
from typing_extensions import TypedDict  # pydantic does not take typing's own before Python 3.12

from velodrome.errors import InputError, defined_at
from velodrome.settings.names import nearest

Json = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
HIDDEN = ("self", "session")


@dataclass(frozen=True, slots=True)
class Hook:
    """A user's method that the environment calls, such as `verify`."""

    name: str
    function: Callable[..., Any]
    is_async: bool
    wants_session: bool


@dataclass(frozen=True, slots=True)
class Tool(Hook):
    """A method that the model calls: `check` turns its arguments into keyword arguments."""

    schema: Json
    check: Callable[[Json], Json]


def make_tool(
    owner: type,
    attribute: str,
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
) -> Tool:
    """Make a tool from the method's signature and docstring; `name` and `description` take precedence."""
    where = f"{owner.__name__}.{attribute}"
    name = name or attribute
    if not NAME.fullmatch(name):
        raise InputError(f'{where}: "{name}" is no tool name: use letters, digits, _ and -, at most 64')
    signature = inspect.signature(function)
    offered = {key: each for key, each in signature.parameters.items() if key not in HIDDEN}
    summary, descriptions = docstring_parts(inspect.getdoc(function) or "", list(offered))
    adapter = _adapter(where, _fields(where, owner, function, offered, descriptions))
    parameters = _tidy(adapter.json_schema())
    _add_defaults(parameters, offered)
    return Tool(
        name=name,
        function=function,
        is_async=inspect.iscoroutinefunction(function),
        wants_session="session" in signature.parameters,
        schema={
            "type": "function",
            "name": name,
            "description": summary if description is None else description,
            "parameters": parameters,
            "strict": _is_strict(parameters),
        },
        check=adapter.validate_python,
    )


def complaint(error: ValidationError) -> str:
    """The problems with the arguments, in one line for the model."""
    complaints = []
    for each in error.errors(include_url=False, include_input=False, include_context=False)[:5]:
        place = ".".join(str(part)[:60] for part in each["loc"])
        complaints.append(f"{place}: {each['msg'][:200]}" if place else each["msg"][:200])
    return "; ".join(complaints)


def _fields(
    where: str,
    owner: type,
    function: Callable[..., Any],
    offered: dict[str, inspect.Parameter],
    descriptions: dict[str, str],
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, parameter in offered.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InputError(f'{where}: parameter "{parameter}": a tool takes named parameters only')
        if parameter.annotation is parameter.empty:
            raise InputError(f'{where}: parameter "{name}" has no type hint; write for example {name}: str')
        hint = _resolved(where, owner, function, name, parameter.annotation)
        if name in descriptions:
            hint = Annotated[hint, Field(description=descriptions[name])]
        fields[name] = hint if parameter.default is parameter.empty else NotRequired[hint]
    return fields


def _resolved(where: str, owner: type, function: Callable[..., Any], name: str, annotation: Any) -> Any:
    """Resolve one type hint, which may be a string, without resolving the method's other hints."""
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    holder = types.SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(holder, globalns=scope, localns=dict(vars(owner)), include_extras=True)[name]
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise InputError(
            f'{where}: the type hint of "{name}" ({annotation}) cannot be resolved: {error}; define it at module level'
        ) from error


def _adapter(where: str, fields: dict[str, Any]) -> TypeAdapter[Json]:
    make: Any = TypedDict  # its fields are only known at run time
    arguments = make("arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
    try:
        adapter: TypeAdapter[Json] = TypeAdapter(arguments)
        adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, PydanticUserError) as error:
        reason = str(error).splitlines()[0]
        names = ", ".join(fields)
        raise InputError(f"{where}: a type hint among ({names}) cannot be offered to a model: {reason}") from error
    return adapter


def _tidy(schema: Any) -> Any:
    """Remove pydantic's titles, and let objects with named properties have no others."""
    if isinstance(schema, list):
        return [_tidy(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    tidied: Json = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            tidied[key] = {name: _tidy(each) for name, each in value.items()}
        elif key in ("default", "enum", "const", "examples"):
            tidied[key] = value
        elif key != "title":
            tidied[key] = _tidy(value)
    if tidied.get("type") == "object" and "properties" in tidied:
        tidied.setdefault("additionalProperties", False)
    return tidied


def _add_defaults(parameters: Json, offered: dict[str, inspect.Parameter]) -> None:
    parameters.setdefault("required", [])
    for name, parameter in offered.items():
        if parameter.default is parameter.empty:
            continue
        try:
            default = orjson.loads(orjson.dumps(parameter.default))
        except orjson.JSONEncodeError:
            continue
        parameters["properties"][name].setdefault("default", default)


def _is_strict(schema: Any) -> bool:
    """Whether the schema allows strict mode: every object is closed, and all its properties are required."""
    if isinstance(schema, list):
        return all(_is_strict(each) for each in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object":
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("properties", ())) != set(schema.get("required", ())):
            return False
    return all(
        _is_strict(value) for key, value in schema.items() if key not in ("default", "enum", "const", "examples")
    )


def docstring_parts(text: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """A docstring's first paragraph, and its parameter descriptions: `name: text`, or Google's `name (type): text`.

    The paragraph ends at the first description. A description continues in the following lines if they are indented
    more.
    """
    summary: list[str] = []
    in_summary = True
    descriptions: dict[str, str] = {}
    start = re.compile(rf"(\s*)({'|'.join(map(re.escape, names))})(?:\s*\(.*?\))?:\s*(.*)")
    name, indent = "", 0
    for line in text.splitlines():
        match = start.fullmatch(line) if names else None
        in_summary = in_summary and match is None and bool(line.strip())
        if in_summary:
            summary.append(line)
        elif match:
            indent, name = len(match[1]), match[2]
            descriptions[name] = match[3]
        elif not line.strip() or len(line) - len(line.lstrip()) <= indent:
            name = ""
        elif name:
            descriptions[name] = f"{descriptions[name]} {line.strip()}"
    return " ".join(" ".join(summary).split()), {
        name: each.strip() for name, each in descriptions.items() if each.strip()
    }


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
    """Offer a method to the model. The method itself is unchanged."""

    def mark(method: Any) -> Any:
        if not callable(method) or isinstance(method, staticmethod | type):
            raise InputError(f"@tool: {method!r} is not a plain method; put @tool on a def with self")
        setattr(method, MARK, {"name": name, "description": description})
        return method

    return mark if method is None else mark(method)


@dataclass(frozen=True, slots=True)
class Shape:
    """The tools and hooks of one class. A hook is None if the class does not override it."""

    tools: dict[str, Tool]
    verify: Hook | None
    seed: Hook | None
    close: Hook | None


def make_shape(owner: type, base: type) -> Shape:
    """Read a class; `base` has the hooks that it may override."""
    tools: dict[str, Tool] = {}
    in_order = dict.fromkeys(name for each in reversed(owner.__mro__) for name in vars(each))
    for attribute in in_order:
        function = inspect.getattr_static(owner, attribute)
        mark = getattr(function, MARK, None)
        if isinstance(function, staticmethod | classmethod) or mark is None:
            continue
        new_tool = make_tool(owner, attribute, function, **mark)
        if new_tool.name in tools:
            raise InputError(f'{owner.__name__}.{attribute}: there is another tool named "{new_tool.name}"')
        tools[new_tool.name] = new_tool
    _refuse_misspelt(owner, base)
    return Shape(
        tools, hook(owner, base, "verify"), hook(owner, base, "seed_session"), hook(owner, base, "close_session")
    )


def hook(owner: type, base: type, name: str) -> Hook | None:
    """The method of that name as a hook; None if it is the one of `base`."""
    function = getattr(owner, name)
    if function is getattr(base, name):
        return None
    signature = inspect.signature(function)
    wants_session = "session" in signature.parameters
    arguments = HOOKS[name]
    try:
        signature.bind(None, *arguments, **({"session": None} if wants_session and "session" not in arguments else {}))
    except TypeError as error:
        parameters = ", ".join(("self", *arguments))
        raise InputError(
            f"{owner.__name__}.{name}{signature}: {error}; write def {name}({parameters}) ({defined_at(function)})"
        ) from None
    return Hook(name, function, inspect.iscoroutinefunction(function), wants_session)


def no_verify(owner: type) -> str:
    """The message for an environment without `verify`."""
    methods = [name for name, value in vars(owner).items() if callable(value) and name != "verify"]
    near = nearest("verify", methods)
    where = f'; did you mean verify where it says "{near}"?' if near else ""
    return f"{owner.__name__} has no verify; write def verify(self, task, response){where}"


def _refuse_misspelt(owner: type, base: type) -> None:
    """Refuse a misspelt hook, which would never be called."""
    methods = [name for name, value in vars(owner).items() if callable(value) and not hasattr(value, MARK)]
    for name in ("seed_session", "close_session"):
        near = nearest(name, (each for each in methods if not hasattr(base, each)), cutoff=0.85)
        if near and getattr(owner, name) is getattr(base, name):
            raise InputError(f'{owner.__name__}.{near} is never called; did you mean "{name}"?')
