"""The one way to declare settings: a frozen pydantic model with a description for every field.

`--help`, the tables in the docs and the error messages are generated from the model. All mistakes are reported at
once, one line each: where, which key, what is expected. An unknown key is an error that suggests the nearest name.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Self, TypeVar, get_args

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from velodrome.errors import InputError
from velodrome.settings.masking import is_secret_key
from velodrome.settings.names import hint

S = TypeVar("S", bound=BaseModel)

_EXPECTED = {  # pydantic's error types -> our words
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "callable_type": "a function",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "{number} above {gt}",
    "greater_than_equal": "{number} from {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "is_instance_of": "a path",
    "less_than": "{number} below {lt}",
    "less_than_equal": "{number} up to {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_type": "a mapping",
    "path_type": "a path",
    "string_pattern_mismatch": "a text of the form {pattern}",
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
    "too_short": "at least {min_length}",
    "tuple_type": "a list",
}


class Settings(BaseModel):
    """Base of every group of settings. A field may have an alias: its name on the command line or in YAML."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    @classmethod
    def read(cls, values: Mapping[str, Any], where: str = "") -> Self:
        """The settings in `values`; a value of None means the default. Raises `InputError` with a line per mistake."""
        group, mistakes = _validated(cls, values, where)
        if group is None or mistakes:
            raise InputError(*mistakes)
        return group


def find_mistakes(
    model: type[BaseModel], values: Mapping[str, Any], where: str = "", *, unchecked: Collection[str] = ()
) -> list[str]:
    """A line for every mistake in `values`. For keys in `unchecked`, only the name is checked."""
    return _validated(model, values, where, unchecked)[1]


def _validated(
    model: type[S], values: Mapping[str, Any], where: str, unchecked: Collection[str] = ()
) -> tuple[S | None, list[str]]:
    present = {name: value for name, value in values.items() if value is not None}
    misspelt: list[str] = []
    if model.model_config.get("extra") == "allow":  # any key is accepted, except one that looks like a misspelt setting
        prefix, keys = f"{where}: " if where else "", setting_keys(model)
        others = (key for key in present if key not in keys)
        misspelt = [f'{prefix}unknown key "{key}"{guess}' for key in others if (guess := hint(key, keys, cutoff=0.85))]
    try:
        return model.model_validate(present), misspelt
    except ValidationError as error:
        return None, [*problem_lines(model, error, where, unchecked), *misspelt]


def problem_lines(
    model: type[BaseModel], error: ValidationError, where: str = "", unchecked: Collection[str] = ()
) -> Iterator[str]:
    """One line per mistake that pydantic reports; unknown keys first, because a misspelt key explains others."""
    prefix = f"{where}: " if where else ""
    for detail in sorted(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden"):
        if detail["type"] == "extra_forbidden" or not detail["loc"] or detail["loc"][0] not in unchecked:
            yield prefix + _problem_line(model, detail)


def _problem_line(model: type[BaseModel], detail: ErrorDetails) -> str:
    path = [part for part in detail["loc"] if not (isinstance(part, str) and part.startswith(("function-", "is-inst")))]
    name = ".".join(str(part) for part in path)
    if detail["type"] == "extra_forbidden":
        *above, key = path
        inner = _inner_model(model, above)
        guess = hint(str(key), setting_keys(inner)) or f"; the keys are {', '.join(sorted(setting_names(inner)))}"
        return f'unknown key "{name}"{guess}'
    if detail["type"] == "missing":
        return f'"{name}" is required{_meaning(model, name)}'
    if detail["type"] == "value_error":
        message = detail["msg"].removeprefix("Value error, ")
        return f"{name}: {message[:1].lower()}{message[1:]}" if name else message
    shown = "***" if is_secret_key(str(path[-1]) if path else "") else f"{detail['input']!r:.80}"
    return f"{name}: {_expected(detail)}, not {shown}"


def _expected(detail: ErrorDetails) -> str:
    """The expected value, in our words."""
    words = _EXPECTED.get(detail["type"])
    if words is None:
        return detail["msg"][:1].lower() + detail["msg"][1:]
    context = detail.get("ctx", {})
    number = "a number" if any(isinstance(value, float) for value in context.values()) else "a whole number"
    bounds = {name: f"{value:g}" if isinstance(value, float) else value for name, value in context.items()}
    return f"expected {words.format(**bounds, number=number)}"


def _meaning(model: type[BaseModel], key: str) -> str:
    """The description of a missing setting, and its name in Python if that differs."""
    for name, field in model.model_fields.items():
        if key in field_names(name, field):
            python = f" (in Python: {name})" if key != name else ""
            return f"{python}: {field.description}" if field.description else python
    return ""


def _inner_model(model: type[BaseModel], path: list[Any]) -> type[BaseModel]:
    """The innermost model on a path of keys; the path may contain lists of models."""
    for part in path:
        if isinstance(part, int):
            continue
        field = next((field for name, field in model.model_fields.items() if part in field_names(name, field)), None)
        kind = None if field is None else field.annotation
        kind = next(iter(get_args(kind)), kind)
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            break
        model = kind
    return model


def setting_names(model: type[BaseModel]) -> set[str]:
    """The names for users: the alias of a field if it has one, else its name."""
    return {field_names(name, field)[0] for name, field in model.model_fields.items()}


def setting_keys(model: type[BaseModel]) -> set[str]:
    """Every accepted key, including inner names and further aliases."""
    return {key for name, field in model.model_fields.items() for key in field_names(name, field)}


def field_names(name: str, field: FieldInfo) -> list[str]:
    """All names of a field; the first is for users."""
    alias = field.validation_alias or field.alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices] + [name]
    return [alias, name] if isinstance(alias, str) else [name]


def ordered_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields in the order for users: those of the model, then those of its bases from left to right."""
    declared = [name for each in model.__mro__ for name in inspect.get_annotations(each)]
    fields = model.model_fields
    return {name: fields[name] for name in dict.fromkeys([*declared, *fields]) if name in fields}


def settings_table(model: type[BaseModel], *, first: str = "setting") -> str:
    """The settings as a Markdown table for the docs."""
    lines = [f"| {first} | default | meaning |", "|---|---|---|"]
    for name, field in ordered_fields(model).items():
        default = _default_text(field)
        shown = f"`{default}`" if default else "required" if field.is_required() else ""
        text = (field.description or "").replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| `{field_names(name, field)[0]}` | {shown} | {text} |")
    return "\n".join(lines)


def setting_rows(model: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    """Name, description with the default, and default of every field."""
    for name, field in ordered_fields(model).items():
        default = _default_text(field)
        text = field.description or ""
        yield field_names(name, field)[0], f"{text} [{default}]" if default else text, default


def _default_text(field: FieldInfo) -> str:
    """The default as a user would write it; empty for None, false and empty collections."""
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined or default is None or default is False or default in ({}, [], ()):
        return ""
    if isinstance(default, float):
        return f"{default:.15g}"
    return "true" if default is True else str(default)
