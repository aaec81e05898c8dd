"""Equality by rule: what is equal, what is not, and what is no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from velodrome.errors import InputError, TaskError
from velodrome.resources_servers.equivalence_rule.app import EquivalenceRule
from velodrome.resources_servers.equivalence_rule.equivalence_dates import date_in

Says = Callable[..., dict[str, Any]]


def score(text: str, _settings: dict[str, Any] | None = None, **task: Any) -> dict[str, Any]:
    response = {"output": [{"type": "message", "role": "assistant", "content": text}]}
    return asyncio.run(EquivalenceRule(**(_settings or {})).score("1", task, response))


def right(text: str, **task: Any) -> bool:
    return bool(score(text, **task)["reward"])


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (36, "36"),
        (36, "Tom has 36 apples."),
        (36, "It is 3 × 12 = 36."),
        (36, "The sum of 17 and 19 is 36."),
        (36, "<answer>36</answer>"),
        (36, r"\boxed{36}"),
        (36, r"\boxed{x = 36}"),
        (36, r"Answer: \(36\)"),
        (36, "#### 36"),
        (36, "**Answer:** 36."),
        (-3.5, "Answer: −3.5"),
        ("1/3", r"\boxed{\frac{1}{3}}"),
        ("1/3", "Answer: 2/6"),
        ("3/2", "Answer: 1 1/2"),
        ("3/2", "Answer: 1½"),
        (1234567, "Answer: 1,234,567"),
        (1234567, "Answer: 1 234 567"),
        (1234567, "Answer: 1'234'567"),
        ("15%", "Answer: 0.15"),
        ("0.15", r"\boxed{15\%}"),
        (1500, "Answer: 1.5e3"),
        (1500, r"\boxed{1.5 \times 10^{3}}"),
        (1500, "Answer: 1.5 × 10³"),
        (36, "Answer: $36"),
        (36, "Answer: 36 = 36.0"),
        (36, "Answer: 36 miles per hour"),
    ],
)
def test_a_number_is_equal_however_it_is_written(expected: Any, text: str) -> None:
    assert right(text, kind="number", expected_answer=expected)


@pytest.mark.parametrize(
    "text",
    [
        "Answer: 37",
        "Answer: minus 36",
        "Answer: negative 36",
        "Answer: 36 million",
        "Answer: 36 dozen",
        "Answer: 36 thousand",
        "Answer: 36 or 37",
        "Answer: 36-37",
        "Answer: 36 - 37",
        "Answer: 36, 37",
        "Answer: between 36 and 36",
        "Answer: at least 36",
        "Answer: not 36",
        "Answer: > 36",
        "Answer: 36 ± 1",
        "Answer: 36 = 37",
        "Answer: 37 = 36",
        "Answer: 37 is 36",
        "It is 35, it is 36",
        "Answer: -(36)",
        "Answer: 36\nAnswer: 37",
        r"\boxed{36} \boxed{37}",
        r"\boxed{\sqrt{36}}",
        r"\boxed{36x}",
        r"\boxed{36\pi}",
        r"\boxed{36^2}",
        "Answer: 36%",
        "Answer: 3,6",
        "Answer: thirty-six",
        "Answer: 36/0",
        "Answer: " + "36" * 5000,
        "Answer: 36e99999",
        "36\nThat is all.",
    ],
)
def test_a_number_that_differs_or_is_one_of_several_is_wrong(text: str) -> None:
    assert not right(text, kind="number", expected_answer=36)


def test_the_task_says_what_tolerance_percent_and_comma_mean() -> None:
    assert not right("Answer: 0.333", kind="number", expected_answer="1/3")
    assert right("Answer: 0.333", kind="number", expected_answer="1/3", abs_tolerance=0.001)
    assert right("Answer: 1010", kind="number", expected_answer=1000, rel_tolerance="0.01")
    assert not right("Answer: 1011", kind="number", expected_answer=1000, rel_tolerance="0.01")
    assert not right("Answer: 0.3333333333", kind="number", expected_answer="1/3", abs_tolerance=0)
    assert right("Answer: 15%", kind="number", expected_answer=15, percent=True)
    assert right("Answer: 1.234,5", kind="number", expected_answer="1234,5", decimal_comma=True)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("3.5 km", "Answer: 3500 m"),
        ("3.5 km", "It is 3.5 kilometres long."),
        ("3.5 km", "Answer: 3.5km"),
        ("3.5 km", r"\boxed{3.5\ \text{km}}"),
        ("3.5 km", "Answer: 3.5 km = 3500 m"),
        ("90 min", "Answer: 1 h 30 min"),
        ("90 min", "Answer: 1.5 hours"),
        ("90 min", "Answer: 1h30min"),
        ("90 min", "Answer: 90 minutes (1.5 h)"),
        ("1 h 30 min", "Answer: 1 hour and 30 minutes"),
        ("2 kg", "Answer: 2,000 g"),
        ("100 °C", "Answer: 212 °F"),
        ("100 °C", r"\boxed{100^\circ C}"),
        ("-40 °C", "Answer: -40 degrees Fahrenheit"),
        ("$5.50", "Answer: 5.50 dollars"),
        ("$5.50", "Answer: USD 5.5"),
        ("$5.50", "Answer: 550 cents"),
        ("1 KiB", "Answer: 1024 bytes"),
        ("36 km/h", "Answer: 10 m/s"),
        ("6 m2", "Answer: 6 m²"),
        ("6 ft 2 in", "Answer: 74 inches"),
    ],
)
def test_a_quantity_is_equal_in_any_unit_of_its_dimension(expected: str, text: str) -> None:
    assert right(text, kind="unit", expected_answer=expected)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("3.5 km", "Answer: 3.5"),
        ("3.5 km", "Answer: 3.5 m"),
        ("3.5 km", "Answer: 3.5 kg"),
        ("3.5 km", "Answer: 3.5 parsnips"),
        ("3.5 km", "Answer: 3.5 km or 4 km"),
        ("3.5 km", "Answer: 3 km, 3.5 km"),
        ("3.5 km", "Answer: 3.5 km x9"),
        ("3.5 km", "Answer: 3-3.5 km"),
        ("4 km", "Answer: 3 km 1 km"),
        ("$5", "Answer: €5"),
        ("1 MB", "Answer: 1 Mb"),
        ("1 h 30 min", "Answer: 1 h or 30 min"),
    ],
)
def test_a_quantity_of_another_size_or_dimension_is_wrong(expected: str, text: str) -> None:
    assert not right(text, kind="unit", expected_answer=expected)


def test_a_unit_may_be_left_out_where_the_task_names_it() -> None:
    assert right("Answer: 3.5", kind="unit", expected_answer="3500 m", unit="km")
    assert right("Answer: 3500 m", kind="unit", expected_answer="3500 m", unit="km")


def test_a_conversion_is_not_answered_by_the_question() -> None:
    metres = {"kind": "unit", "expected_answer": "3500 m", "only_unit": "m"}
    assert [right(f"Answer: {text}", **metres) for text in ("3500 metres", "3.5 km", "3 km 500 m")] == [
        True,
        False,
        False,
    ]
    celsius = {"kind": "unit", "expected_answer": "37 °C", "only_unit": "°C"}
    assert [right(f"Answer: {text}", **celsius) for text in ("37 °C", "98.6 °F", "310.15 K")] == [True, False, False]
    fraction = {"kind": "number", "expected_answer": "3/8", "form": "fraction"}
    assert [right(f"Answer: {text}", **fraction) for text in ("3/8", "6/16", "0.375")] == [True, False, False]
    decimal = {"kind": "number", "expected_answer": "0.375", "form": "decimal"}
    assert not right("Answer: 3/8", **decimal)


@pytest.mark.parametrize(
    "text",
    [
        "2024-03-05",
        "2024/3/5",
        "5 March 2024",
        "5th of March, 2024",
        "March 5, 2024",
        "Mar. 5 2024",
        "05.03.2024",
        "5-Mar-2024",
        "Tuesday, 5 March 2024",
        "it was on 2024-03-05, I think",
    ],
)
def test_a_date_is_read_in_many_forms(text: str) -> None:
    assert date_in(text) == date(2024, 3, 5)


@pytest.mark.parametrize(
    "text",
    [
        "05/03/2024",
        "2024-03-05 2024-03-06",
        "2024-02-30",
        "5/3/24",
        "Monday, 5 March 2024",
        "March 2024",
        "2024-03-051",
    ],
)
def test_a_date_that_is_ambiguous_or_not_one_is_refused(text: str) -> None:
    assert date_in(text) is None


def test_the_task_says_whether_the_day_comes_first() -> None:
    assert (date_in("05/03/2024", True), date_in("05/03/2024", False)) == (date(2024, 3, 5), date(2024, 5, 3))
    assert (date_in("25/03/2024"), date_in("03/25/2024"), date_in("03/03/2024")) == (
        date(2024, 3, 25),
        date(2024, 3, 25),
        date(2024, 3, 3),
    )
    assert right("Answer: 05/03/2024", kind="date", expected_answer="2024-03-05", day_first=True)
    assert right("Answer: 5 March 2024", kind="date", expected_answer="2024-03-05")


@pytest.mark.parametrize(
    "text", ["{1, 2, 3}", "3, 2 and 1", r"\boxed{\{3, 1, 2\}}", "[1; 2; 3]", "x = 1, x = 2 or x = 3", "1, 1, 2, 3"]
)
def test_a_set_has_no_order(text: str) -> None:
    assert right(text, kind="set", item_kind="number", expected_answer=[1, 2, 3])


def test_lists_have_an_order_and_both_must_be_whole() -> None:
    colours = {"kind": "list", "expected_answer": ["red", "green"]}
    assert right("Answer: Red, green.", **colours)
    assert right('Answer: ["red", "green"]', **colours)
    assert not right("Answer: green, red", **colours)
    assert not right("Answer: red", **colours)
    assert not right("Answer: red, green, blue", **colours)
    assert not right("Answer: red, green, blue", **{**colours, "kind": "set"})
    assert right("Answer: {}", kind="set", item_kind="number", expected_answer=[])
    assert right(
        "Answer: 0.333; 2/3", kind="set", item_kind="number", expected_answer=["1/3", "2/3"], abs_tolerance=0.01
    )
    assert right("Answer: 1 km; 2 kg", kind="list", item_kind="unit", expected_answer=["1000 m", "2000 g"])


def test_texts_are_equal_but_for_case_space_punctuation_and_form() -> None:
    paris = {"kind": "text", "expected_answer": "Eiffel Tower", "aliases": ["La dame de fer"]}
    assert [
        right(f"Answer: {text}", **paris) for text in ("the  EIFFEL tower!", "Ｅiffel-Tower", "la Dame de Fer")
    ] == [True] * 3
    assert not right("Answer: Eiffel Tower or Big Ben", **paris)
    assert not right("Answer: C", kind="text", expected_answer="C++")
    assert not right("Answer: 5", kind="text", expected_answer="-5")


def test_where_it_is_read_and_what_several_results_mean_are_settings() -> None:
    sums = {"kind": "number", "expected_answer": 36}
    changed = "Answer: 35\nNo, wait.\nAnswer: 36"
    assert (score(changed, **sums)["reward"], score(changed, {"several": "last"}, **sums)["reward"]) == (0.0, 1.0)
    assert score("Answer: 36", {"extraction": ["boxed"]}, **sums) == {
        "reward": 0.0,
        "extracted_answer": None,
        "understood": 0.0,
    }
    with pytest.raises(InputError, match="extraction is empty"):
        EquivalenceRule(extraction=[])


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ({}, "kind"),
        ({"kind": "colour", "expected_answer": "red"}, "kind"),
        ({"kind": "number"}, "expected_answer"),
        ({"kind": "number", "expected_answer": "many"}, "expected_answer"),
        ({"kind": "number", "expected_answer": True}, "expected_answer"),
        ({"kind": "number", "expected_answer": 1, "abs_tolerance": -1}, "abs_tolerance"),
        ({"kind": "number", "expected_answer": 1, "percent": "yes"}, "percent"),
        ({"kind": "unit", "expected_answer": "3 parsnips"}, "expected_answer"),
        ({"kind": "unit", "expected_answer": "3 m", "unit": "parsnip"}, "unit"),
        ({"kind": "unit", "expected_answer": "3 m", "only_unit": "km"}, "expected_answer"),
        ({"kind": "number", "expected_answer": 1, "form": "roman"}, "form"),
        ({"kind": "date", "expected_answer": "03/04/2024"}, "expected_answer"),
        ({"kind": "set", "expected_answer": "1, 2"}, "expected_answer"),
        ({"kind": "set", "expected_answer": [1, None]}, "expected_answer"),
        ({"kind": "text", "expected_answer": "x", "aliases": "y"}, "aliases"),
    ],
)
def test_a_task_that_cannot_be_scored_names_its_field(task: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskError, match=f'"{field}"'):
        score("Answer: 1", **task)


def test_the_examples_withstand_their_examination(examined: Callable[..., dict[str, Any]]) -> None:
    rewards = examined(EquivalenceRule, "equivalence_rule")
    assert len(rewards["references"]) >= 12
    assert {kind: reward for kind, reward in rewards["references"].items() if reward != 1.0} == {}
    for group in ("wrong", "cheats", "hostile"):
        assert {kind: reward for kind, reward in rewards[group].items() if reward} == {}
    assert len(rewards["cheats"]) >= 12 * 15


def test_what_is_near_a_date_or_a_quantity_is_another_one() -> None:
    days = {"kind": "date", "expected_answer": "2024-03-04"}
    assert right("Answer: March 4, 2024", **days)
    assert not any(right(f"Answer: {text} March 4, 2024", **days) for text in ("before", "the day after", "until"))
    assert not right("Answer: 5 km per hour", kind="unit", expected_answer="5 km")
    assert not right("Answer: 5 km per person", kind="unit", expected_answer="5 km")
    assert right("Answer: 5 km per hour", kind="unit", expected_answer="5 km/h")
    assert not right("Answer: all but 1, 2", kind="set", item_kind="number", expected_answer=["1", "2"])
