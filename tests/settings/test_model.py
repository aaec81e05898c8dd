"""Settings as pydantic models: every mistake at once, unknown keys with the nearest name, tables."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import product
from typing import ClassVar, Literal

import pytest
from pydantic import AliasChoices

from velodrome import Environment
from velodrome.cli.main import VERBS
from velodrome.errors import InputError
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.settings.component import Component, Field, settings_of
from velodrome.settings.model import Settings, find_mistakes, setting_names
from velodrome.settings.values import FilePath, Names


class Inner(Settings):
    depth: int = Field(1, ge=1, description="how deep")


class Outer(Settings):
    parallel: int = Field(16, ge=1, alias="num_samples_in_parallel", description="rollouts in flight")
    api_key: str | None = Field(None, description="the key")
    inner: Inner = Field(default_factory=Inner, description="more")
    share: float = Field(0.01, le=0.05, description="how much")
    kind: Literal["a", "b"] = Field("a", description="which")
    path: FilePath | None = Field(None, description="where")
    names: Names = Field((), description="who")


def test_every_mistake_is_reported_at_once_and_unknown_keys_first():
    values = {"num_samples_in_parallel": 0, "api_key": 7, "inner": {"dept": 1}, "paralel": 3}
    with pytest.raises(InputError) as caught:
        Outer.read(values, "here")
    parts = ['"inner.dept"; did you mean "depth"?', '"paralel"', "num_samples_in_parallel", "api_key"]
    lines = caught.value.problems
    assert all(line.startswith("here: ") and part in line for part, line in zip(parts, lines, strict=True)), lines
    assert "7" not in lines[3]


def test_a_mistake_is_told_in_our_words():
    for values, line in (
        ({"parallel": -1}, "parallel: expected a whole number from 1, not -1"),
        ({"parallel": 1.5}, "parallel: expected a whole number, not 1.5"),
        ({"share": 2}, "share: expected a number up to 0.05, not 2"),
        ({"inner": 3}, "inner: expected a mapping, not 3"),
        ({"kind": "c"}, "kind: expected 'a' or 'b', not 'c'"),
        ({"names": 3}, "names: expected a list, not 3"),
    ):
        with pytest.raises(InputError) as caught:
            Outer.read(values)
        assert caught.value.problems == (line,)


def _kinds(base: type[Settings]) -> Iterator[type[Settings]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


def test_no_mistake_in_any_setting_is_told_in_the_words_of_pydantic():
    for verb in VERBS.values():
        import_module(f"velodrome.{verb.module}")
    for kind in _kinds(Settings):
        for name, value in product(
            kind.model_fields, (object(), -1, "", "?", [None], {"a": 1}, 1.5, float("inf"), 10**9)
        ):
            assert not [line for line in find_mistakes(kind, {name: value}) if " should " in line]


def test_a_field_is_known_by_its_alias_and_by_its_own_name():
    assert Outer.read({"num_samples_in_parallel": 3}) == Outer.read({"parallel": 3})
    assert Outer.read({"parallel": None}).parallel == 16  # None means the default
    assert setting_names(Outer) == {"num_samples_in_parallel", *Outer.model_fields} - {"parallel"}


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


class FastMode(Environment):
    def verify(self, task, response):
        return {"reward": 1.0 if self.config.get("fast_mode", False) else 0.5}


class Declared(FastMode):
    fast_mode: bool = False


def test_a_class_that_declares_nothing_takes_any_key():
    made = FastMode(fast_mode=True, threads=2)  # type: ignore[call-arg]
    assert made.verify({}, None) == {"reward": 1.0}
    assert (made.config["threads"], FastMode().verify({}, None)) == (2, {"reward": 0.5})


def test_a_class_that_declares_its_settings_and_one_that_ships_refuse_others():
    for owner in (Declared, Calculator):
        with pytest.raises(InputError, match="fast_mod"):
            owner(fast_mod=True)
    with pytest.raises(InputError, match='unknown key "tool_timeout"; did you mean "tool_timeout_s"'):
        FastMode(tool_timeout=3)  # type: ignore[call-arg] - a misspelt limit, where any key is taken
