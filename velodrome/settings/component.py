"""The base of everything that is configured in a block of YAML or by keyword in Python: models, agents, environments.

The annotated attributes of the class are its settings:

    class Weather(Environment):
        unit: str = Field("C", description="C or F")     # Weather(unit="F"), or `unit: F` in YAML; then self.unit

Names that start with an underscore, class variables and methods are not settings. `setup` runs once they are set.
"""

from __future__ import annotations

from typing import Any, ClassVar, dataclass_transform, get_origin, get_type_hints

from pydantic import Field, create_model

from velodrome.errors import InputError, blame
from velodrome.settings.model import Settings, read_settings

__all__ = ["Component", "Field", "settings_of"]

_models: dict[type, type[Settings]] = {}


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class Component:
    """A class whose annotated attributes are its settings."""

    def __init__(self, **settings: Any) -> None:
        model = settings_of(type(self))
        checked = read_settings(model, settings, type(self).__name__)
        for name in model.model_fields:
            setattr(self, name, getattr(checked, name))
        self.setup()

    def setup(self) -> None:
        """Prepare whatever depends on the settings. Called once, at the end of the constructor."""


def settings_of(owner: type) -> type[Settings]:
    """The settings of a component class as a model, built once."""
    if owner not in _models:
        with blame(InputError, f"{owner.__name__}: its settings"):
            fields = {
                name: (kind, _default(owner, name))
                for name, kind in get_type_hints(owner, include_extras=True).items()
                if not name.startswith("_") and get_origin(kind) is not ClassVar and kind is not ClassVar
            }
            _models[owner] = create_model(f"{owner.__name__}Settings", __base__=Settings, **fields)  # type: ignore[call-overload]
    return _models[owner]


def _default(owner: type, name: str) -> Any:
    return getattr(owner, name, ...)
