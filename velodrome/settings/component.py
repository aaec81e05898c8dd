"""The base class of models, agents and environments: a block of YAML or Python keywords configure them.

The annotated attributes of the class are its settings:

    class Weather(Environment):
        unit: str = Field("C", description="C or F")     # Weather(unit="F"), or `unit: F` in YAML; then self.unit

Names that start with an underscore, class variables and methods are not settings. `setup` runs once they are set.
A user's class that declares no settings accepts any key, except a key that looks like a misspelt setting. These values
are in `self.undeclared`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, Union, dataclass_transform, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, PlainValidator, create_model

from velodrome.errors import InputError, blame
from velodrome.settings.model import Settings, find_mistakes, setting_keys
from velodrome.settings.names import hint

__all__ = ["Component", "Field", "find_setting_mistakes", "settings_of", "takes"]

_models: dict[type, type[Settings]] = {}


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class Component:
    """A class whose annotated attributes are its settings.

    A copy in another process is built from the same settings, or from the arguments of the class's own `__init__`, so
    it begins with fresh state. A component that is `shared` is not copied: all processes call the original.
    """

    shared: ClassVar[bool] = False

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        component = super().__new__(cls)
        if cls.__init__ is not Component.__init__:
            component._arguments = args, settings  # type: ignore[attr-defined]  # only some have them
        return component

    def __init__(self, **settings: Any) -> None:
        model = settings_of(type(self))
        values = model.read(settings, type(self).__name__)
        for name in model.model_fields:
            setattr(self, name, getattr(values, name))
        self.undeclared: Mapping[str, Any] = values.model_extra or {}
        if inspect.iscoroutinefunction(self.setup):
            raise InputError(
                f"{type(self).__name__}: setup is called before anything runs: write `def`, not `async def`"
            )
        self._prepare()
        self.setup()

    def __reduce__(self) -> tuple[Any, ...]:
        if type(self).__init__ is not Component.__init__:
            return _rebuild, (type(self), *self._arguments)  # type: ignore[attr-defined]
        settings = {name: getattr(self, name) for name in settings_of(type(self)).model_fields}
        return _rebuild, (type(self), (), {**settings, **self.undeclared})

    def setup(self) -> None:
        """Prepare everything that depends on the settings. Called once, at the end of the constructor."""

    def _prepare(self) -> None:
        """The preparation of a kind of component, before the author's `setup`."""


def _rebuild(owner: type[Component], arguments: tuple[Any, ...], settings: Mapping[str, Any]) -> Component:
    return owner(*arguments, **settings)


def settings_of(owner: type) -> type[Settings]:
    """The settings of a component class as a model, built once."""
    if owner not in _models:
        with blame(InputError, f"{owner.__name__}: its settings"):
            fields = {
                name: (_with_converter(kind), getattr(owner, name, ...))
                for name, kind in get_type_hints(owner, include_extras=True).items()
                if not name.startswith("_") and get_origin(kind) is not ClassVar and kind is not ClassVar
            }
            base = OpenSettings if _declares_nothing(owner, fields) else Settings
            _models[owner] = create_model(f"{owner.__name__}Settings", __base__=base, **fields)  # type: ignore[call-overload]
    return _models[owner]


class OpenSettings(Settings):
    """Settings of a class that declares none."""

    model_config = ConfigDict(extra="allow")


def _declares_nothing(owner: type, fields: Collection[str]) -> bool:
    """Whether a user's class adds no settings to those of the base class from this package."""
    if owner.__module__.startswith("velodrome."):
        return False
    ours = next(base for base in owner.__mro__ if base.__module__.startswith("velodrome."))
    return set(fields) == set(settings_of(ours).model_fields)


def _with_converter(kind: Any) -> Any:
    """The type with its converter: the module that defines a type may list one in its `CONVERTERS`."""
    if isinstance(kind, type):
        converters: dict[type, Callable[[Any], Any]] = getattr(sys.modules.get(kind.__module__), "CONVERTERS", {})
        return Annotated[kind, PlainValidator(_as_validator(converters[kind]))] if kind in converters else kind
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(map(_with_converter, get_args(kind)))]  # noqa: UP007 - made from a list of types
    return kind


def _as_validator(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The converter as a validator for pydantic, which collects ValueErrors."""

    def check(value: Any) -> Any:
        try:
            return convert(value)
        except InputError as error:
            raise ValueError(str(error)) from None

    return check


def takes(owner: type, key: str) -> bool:
    """Whether a class has a setting, or a parameter of its constructor, with this name."""
    if issubclass(owner, Component):
        return key in setting_keys(settings_of(owner))
    return key in inspect.signature(owner).parameters


def find_setting_mistakes(
    owner: type, settings: Mapping[str, Any], where: str, *, references: Collection[str] = ()
) -> list[str]:
    """A line for every mistake in a block. Values of `references` are not checked: their objects do not exist yet."""
    if issubclass(owner, Component):
        return find_mistakes(settings_of(owner), settings, where, unchecked=references)
    parameters = inspect.signature(owner).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return []
    lines = [f'{where}: unknown key "{key}"{hint(key, parameters)}' for key in settings if key not in parameters]
    return lines + [
        f'{where}: "{name}" is required'
        for name, each in parameters.items()
        if each.default is each.empty and each.kind is not each.VAR_POSITIONAL and name not in settings
    ]
