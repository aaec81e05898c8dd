"""Evaluate arithmetic from a model.

The text is hostile: only numbers, operators and a few functions are accepted, every value is bounded before it is
computed, and any mistake is a `ValueError` with one line for the model. `^` is a power, as in mathematics; there are no
bit operations.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

MAX_LENGTH = 500
MAX_DEPTH = 60
MAX_BITS = 3_400  # a little over a thousand digits
MAX_FACTORIAL = 400
MAX_PLACES = 300

Number = int | float

# A digit next to a letter ("1if x") is rejected here, because the parser only warns about it.
ALLOWED = re.compile(
    r"(?: [ \t\r\n]++ | [-+*/%(),]++ | (?:\d++(?:\.\d*+)?+ | \.\d++)(?:[eE][-+]?+\d++)?+ (?![\w.]) | [A-Za-z_]\w*+ )*+",
    re.ASCII | re.VERBOSE,
)
SPELLING = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "\u00a0": " "})


def _rounded(value: Number, places: int = 0) -> Number:
    if not isinstance(places, int) or abs(places) > MAX_PLACES:
        raise ValueError(f"round takes a whole number of places, at most {MAX_PLACES}")
    return round(value, places) if places else round(value)


def _factorial(value: Number) -> int:
    if value != int(value) or not 0 <= value <= MAX_FACTORIAL:
        raise ValueError(f"factorial takes a whole number from 0 to {MAX_FACTORIAL}")
    return math.factorial(int(value))


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0 and abs(base) > 1:
        _fits(base.bit_length() * exponent if exponent < MAX_BITS else MAX_BITS + 1)
    result: Any = base**exponent
    if isinstance(result, complex):
        raise ValueError("the answer is not a real number")
    power: Number = result
    return power


def _fits(bits: int) -> None:
    if bits > MAX_BITS:
        raise ValueError("the number is too large")


BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: _power,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "round": _rounded,
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
    "sum": lambda *values: sum(values),
    "pow": _power,
    "factorial": _factorial,
    **{
        name: getattr(math, name)
        for name in (
            *("sqrt", "exp", "log", "log2", "log10", "floor", "ceil", "trunc", "hypot", "gcd", "lcm"),
            *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "degrees", "radians"),
        )
    },
    "ln": math.log,
}
CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}


@lru_cache(maxsize=4096)
def evaluate(expression: str) -> str:
    """The value as text: whole numbers stay whole, others have at most 15 significant digits."""
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"the expression is longer than {MAX_LENGTH} characters")
    text = expression.translate(SPELLING).replace("^", "**").strip()
    if not ALLOWED.fullmatch(text):
        raise ValueError("only numbers, + - * / // % ** ^, parentheses and functions such as sqrt are understood")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("this is not an arithmetic expression") from None
    try:
        return _text(_value(tree.body, 0))
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except OverflowError:
        raise ValueError("the number is too large") from None
    except TypeError:
        raise ValueError("a function was given the wrong number or kind of arguments") from None


def _value(node: ast.expr, depth: int) -> Number:
    if depth > MAX_DEPTH:
        raise ValueError("the expression is nested too deeply")
    value: Any
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            pass
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _value(operand, depth + 1)
            value = -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in BINARY:
            value = BINARY[type(operator)](_value(left, depth + 1), _value(right, depth + 1))
        case ast.Name(id=name) if name in CONSTANTS:
            value = CONSTANTS[name]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            value = FUNCTIONS[name](*[_value(each, depth + 1) for each in arguments])
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            raise ValueError(f'"{name[:40]}" is not known; there are {", ".join((*FUNCTIONS, *CONSTANTS))}')
        case ast.Tuple():
            raise ValueError("a comma only separates arguments; write 1000, not 1,000")
        case _:
            raise ValueError("only numbers, + - * / // % ** ^, parentheses and functions such as sqrt are understood")
    return _bounded(value)


def _bounded(value: Any) -> Number:
    if isinstance(value, int):
        _fits(value.bit_length())
    elif not math.isfinite(value):
        raise ValueError("the number is too large")
    bounded_value: Number = value
    return bounded_value


def _text(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    return repr(float(f"{value:.15g}") + 0.0)  # adding zero turns -0.0 into 0.0
