"""The base of everything that is configured in a block of YAML or by keyword in Python: models, agents, environments.

The annotated attributes of the class are its settings:

    class Weather(Environment):
        unit: str = Field("C", description="C or F")     # Weather(unit="F"), or `unit: F` in YAML; then self.unit

Names that start with an underscore, class variables and methods are not settings. `setup` runs once they are set.
A user's class that declares no setting of its own takes any key but one that looks like a misspelt setting; they are
in `self.undeclared`.
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

    A copy in another process is made again from the settings, or from the arguments of an `__init__` of its own, so it
    has the state of a new one. A component that is `shared` is not copied: it stays where it is, and is called from
    there.
    """

    shared: ClassVar[bool] = False

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        made = super().__new__(cls)
        if cls.__init__ is not Component.__init__:
            made._arguments = args, settings  # type: ignore[attr-defined]  # of few
        return made

    def __init__(self, **settings: Any) -> None:
        model = settings_of(type(self))
        checked = model.read(settings, type(self).__name__)
        for name in model.model_fields:
            setattr(self, name, getattr(checked, name))
        self.undeclared: Mapping[str, Any] = checked.model_extra or {}
        if inspect.iscoroutinefunction(self.setup):
            raise InputError(
                f"{type(self).__name__}: setup is called before anything runs: write `def`, not `async def`"
            )
        self._prepare()
        self.setup()

    def __reduce__(self) -> tuple[Any, ...]:
        if type(self).__init__ is not Component.__init__:
            return _made_again, (type(self), *self._arguments)  # type: ignore[attr-defined]
        settings = {name: getattr(self, name) for name in settings_of(type(self)).model_fields}
        return _made_again, (type(self), (), {**settings, **self.undeclared})

    def setup(self) -> None:
        """Prepare whatever depends on the settings. Called once, at the end of the constructor."""

    def _prepare(self) -> None:
        """What a kind of component does before `setup`, which belongs to its author."""


def _made_again(owner: type[Component], arguments: tuple[Any, ...], settings: Mapping[str, Any]) -> Component:
    return owner(*arguments, **settings)


def settings_of(owner: type) -> type[Settings]:
    """The settings of a component class as a model, built once."""
    if owner not in _models:
        with blame(InputError, f"{owner.__name__}: its settings"):
            fields = {
                name: (_accepting(kind), getattr(owner, name, ...))
                for name, kind in get_type_hints(owner, include_extras=True).items()
                if not name.startswith("_") and get_origin(kind) is not ClassVar and kind is not ClassVar
            }
            base = OpenSettings if _declares_nothing(owner, fields) else Settings
            _models[owner] = create_model(f"{owner.__name__}Settings", __base__=base, **fields)  # type: ignore[call-overload]
    return _models[owner]


class OpenSettings(Settings):
    """Settings of a class that does not say which it has."""

    model_config = ConfigDict(extra="allow")


def _declares_nothing(owner: type, fields: Collection[str]) -> bool:
    """Whether a user's class has no settings but those it inherits from ours."""
    if owner.__module__.startswith("velodrome."):
        return False
    ours = next(base for base in owner.__mro__ if base.__module__.startswith("velodrome."))
    return set(fields) == set(settings_of(ours).model_fields)


def _accepting(kind: Any) -> Any:
    """The type with its converter: the module that defines a type may list one in its `CONVERTERS`."""
    if isinstance(kind, type):
        converters: dict[type, Callable[[Any], Any]] = getattr(sys.modules.get(kind.__module__), "CONVERTERS", {})
        return Annotated[kind, PlainValidator(_checking(converters[kind]))] if kind in converters else kind
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(map(_accepting, get_args(kind)))]  # noqa: UP007 - made from a list of types
    return kind


def _checking(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The converter as a check of pydantic's, which collects ValueErrors."""

    def check(value: Any) -> Any:
        try:
            return convert(value)
        except InputError as error:
            raise ValueError(str(error)) from None

    return check


def takes(owner: type, key: str) -> bool:
    """Whether a class that is made by keyword has a setting of this name."""
    if issubclass(owner, Component):
        return key in setting_keys(settings_of(owner))
    return key in inspect.signature(owner).parameters


def find_setting_mistakes(
    owner: type, settings: Mapping[str, Any], where: str, *, references: Collection[str] = ()
) -> list[str]:
    """A line for every mistake in a block. The values under `references` stand for objects that are not made yet."""
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
