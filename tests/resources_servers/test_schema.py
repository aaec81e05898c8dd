from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Literal, Optional

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from velodrome.errors import InputError
from velodrome.resources_servers.environment import Environment, tool
from velodrome.resources_servers.schema import described, make_tool


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


class Row(TypedDict):
    key: str


class Probe:
    def plain(self, text: str, count: int, share: float, flag: bool) -> None:
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
        row: Row,
        either: int | str,
        maybe: Optional[int],  # noqa: UP045 - the older spelling has to work too
    ) -> None: ...

    def loose(self, options: dict[str, int], limit: int = 5) -> None: ...

    def stateful(self, count: int, session: object) -> None: ...

    def odd_names(self, copy: str, json: int, _hidden: str, schema: str) -> None: ...

    def bare(self, city) -> None: ...  # type: ignore[no-untyped-def]

    def starred(self, *cities: str) -> None: ...

    def unresolved(self, city: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def impossible(self, city: Opaque) -> None: ...


class Opaque:
    pass


def made(name: str) -> Any:
    return make_tool(Probe, name, getattr(Probe, name))


def test_a_schema_is_made_of_hints_and_docstring() -> None:
    assert made("plain").schema == {
        "type": "function",
        "name": "plain",
        "description": "Take one of each.",
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "some words"},
                "count": {"type": "integer", "description": "how many"},
                "share": {"type": "number"},
                "flag": {"type": "boolean"},
            },
            "required": ["text", "count", "share", "flag"],
            "additionalProperties": False,
        },
        "strict": True,
    }


def test_richer_types_have_a_schema_too() -> None:
    schema = made("rich").schema
    assert (schema["strict"], schema["parameters"]) == (
        True,
        {
            "type": "object",
            "properties": {
                "kind": {"enum": ["a", "b"], "type": "string"},
                "unit": {"$ref": "#/$defs/Unit"},
                "names": {"items": {"type": "string"}, "type": "array"},
                "place": {"$ref": "#/$defs/Place"},
                "point": {"$ref": "#/$defs/Point"},
                "row": {"$ref": "#/$defs/Row"},
                "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            },
            "required": ["kind", "unit", "names", "place", "point", "row", "either", "maybe"],
            "additionalProperties": False,
            "$defs": {
                "Unit": {"enum": ["km", "mile"], "type": "string"},
                "Place": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "height": {"type": "number"}},
                    "required": ["name", "height"],
                    "additionalProperties": False,
                },
                "Point": {
                    "type": "object",
                    "properties": {"title": {"type": "string"}, "x": {"type": "integer"}},
                    "required": ["title", "x"],
                    "additionalProperties": False,
                },
                "Row": {
                    "type": "object",
                    "properties": {"key": {"type": "string"}},
                    "required": ["key"],
                    "additionalProperties": False,
                },
            },
        },
    )


def test_a_default_or_an_open_dict_makes_a_schema_that_is_not_strict() -> None:
    schema = made("loose").schema
    assert (schema["strict"], schema["parameters"]) == (
        False,
        {
            "type": "object",
            "properties": {
                "options": {"additionalProperties": {"type": "integer"}, "type": "object"},
                "limit": {"type": "integer", "default": 5},
            },
            "required": ["options"],
            "additionalProperties": False,
        },
    )


def test_arguments_are_checked_and_coerced_and_defaults_left_to_the_function() -> None:
    rich = made("rich").check(
        {
            "kind": "a",
            "unit": "km",
            "names": ["x"],
            "place": {"name": "Fuji", "height": 3776},
            "point": {"title": "p", "x": "4"},
            "row": {"key": "k"},
            "either": 1,
            "maybe": None,
        }
    )
    assert rich == {
        "kind": "a",
        "unit": Unit.KM,
        "names": ["x"],
        "place": Place("Fuji", 3776.0),
        "point": Point(title="p", x=4),
        "row": {"key": "k"},
        "either": 1,
        "maybe": None,
    }
    assert made("loose").check({"options": {"a": "1"}}) == {"options": {"a": 1}}
    assert made("plain").check({"text": 5, "count": "6", "share": 1, "flag": "true"}) == {
        "text": "5",
        "count": 6,
        "share": 1.0,
        "flag": True,
    }


def test_the_session_is_no_part_of_the_schema_and_odd_names_are_fine() -> None:
    assert list(made("stateful").schema["parameters"]["properties"]) == ["count"]
    assert list(made("odd_names").schema["parameters"]["properties"]) == ["copy", "json", "_hidden", "schema"]
    assert made("odd_names").check({"copy": "a", "json": 1, "_hidden": "b", "schema": "c"})["_hidden"] == "b"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("bare", 'Probe.bare: parameter "city" has no type hint; write for example city: str'),
        ("starred", "Probe.starred: parameter \"*cities: 'str'\": a tool takes named parameters only"),
        (
            "unresolved",
            'Probe.unresolved: the type hint of "city" (Nowhere) cannot be resolved: '
            "name 'Nowhere' is not defined; define it at module level",
        ),
    ],
)
def test_what_cannot_be_offered_is_named(name: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        made(name)
    assert str(caught.value) == problem


def test_a_type_without_a_schema_is_named_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^Probe\.impossible: a type hint among \(city\) cannot be offered") as caught:
        made("impossible")
    assert len(caught.value.problems) == 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "Look it up.\n\ncity: where\n    to look\nday: when",
        "Look it up.\n\nArgs:\n  city (str): where\n    to look\n  day (int, optional): when\n\nReturns:\n  str: it",
        "Look it up.\n\n:param city: where\n    to look\n:param int day: when\n:returns: it",
        "Look it up.\n\nParameters\n----------\ncity : str\n    where\n    to look\nday : int, optional\n    when",
        "Look it\nup.\n\nMore words that are not shown.\n\ncity: where to look\nday: when",
        "Look it up.\ncity: where to look\nday: when",
    ],
    ids=["plain", "google", "sphinx", "numpy", "long", "no blank line"],
)
def test_the_usual_docstrings_are_read(text: str) -> None:
    assert described(text, ["city", "day"]) == ("Look it up.", {"city": "where to look", "day": "when"})


def test_tool_takes_a_name_and_a_description_and_leaves_the_method_alone() -> None:
    class Named(Environment):
        @tool(name="look-up", description="Find it.")
        def find(self, key: str) -> str:
            """Not shown."""
            return key * 2

        def verify(self, task: Any, response: Any) -> Any: ...

    found = Named()
    assert found.find("ab") == "abab"
    shape = found._shape.tools["look-up"].schema
    assert (shape["name"], shape["description"]) == ("look-up", "Find it.")


def test_mistakes_in_a_class_are_input_errors() -> None:
    class Twice(Environment):
        @tool(name="same")
        def one(self) -> str: ...

        @tool(name="same")
        def two(self) -> str: ...

        def verify(self, task: Any, response: Any) -> Any: ...

    class NoVerify(Environment):
        pass

    class BadName(Environment):
        @tool(name="not a name")
        def one(self) -> str: ...

        def verify(self, task: Any, response: Any) -> Any: ...

    class Misspelt(Environment):
        def verfy(self, task: Any, response: Any) -> Any: ...

    class NeverSeeded(Environment):
        def seed_sesion(self, task: Any) -> Any: ...

        def verify(self, task: Any, response: Any) -> Any: ...

    for owner, problem in [
        (Misspelt, 'did you mean verify where it says "verfy"?'),
        (NeverSeeded, 'NeverSeeded.seed_sesion is never called; did you mean "seed_session"?'),
    ]:
        with pytest.raises(InputError) as caught:
            owner()
        assert str(caught.value).endswith(problem)
    for owner, problem in [
        (Twice, 'Twice.two: there is another tool named "same"'),
        (NoVerify, "NoVerify has no verify; write def verify(self, task, response)"),
        (BadName, 'BadName.one: "not a name" is no tool name: use letters, digits, _ and -, at most 64'),
    ]:
        with pytest.raises(InputError) as caught:
            owner()
        assert str(caught.value) == problem
    with pytest.raises(InputError, match="not a plain method"):
        tool(staticmethod(len))


def test_a_hook_with_other_parameters_is_an_input_error_that_says_what_to_write_and_where() -> None:
    class Short(Environment):
        def verify(self, task: Any) -> Any: ...

    class Long(Environment):
        def verify(self, task: Any, response: Any, truth: Any) -> Any: ...

    class Seedless(Environment):
        def seed_session(self) -> Any: ...

        def verify(self, task: Any, response: Any, session: Any) -> Any: ...

    for owner, wanted in [
        (Short, "write def verify(self, task, response)"),
        (Long, "write def verify(self, task, response)"),
        (Seedless, "write def seed_session(self, task)"),
    ]:
        with pytest.raises(InputError) as caught:
            owner()
        assert str(caught.value).startswith(f"{owner.__name__}.")
        assert wanted in str(caught.value)
        assert "tests/resources_servers/test_schema.py:" in str(caught.value)
