from __future__ import annotations

import asyncio
import math
import string
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.resources_servers.playing import says, score
from velodrome.resources_servers.answers import last_number, same_number, value_of
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.resources_servers.calculator.arithmetic import FUNCTIONS


def told(expression: str) -> str:
    return asyncio.run(Calculator().call("1", "calculator", {"expression": expression}))


def test_arithmetic_is_right():
    values = {
        "240 * 0.15": "36.0",
        "47 × 23": "1081",
        "2^10": "1024",
        "-2**2": "-4",
        "2**3**2": "512",
        "-0.0": "0.0",
        "sqrt(2)": "1.4142135623731",
        "log(8, 2) + ln(e)": "4.0",
        "max(1, 2.5, abs(-3)) + min(4)": "7",
        "factorial(20)": "2432902008176640000",
        "cos(pi)": "-1.0",
    }
    assert {expression: told(expression) for expression in values} == values


def test_what_cannot_be_computed_is_told_in_one_line():
    problems = {
        "1 / 0": "error: division by zero",
        "9**9**9": "error: the number is too large",
        "factorial(10**6)": "error: factorial takes a whole number from 0 to 400",
        "(-8)**(1/3)": "error: the answer is not a real number",
        "1,000 * 2": "error: a comma only separates arguments; write 1000, not 1,000",
        "(" * 240 + "1" + ")" * 240: "error: this is not an arithmetic expression",
        "-" * 400 + "1": "error: the expression is nested too deeply",
        "1+" * 400 + "1": "error: the expression is longer than 500 characters",
    }
    assert {expression: told(expression) for expression in problems} == problems


NOT_ARITHMETIC = """
    __import__('os').system('true') | ().__class__ | open | sqrt | sqrt(x=1) | min(*[1]) | lambda: 1 | [1, 2] | 'a' * 9
    | 1 if 1 else 2 | 1if 1else 2 | True | 1 < 2 | not 1 | ~1 | 1 << 5 | 1j | 1_000 | 0x10 | x := 1
    | \x00 | １＋１ | print(1)
"""


@pytest.mark.parametrize("expression", [each.strip() for each in NOT_ARITHMETIC.strip().split("|")])
def test_nothing_but_arithmetic_is_evaluated(expression: str):
    assert told(expression).startswith("error: ")


pieces = st.sampled_from(
    [*string.digits, *"+-*/%^().,eE_ \t", "**", "//", "9**9", "1e308", *(f"{name}(" for name in FUNCTIONS)]
)
hostile = st.one_of(st.text(max_size=600), st.lists(pieces, max_size=120).map("".join))


@settings(max_examples=200)
@given(hostile)
def test_whatever_a_model_writes_the_answer_is_short_text(expression: str):
    text = told(expression)
    assert isinstance(text, str)
    assert len(text) <= 1100
    if not text.startswith("error: "):
        assert math.isfinite(float(text)) or len(text) > 300


@pytest.mark.parametrize(
    ("text", "number", "value"),
    [
        ("15% of 240 is 36", "36", 36),
        ("The answer is 1,081.", "1,081", 1081),
        ("10-5", "5", 5),
        ("that makes $36.00", "36.00", 36),
        (r"\boxed{\frac{1}{2}}", "1/2", Fraction(1, 2)),
        (r"\boxed{1{,}000}", "1,000", 1000),
        ("5/0", "5/0", None),
        ("1,234,567.89 dollars", "1,234,567.89", Fraction(123456789, 100)),
        ("x2 and CO2", None, None),
    ],
)
def test_the_last_number_of_an_answer_is_found(text: str, number: str | None, value: Fraction | None):
    result = last_number(text)
    assert (result, None if result is None else value_of(result)) == (number, value)


def test_a_runaway_answer_is_read_at_its_end():
    assert last_number("1,111" * 400_000 + " so it is 7") == "7"
    assert last_number("-" * 2_000_000) is None


def test_whole_numbers_must_be_equal_and_others_nearly():
    third = Fraction("0.3333333")
    assert [
        same_number(Fraction(10**20), Fraction(10**20 + 1)),
        same_number(third, Fraction(1, 3)),
        same_number(Fraction("0.333"), Fraction(1, 3)),
        same_number(Fraction(0), Fraction(0)),
        same_number(Fraction("1346270.1"), Fraction(1346269)),
        same_number(Fraction("1346268.9999999"), Fraction(1346269)),
    ] == [False, True, False, True, False, True]


@pytest.mark.parametrize(
    ("expected", "text", "reward", "extracted"),
    [
        ("36", "15% of 240 is 36", 1.0, "36"),
        (13.5, "It costs $13.50.", 1.0, "13.50"),
        ("36", "37", 0.0, "37"),
        ("36", "", 0.0, None),
    ],
)
def test_the_reward_compares_the_last_number(expected: Any, text: str, reward: float, extracted: str | None):
    response = says(text, ("calculator", '{"expression": "240 * 0.15"}', "36.0"))
    assert score(Calculator(), {"expected_answer": expected}, response) == {
        "reward": reward,
        "accuracy": reward,
        "extracted_answer": extracted,
    }
