"""Settings as pydantic models: every mistake at once, unknown keys with the nearest name, help and tables."""

from __future__ import annotations

from typing import ClassVar

import pytest
from pydantic import AliasChoices

from velodrome.errors import InputError
from velodrome.settings.component import Component, Field, settings_of
from velodrome.settings.model import Settings, setting_names, settings_help, settings_table


class Inner(Settings):
    depth: int = Field(1, ge=1, description="how deep")


class Outer(Settings):
    parallel: int = Field(16, ge=1, alias="num_samples_in_parallel", description="rollouts in flight")
    api_key: str | None = Field(None, description="the key")
    inner: Inner = Field(default_factory=Inner, description="more")


def test_every_mistake_is_reported_at_once():
    given = {"num_samples_in_parallel": 0, "api_key": 7, "inner": {"dept": 1}, "paralel": 3}
    with pytest.raises(InputError) as caught:
        Outer.read(given, "here")
    first, second, third, fourth = caught.value.problems
    assert "num_samples_in_parallel" in first
    assert "not 0" in first
    assert "api_key" in second
    assert "7" not in second
    assert 'unknown key "inner.dept"; did you mean "depth"?' in third
    assert "paralel" in fourth
    assert all(line.startswith("here: ") for line in caught.value.problems)


def test_a_field_is_known_by_its_alias_and_by_its_own_name():
    assert Outer.read({"num_samples_in_parallel": 3}) == Outer.read({"parallel": 3})
    assert setting_names(Outer) == {"num_samples_in_parallel", "api_key", "inner"}


def test_none_means_the_default_and_a_bool_is_not_a_number():
    assert Outer.read({"parallel": None}).parallel == 16
    with pytest.raises(InputError, match="parallel"):
        Outer.read({"parallel": True})


def test_help_and_table_name_every_setting_with_its_default():
    assert "+num_samples_in_parallel" in settings_help(Outer)
    assert "rollouts in flight [16]" in settings_help(Outer)
    assert "| `num_samples_in_parallel` | `16` | rollouts in flight |" in settings_table(Outer)


class Part(Component):
    kind: ClassVar[str] = "part"
    size: int = Field(2, ge=1, description="how large")
    other: object = Field(None, validation_alias=AliasChoices("other", "other_server"), description="another part")

    def setup(self) -> None:
        self._doubled = 2 * self.size


class Larger(Part):
    name: str = "x"


def test_a_component_takes_its_annotated_attributes_as_keywords():
    part = Larger(size=3, other_server=4)  # type: ignore[call-arg]
    assert (part.size, part.other, part.name, part._doubled) == (3, 4, "x", 6)
    assert set(settings_of(Larger).model_fields) == {"size", "other", "name"}


def test_a_component_refuses_what_it_does_not_know():
    with pytest.raises(InputError, match='Larger: unknown key "nam"; did you mean "name"'):
        Larger(nam="y")  # type: ignore[call-arg]
