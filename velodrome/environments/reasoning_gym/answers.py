"""Which answers may reach a scorer of reasoning-gym, and which earn nothing whatever it says.

Nine scorers evaluate the answer as Python: four with `eval`, five with sympy's `parse_expr`, which is `eval` too. They
are given literals and formulas only; code earns nothing and is never run. A few scorers give full marks for answers
without content; those are checked here first.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter, deque
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from typing import Any

from velodrome.resources_servers.stated import boxed

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
# No names: `eval` would find what the scorer knows, such as the right answer.
_LITERALS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Constant, ast.Load, ast.UnaryOp, ast.USub, ast.UAdd)
_SUMS = (ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UnaryOp, ast.USub, ast.UAdd, ast.Constant)
_FORMULAS = (
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UnaryOp, ast.USub, ast.UAdd),
    *(ast.Constant, ast.Name, ast.Load, ast.Call),
)


def answer_in(text: str) -> str | None:
    """What is between the last pair of answer tags, else in the last `\\boxed{…}`."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    if start >= 0:
        return text[start + len("<answer>") : end].strip()
    in_boxes = boxed(text)
    return in_boxes[-1].strip() if in_boxes else None


def to_score(family: str, answer: str, entry: Json) -> str | None:
    """The answer as the scorer may see it; None for one that earns nothing."""
    if answer == entry["answer"]:
        return answer
    if len(answer) > LONGEST or not _has_content(family, answer, entry):
        return None
    if family not in EVALUATED | PARSED:
        return answer
    try:
        return _harmless(family, answer, entry)
    except (RecursionError, MemoryError):  # what is too deep to be looked at may still be run
        return None


def _harmless(family: str, answer: str, entry: Json) -> str | None:
    """The answer if it is a literal or a formula, for the scorers that evaluate."""
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
    """A right answer: the package's, or for the families that have none one from the metadata or a solver."""
    if answer is not None:
        return answer
    if family == "graph_color":
        return json.dumps(metadata["possible_answer"])
    if family == "propositional_logic":
        return str(reduce("({} ∧ {})".format, metadata["premises"]))  # its own example does not always follow
    if family == "rubiks_cube":
        return str(metadata["example_correct_answer"])
    solver = {"boxnet": _boxnet, "rush_hour": _rush_hour}.get(family)
    return None if solver is None else solver(metadata)


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
    """Whether there are only numbers, as they are written, and the four operations; and no result that is almost right.

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
    most = _LARGEST_POWER * (100 if has_variable else 1)
    return len(numbers) <= 2 and all(isinstance(each, int | float) and each <= most for each in numbers)


def _is_probability(answer: str, entry: Json) -> bool:
    """The scorer takes "0" for the beginning of any probability; an exponent would be computed in full."""
    try:
        if re.search(r"e[+-]?\d{3}", answer, re.IGNORECASE):
            return False
        return abs(Fraction(answer.replace(",", "")) - Fraction(entry["answer"])) <= Fraction(1, 10_000)
    except (ValueError, ZeroDivisionError):
        return False


def _uses_the_numbers(answer: str, entry: Json) -> bool:
    """The scorer looks at how many numbers there are, not which."""
    used = Counter(re.findall(r"\d+", answer))
    return used == Counter(map(str, entry["metadata"]["numbers"]))


_CONTENT: dict[str, Callable[[str, Json], bool]] = {
    "coin_flip": _is_probability,
    "complex_arithmetic": lambda answer, entry: re.search("nan|inf", answer, re.IGNORECASE) is None,
    "game_of_life_halting": lambda answer, entry: answer == entry["answer"],  # for its scorer every text is true
    "puzzle24": _uses_the_numbers,
    "rubiks_cube": lambda answer, entry: re.search(r"\d{3}", answer) is None,  # F999999999 would be turned in full
}


def _has_content(family: str, answer: str, entry: Json) -> bool:
    check = _CONTENT.get(family)
    return check is None or check(answer, entry)


def _boxnet(metadata: Json) -> str:
    """Carry each box to its target, one square at a time."""
    places = {square: list(items) for square, items in metadata["initial_state"].items()}
    moves: list[Json] = []
    for start, items in metadata["initial_state"].items():
        for box in items:
            if not box.startswith("box_"):
                continue
            goal = "target_" + box.removeprefix("box_")
            at = [float(each) for each in start.split("_")]
            end = next(square for square, there in places.items() if goal in there)
            places[end].remove(goal)
            for axis, aim in enumerate(map(float, end.split("_"))):
                while at[axis] != aim:
                    agent = f"Agent[{at[0]}, {at[1]}]"
                    at[axis] += 1 if aim > at[axis] else -1
                    moves.append({agent: f"move({box}, square[{at[0]}, {at[1]}])"})
            moves.append({f"Agent[{at[0]}, {at[1]}]": f"move({box}, {goal})"})
    return json.dumps(moves)


def _rush_hour(metadata: Json) -> str | None:
    """The fewest moves that bring car A to the exit on the right, by breadth-first search."""
    board, side = str(metadata["board_config"]), 6
    cells = {name: [at for at, each in enumerate(board) if each == name] for name in sorted(set(board) - {"o", "x"})}
    steps = {name: each[1] - each[0] for name, each in cells.items()}
    names = list(cells)
    walls = frozenset(at for at, each in enumerate(board) if each == "x")
    start = tuple(cells[name][0] for name in names)
    seen: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        heads = dict(zip(names, state, strict=True))
        if heads["A"] % side + len(cells["A"]) == side:
            return _moves_to(state, seen)
        taken = walls.union(*(range(heads[n], heads[n] + steps[n] * len(cells[n]), steps[n]) for n in names))
        for place, name in enumerate(names):
            for move, head in _slides(heads[name], steps[name], len(cells[name]), taken, side):
                after = (*state[:place], head, *state[place + 1 :])
                if after not in seen:
                    seen[after] = (state, f"{chr(ord('A') + place)}{move:+d}")  # the question names cars in order
                    queue.append(after)
    return None


def _slides(head: int, step: int, size: int, taken: frozenset[int], side: int) -> list[tuple[int, int]]:
    """The free places of one car along its way: how far, and where its head is then."""
    found = []
    for sign in (1, -1):
        ahead = head + step * size if sign > 0 else head - step
        moved = 0
        while 0 <= ahead < side * side and ahead not in taken and (step > 1 or ahead // side == head // side):
            moved += sign
            found.append((moved, head + step * moved))
            ahead += sign * step
    return found


def _moves_to(state: tuple[int, ...], seen: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None]) -> str:
    moves: list[str] = []
    while (step := seen[state]) is not None:
        state = step[0]
        moves.append(step[1])
    return " ".join(reversed(moves))
