"""Equality by rule: what is equal, what is not, and what is no answer."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tests.resources_servers.playing import score
from velodrome.environments.equivalence_rule.app import EquivalenceRule
from velodrome.environments.equivalence_rule.readings import date_in
from velodrome.errors import InputError


def right(text: str, **task: Any) -> bool:
    return bool(score(EquivalenceRule(), task, text)["reward"])


def test_a_number_is_equal_however_it_is_written():
    cases = [
        (36, "Tom has 36 apples."),
        (36, "Tom has 36 apples, but no pears."),
        (36, "He counted 36 times."),
        (36, "The length of the tenth of them is 36."),
        (36, r"\boxed{x = 36}"),
        (36, r"Answer: \(36\)"),
        (-3.5, "Answer: −3.5"),
        ("1/3", r"\boxed{\frac{1}{3}}"),
        ("3/2", "Answer: 1½"),
        (1234567, "Answer: 1,234,567"),
        ("15%", "Answer: 0.15"),
        ("0.15", r"\boxed{15\%}"),
        (1500, r"\boxed{1.5 \times 10^{3}}"),
        (1500, "Answer: 1.5 × 10³"),
        (36, "Answer: $36"),
        (36, "Answer: 36 = 36.0"),
    ]
    assert [text for expected, text in cases if not right(text, kind="number", expected_answer=expected)] == []


def test_a_number_that_differs_or_is_one_of_several_is_wrong():
    texts = [
        "Answer: 37",
        "Answer: minus 36",
        "Answer: It isn’t 36",
        "Answer: it wasn´t 36",
        "Answer: isnt 36",
        "Answer: It isnʼt 36",
        "Answer: it ain’t 36",
        "Answer: twice 36",
        "Answer: half of 36",
        "Answer: three times 36",
        "Answer: 36 squared",
        "Answer: 36 plus one",
        "Answer: everything but 36",
        "Answer: any number but 36",
        "Answer: every number in the world but 36",
        "Answer: everything - but the 36",
        "Answer: a tenth of 36",
        "Answer: the negation of 36",
        "Answer: 36 times three",
        "Answer: other than 36",
        "Answer: over 36",
        "Answer: 36 or 37",
        "Answer: at least 36",
        "Answer: 36 = 37",
        "Answer: -(36)",
        "Answer: 36\nAnswer: 37",
        r"\boxed{\sqrt{36}}",
        "Answer: 36%",
        "Answer: 3,6",
        "Answer: 36/0",
        "Answer: " + "36" * 5000,
        "36\nThat is all.",
    ]
    assert [text for text in texts if right(text, kind="number", expected_answer=36)] == []


def test_the_task_says_what_tolerance_percent_comma_and_a_bare_number_mean():
    assert right("Answer: 0.333", kind="number", expected_answer="1/3", abs_tolerance=0.001)
    assert right("Answer: 1010", kind="number", expected_answer=1000, rel_tolerance="0.01")
    assert not right("Answer: 1011", kind="number", expected_answer=1000, rel_tolerance="0.01")
    assert not right("Answer: 0.3333333333", kind="number", expected_answer="1/3", abs_tolerance=0)
    assert right("Answer: 15%", kind="number", expected_answer=15, percent=True)
    assert right("Answer: 1.234,5", kind="number", expected_answer="1234,5", decimal_comma=True)
    assert right("Answer: 3.5", kind="unit", expected_answer="3500 m", unit="km")


def test_a_quantity_is_equal_in_any_unit_of_its_dimension():
    cases = [
        ("3.5 km", "Answer: 3500 m"),
        ("3.5 km", r"\boxed{3.5\ \text{km}}"),
        ("90 min", "Answer: 1 h 30 min"),
        ("-40 °C", "Answer: -40 degrees Fahrenheit"),
        ("$5.50", "Answer: 550 cents"),
        ("1 KiB", "Answer: 1024 bytes"),
        ("36 km/h", "Answer: 10 m/s"),
    ]
    assert [text for expected, text in cases if not right(text, kind="unit", expected_answer=expected)] == []


def test_a_quantity_of_another_size_or_dimension_is_wrong():
    cases = [
        ("3.5 km", "Answer: 3.5"),
        ("3.5 km", "Answer: 3.5 kg"),
        ("3.5 km", "Answer: 3.5 km or 4 km"),
        ("4 km", "Answer: 3 km 1 km"),
        ("$5", "Answer: €5"),
        ("1 MB", "Answer: 1 Mb"),
    ]
    assert [text for expected, text in cases if right(text, kind="unit", expected_answer=expected)] == []


def test_a_conversion_is_not_answered_by_the_question():
    metres = {"kind": "unit", "expected_answer": "3500 m", "only_unit": "m"}
    assert [right(f"Answer: {text}", **metres) for text in ("3500 metres", "3.5 km")] == [True, False]
    fraction = {"kind": "number", "expected_answer": "3/8", "form": "fraction"}
    assert [right(f"Answer: {text}", **fraction) for text in ("3/8", "6/16", "0.375")] == [True, False, False]
    decimal = {"kind": "number", "expected_answer": "0.375", "form": "decimal"}
    assert not right("Answer: 3/8", **decimal)


def test_a_date_is_read_in_many_forms():
    texts = [
        "2024-03-05",
        "5 March 2024",
        "5th of March, 2024",
        "05.03.2024",
        "Tuesday, 5 March 2024",
    ]
    assert {text: date_in(text) for text in texts} == dict.fromkeys(texts, date(2024, 3, 5))


@pytest.mark.parametrize("text", ["05/03/2024", "2024-03-05 2024-03-06", "2024-02-30", "Monday, 5 March 2024"])
def test_a_date_that_is_ambiguous_or_not_one_is_refused(text: str):
    assert date_in(text) is None


def test_the_task_says_whether_the_day_comes_first():
    assert (date_in("05/03/2024", True), date_in("05/03/2024", False)) == (date(2024, 3, 5), date(2024, 5, 3))
    assert date_in("25/03/2024") == date_in("03/25/2024") == date(2024, 3, 25)
    assert right("Answer: 05/03/2024", kind="date", expected_answer="2024-03-05", day_first=True)
    assert right("Answer: 5 March 2024", kind="date", expected_answer="2024-03-05")


@pytest.mark.parametrize(
    "text", ["{1, 2, 3}", r"\boxed{\{3, 1, 2\}}", "[1; 2; 3]", "x = 1, x = 2 or x = 3", "1, 1, 2, 3"]
)
def test_a_set_has_no_order(text: str):
    assert right(text, kind="set", item_kind="number", expected_answer=[1, 2, 3])


def test_lists_have_an_order_and_both_must_be_whole():
    colours = {"kind": "list", "expected_answer": ["red", "green"]}
    assert right("Answer: Red, green.", **colours)
    assert right('Answer: ["red", "green"]', **colours)
    assert not right("Answer: green, red", **colours)
    assert not right("Answer: red", **colours)
    assert not right("Answer: red, green, blue", **{**colours, "kind": "set"})
    assert right("Answer: {}", kind="set", item_kind="number", expected_answer=[])
    assert right(
        "Answer: 0.333; 2/3", kind="set", item_kind="number", expected_answer=["1/3", "2/3"], abs_tolerance=0.01
    )
    assert right("Answer: 1 km; 2 kg", kind="list", item_kind="unit", expected_answer=["1000 m", "2000 g"])


def test_texts_are_equal_but_for_case_space_punctuation_and_form():
    paris = {"kind": "text", "expected_answer": "Eiffel Tower", "aliases": ["La dame de fer"]}
    assert all(right(f"Answer: {text}", **paris) for text in ("the  EIFFEL tower!", "Ｅiffel-Tower", "la Dame de Fer"))
    assert not right("Answer: Eiffel Tower or Big Ben", **paris)
    assert not right("Answer: C", kind="text", expected_answer="C++")
    assert not right("Answer: 5", kind="text", expected_answer="-5")


def test_where_it_is_read_and_what_several_results_mean_are_settings():
    sums = {"kind": "number", "expected_answer": 36}
    changed = "Answer: 35\nNo, wait.\nAnswer: 36"
    assert [score(EquivalenceRule(several=rule), sums, changed)["reward"] for rule in ("refuse", "last")] == [0.0, 1.0]
    assert score(EquivalenceRule(extraction=["boxed"]), sums, "Answer: 36") == {
        "reward": 0.0,
        "extracted_answer": None,
        "understood": 0.0,
    }
    with pytest.raises(InputError, match="extraction is empty"):
        EquivalenceRule(extraction=[])


def test_what_is_near_a_date_or_a_quantity_is_another_one():
    days = {"kind": "date", "expected_answer": "2024-03-04"}
    assert right("Answer: March 4, 2024", **days)
    assert not any(right(f"Answer: {text} March 4, 2024", **days) for text in ("before", "the day after", "until"))
    assert not right("Answer: 5 km per hour", kind="unit", expected_answer="5 km")
    assert right("Answer: 5 km per hour", kind="unit", expected_answer="5 km/h")
    assert not right("Answer: all but 1, 2", kind="set", item_kind="number", expected_answer=["1", "2"])
