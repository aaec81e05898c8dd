"""Which answers may reach a scorer of reasoning-gym; the others earn nothing.

Nine scorers evaluate the answer as Python: four with `eval`, five with sympy's `parse_expr`, which also uses `eval`.
They only get literals and formulas; code earns nothing and never runs. Some scorers give full marks for answers without
content; those answers are checked here first.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

from velodrome.resources_servers.answers import boxed

Json = dict[str, Any]

EVALUATED = frozenset(("binary_matrix", "n_queens", "spiral_matrix", "string_insertion"))
PARSED = frozenset(
    ("countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration")
)
SUMS = frozenset(("countdown", "puzzle24"))  # of given numbers, by the four operations
LONGEST = 100_000  # characters; the longest right answers have a few thousand
_LONGEST_FORMULA = 5_000
_LARGEST_POWER = 100  # of a number; of a formula with a variable a hundred times that
_FUNCTIONS = frozenset(
    (
        *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
        *("asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "Abs"),
    )
)
# No names: `eval` could read the scorer's variables, such as the right answer.
_LITERALS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Constant, ast.Load, ast.UnaryOp, ast.USub, ast.UAdd)
_SUMS = (ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UnaryOp, ast.USub, ast.UAdd, ast.Constant)
_FORMULAS = (
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UnaryOp, ast.USub, ast.UAdd),
    *(ast.Constant, ast.Name, ast.Load, ast.Call),
)


def answer_in(text: str) -> str | None:
    """The text between the last pair of answer tags, or else in the last `\\boxed{…}`."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    if start >= 0:
        return text[start + len("<answer>") : end].strip()
    in_boxes = boxed(text)
    return in_boxes[-1].strip() if in_boxes else None


def to_score(family: str, answer: str, entry: Json) -> str | None:
    """The answer for the scorer; None for an answer that earns nothing."""
    if answer == entry["answer"]:
        return answer
    if len(answer) > LONGEST or not _has_content(family, answer, entry):
        return None
    if family not in EVALUATED | PARSED:
        return answer
    try:
        return _harmless(family, answer, entry)
    except (RecursionError, MemoryError):  # an answer too deep to check could still be run
        return None


def _harmless(family: str, answer: str, entry: Json) -> str | None:
    """The answer if it is a literal or a formula, for scorers that evaluate it; an empty text earns nothing either."""
    if family in EVALUATED:
        tree = _parsed(answer)
        return answer if tree is None or _is_made_of(tree, _LITERALS) else None
    tree = _parsed(answer) if len(answer) <= _LONGEST_FORMULA else None
    if tree is None:
        return ""  # its scorer would not read it either
    if not _is_formula(tree):
        return None
    return answer if family not in SUMS or _is_sum(tree, answer, entry) else ""


def reference(family: str, answer: str | None, metadata: Json) -> str | None:
    """A right answer: the package's, or for families without one from the metadata; two families have none."""
    if answer is not None:
        return answer
    if family == "graph_color":
        return json.dumps(metadata["possible_answer"])
    if family == "propositional_logic":
        return str(reduce("({} ∧ {})".format, metadata["premises"]))  # its own example does not always follow
    if family == "rubiks_cube":
        return str(metadata["example_correct_answer"])
    return None


def _parsed(answer: str) -> ast.expr | None:
    try:
        return ast.parse(answer.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _is_made_of(tree: ast.expr, kinds: tuple[type[ast.AST], ...]) -> bool:
    return all(isinstance(node, kinds) for node in ast.walk(tree))


def _is_formula(tree: ast.expr) -> bool:
    return _is_made_of(tree, _FORMULAS) and all(map(_is_harmless, ast.walk(tree)))


def _is_sum(tree: ast.expr, answer: str, entry: Json) -> bool:
    """Whether the formula has only plain numbers and the four operations, and its result is not just nearly right.

    The scorers would take `E/E` for a one that is not used up, and one of them 24.5 for 24.
    """
    numbers = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    if not _is_made_of(tree, _SUMS) or sorted(map(str, numbers)) != sorted(re.findall(r"\d+", answer)):
        return False
    try:
        return not 0 < abs(_result(tree) - entry["metadata"].get("target", 24)) < 1
    except ZeroDivisionError:
        return True


def _result(node: ast.AST) -> Fraction:
    if isinstance(node, ast.UnaryOp):
        return -_result(node.operand) if isinstance(node.op, ast.USub) else _result(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _result(node.left), _result(node.right)
        if isinstance(node.op, ast.Add | ast.Sub):
            return left + right if isinstance(node.op, ast.Add) else left - right
        return left * right if isinstance(node.op, ast.Mult) else left / right
    assert isinstance(node, ast.Constant)
    return Fraction(str(node.value))


def _is_harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return not node.id.startswith("_")
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _is_small_power(node)
    return True


def _is_small_power(node: ast.BinOp) -> bool:
    if any(isinstance(each, ast.Name) for each in ast.walk(node.right)):
        return True
    if any(isinstance(each, ast.Pow) for each in ast.walk(node.right)):
        return False
    numbers = [each.value for each in ast.walk(node.right) if isinstance(each, ast.Constant)]
    has_variable = any(isinstance(each, ast.Name) for each in ast.walk(node.left))
    max_exponent = _LARGEST_POWER * (100 if has_variable else 1)
    return len(numbers) <= 2 and all(isinstance(each, int | float) and each <= max_exponent for each in numbers)


def _is_probability(answer: str, entry: Json) -> bool:
    """Check the value: the scorer accepts "0" as a prefix of any probability, and computes any exponent in full."""
    try:
        if re.search(r"e[+-]?\d{3}", answer, re.IGNORECASE):
            return False
        return abs(Fraction(answer.replace(",", "")) - Fraction(entry["answer"])) <= Fraction(1, 10_000)
    except (ValueError, ZeroDivisionError):
        return False


def _uses_the_numbers(answer: str, entry: Json) -> bool:
    """Check which numbers are used: the scorer only checks how many."""
    used_numbers = Counter(re.findall(r"\d+", answer))
    return used_numbers == Counter(map(str, entry["metadata"]["numbers"]))


_CONTENT: dict[str, Callable[[str, Json], bool]] = {
    "coin_flip": _is_probability,
    "complex_arithmetic": lambda answer, entry: re.search("nan|inf", answer, re.IGNORECASE) is None,
    "game_of_life_halting": lambda answer, entry: answer == entry["answer"],  # its scorer accepts any text
    "puzzle24": _uses_the_numbers,
    "rubiks_cube": lambda answer, entry: re.search(r"\d{3}", answer) is None,  # F999999999 would be turned in full
}


def _has_content(family: str, answer: str, entry: Json) -> bool:
    check = _CONTENT.get(family)
    return check is None or check(answer, entry)
