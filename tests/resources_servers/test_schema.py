"""What a method says of itself becomes the tool that a model is offered, and the check of what it sends."""

from __future__ import annotations

import ast
import enum
import re
from dataclasses import dataclass
from typing import Any, Literal, Optional

import pytest
from pydantic import BaseModel

from velodrome.errors import InputError
from velodrome.resources_servers.environment import Environment, tool
from velodrome.resources_servers.schema import docstring_parts, make_tool


class Unit(enum.Enum):
    KM = "km"
    MILE = "mile"


@dataclass
class Place:
    name: str
    height: float


class Point(BaseModel):
    title: str
    x: int


class Probe:
    def plain(self, text: str, count: int, share: float, flag: bool):
        """Take one of each.

        text: some words
        count: how many
        """

    def rich(
        self,
        kind: Literal["a", "b"],
        unit: Unit,
        names: list[str],
        place: Place,
        point: Point,
        either: int | str,
        maybe: Optional[int],  # noqa: UP045 - the older spelling has to work too
    ): ...

    def loose(self, options: dict[str, int], limit: int = 5): ...

    def odd_names(self, copy: str, json: int, _hidden: str, schema: str, session: object): ...

    def bare(self, city): ...  # type: ignore[no-untyped-def]

    def starred(self, *cities: str): ...

    def unresolved(self, city: Nowhere): ...  # type: ignore[name-defined]  # noqa: F821

    def impossible(self, city: ast.AST): ...


def made(name: str) -> Any:
    return make_tool(Probe, name, getattr(Probe, name))


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}


def test_a_schema_is_made_of_hints_and_docstring():
    assert made("plain").schema == {
        "type": "function",
        "name": "plain",
        "description": "Take one of each.",
        "parameters": closed(
            text={**TEXT, "description": "some words"},
            count={**WHOLE, "description": "how many"},
            share=NUMBER,
            flag={"type": "boolean"},
        ),
        "strict": True,
    }


def test_richer_types_have_a_schema_too_and_a_default_or_an_open_dict_is_not_strict():
    rich, loose = made("rich").schema, made("loose").schema
    assert rich["parameters"].pop("$defs") == {
        "Unit": {"enum": ["km", "mile"], "type": "string"},
        "Place": closed(name=TEXT, height=NUMBER),
        "Point": closed(title=TEXT, x=WHOLE),
    }
    assert rich["parameters"] == closed(
        kind={"enum": ["a", "b"], "type": "string"},
        unit={"$ref": "#/$defs/Unit"},
        names={"items": TEXT, "type": "array"},
        place={"$ref": "#/$defs/Place"},
        point={"$ref": "#/$defs/Point"},
        either={"anyOf": [WHOLE, TEXT]},
        maybe={"anyOf": [WHOLE, {"type": "null"}]},
    )
    options = {"additionalProperties": WHOLE, "type": "object"}
    expected = closed(options=options, limit={**WHOLE, "default": 5}) | {"required": ["options"]}
    assert (rich["strict"], loose["strict"], loose["parameters"]) == (True, False, expected)


def test_arguments_are_checked_and_coerced_and_defaults_left_to_the_function():
    same = {"kind": "a", "names": ["x"], "either": 1, "maybe": None}
    sent = {"unit": "km", "place": {"name": "Fuji", "height": 3776}, "point": {"title": "p", "x": "4"}}
    read = {"unit": Unit.KM, "place": Place("Fuji", 3776.0), "point": Point(title="p", x=4)}
    assert made("rich").check({**same, **sent}) == {**same, **read}
    assert made("loose").check({"options": {"a": "1"}}) == {"options": {"a": 1}}
    odd = made("odd_names")
    assert list(odd.schema["parameters"]["properties"]) == ["copy", "json", "_hidden", "schema"]  # and no session
    assert odd.check({"copy": "a", "json": 1, "_hidden": "b", "schema": "c"})["_hidden"] == "b"
    plain = made("plain").check({"text": 5, "count": "6", "share": 1, "flag": "true"})
    assert plain == {"text": "5", "count": 6, "share": 1.0, "flag": True}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("bare", '"city" has no type hint'),
        ("starred", "named parameters only"),
        ("unresolved", "name 'Nowhere' is not defined"),
        ("impossible", "(city) cannot be offered to a model"),
    ],
)
def test_what_cannot_be_offered_is_named_in_one_line(name: str, why: str):
    with pytest.raises(InputError, match=rf"\AProbe\.{name}: .*{re.escape(why)}.*\Z"):
        made(name)


@pytest.mark.parametrize(
    "text",
    [
        "Look it up.\n\ncity: where\n    to look\nday: when",
        "Look it up.\n\nArgs:\n  city (str): where\n    to look\n  day (int, optional): when\n\nReturns:\n  str: it",
    ],
    ids=["plain", "google"],
)
def test_a_docstring_describes_the_parameters(text: str):
    assert docstring_parts(text, ["city", "day"]) == ("Look it up.", {"city": "where to look", "day": "when"})


@pytest.mark.parametrize(
    ("text", "summary"),
    [("Looks.\na: first\nb: second", "Looks."), ("Looks.\nArgs:\n    a: first\n    b: second", "Looks. Args:")],
)
def test_descriptions_may_follow_the_first_line_without_an_empty_line(text: str, summary: str):
    assert docstring_parts(text, ["a", "b"]) == (summary, {"a": "first", "b": "second"})


def verify(self: Any, task: Any, response: Any) -> Any: ...


def method(self: Any) -> str: ...


def named(name: str) -> Any:
    """A method that is offered under this name."""

    def own(self: Any) -> str: ...

    return tool(name=name)(own)


def test_tool_takes_a_name_and_a_description_and_leaves_the_method_alone():
    class Named(Environment):
        @tool(name="look-up", description="Find it.")
        def find(self, key: str) -> str:
            """Not shown."""
            return key * 2

        verify = verify

    shape = Named()._shape.tools["look-up"].schema
    assert (Named().find("ab"), shape["name"], shape["description"]) == ("abab", "look-up", "Find it.")
    with pytest.raises(InputError, match="not a plain method"):
        tool(staticmethod(len))


def test_mistakes_in_a_class_are_input_errors_that_name_it_and_say_what_to_write():
    def short(self: Any, task: Any) -> Any: ...

    hook = "write def verify(self, task, response)"
    for body, place, why in [
        ({"verify": short}, "Mine.verify", hook),
        ({"verify": lambda self, task, response, truth: 1.0}, "Mine.verify", hook),
        ({"seed_session": method, "verify": verify}, "Mine.seed_session", "write def seed_session(self, task)"),
        ({"verfy": verify}, "Mine has no verify", 'where it says "verfy"'),
        ({}, "Mine has no verify", "def verify(self, task, response)"),
        ({"seed_sesion": method, "verify": verify}, "Mine.seed_sesion", 'did you mean "seed_session"?'),
        ({"one": named("same"), "two": named("same"), "verify": verify}, "Mine.two", 'another tool named "same"'),
        ({"one": named("not a name"), "verify": verify}, "Mine.one", '"not a name" is no tool name'),
    ]:
        with pytest.raises(InputError, match=f"^{place}.*{re.escape(why)}"):
            type("Mine", (Environment,), body)()
