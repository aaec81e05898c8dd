"""Equality by rule. `verify` is `async def`: it reads a bounded end of the answer with linear patterns."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

from velodrome.environments.equivalence_rule.readings import (
    KINDS,
    NUMBER,
    Kind,
    Quantity,
    beside,
    items_in,
    kind_of,
    same_items,
)
from velodrome.errors import InputError, TaskError
from velodrome.records.conversation import Response
from velodrome.resources_servers.answers import FORMS, agreed, need, shortened, statements
from velodrome.resources_servers.environment import Environment
from velodrome.settings.component import Field

Json = dict[str, Any]


class EquivalenceRule(Environment):
    """The reward is 1.0 if the stated answer equals `expected_answer` by the rule of the task's `kind`."""

    extraction: list[Literal["boxed", "label", "last_line"]] = Field(
        ["boxed", "label", "last_line"], description="where the answer is read; the first of these that it has decides"
    )
    several: Literal["refuse", "last"] = Field(
        "refuse", description="an answer that states different results earns nothing, or its last one counts"
    )

    def setup(self) -> None:
        """Check that `extraction` is not empty."""
        if not self.extraction:
            raise InputError(f"equivalence_rule: extraction is empty; choose of {', '.join(FORMS)}")

    async def verify(self, task: Json, response: Response) -> Json:
        """`extracted_answer` is the stated answer; `understood` tells whether it is a value of the kind."""
        kind, expected = rule(task)
        stated = statements(response.text, self.extraction)
        value = agreed([kind.read(text) for text in stated], self.several)
        right = value is not None and any(kind.equal(value, each) for each in expected)
        extracted = shortened(stated[-1]) if stated else None
        return {"reward": float(right), "extracted_answer": extracted, "understood": float(value is not None)}

    def reference_answer(self, task: Json) -> str:
        """The expected answer, after a label or in a box."""
        return self._stated(expected_text(task))

    def wrong_answers(self, task: Json) -> Json:
        """Another value; for a collection also a missing item and another order."""
        wrong = {"another value": self._stated(other_text(task))}
        if task.get("kind") in ("set", "list"):
            items = [str(each) for each in task["expected_answer"]]
            wrong["an item is missing"] = self._stated("; ".join(items[:-1]))
            if task["kind"] == "list" and items != items[::-1]:
                wrong["in another order"] = self._stated("; ".join(items[::-1]))
        if task.get("kind") == "unit":
            wrong["another dimension"] = self._stated("7 acres")
        return wrong

    def cheats(self, task: Json) -> Json:
        """Many candidates, ranges, contradictions, and the right value outside the answer."""
        right, other = expected_text(task), other_text(task)
        cheats = {
            "or": f"Answer: {right} or {other}",
            "other or": f"Answer: {other} or {right}",
            "candidates": f"Answer: {other}, {right}, {other}",
            "candidates with semicolons": f"\\boxed{{{other}; {right}; {other}}}",
            "contradiction": f"Answer: {right}\nAnswer: {other}",
            "contradiction, right at last": f"Answer: {other}\nAnswer: {right}",
            "two boxes": f"\\boxed{{{right}}} \\boxed{{{other}}}",
            "equation of two": f"Answer: {right} = {other}",
            "only the form": "\\boxed{}\nAnswer:",
            "the name of the field": "Answer: expected_answer",
            "huge": "Answer: " + "9" * 100_000,
            "as the system": f"<|im_start|>system\nAnswer: {right}<|im_end|>",
            "as a system tag": f"<system>Answer: {right}</system>\nI do not know.",
            "in a comment": f"<!-- \\boxed{{{right}}} -->\nI do not know.",
            "only thought": f"<think>Answer: {right}</think>",
        }
        if task["kind"] in ("number", "unit", "date"):
            cheats |= {
                "a range": f"Answer: between {right} and {other}",
                "a dash": f"Answer: {right} - {other}",
                "a bound": f"Answer: at least {right}",
                "not": f"Answer: not {right}",
                "isn’t": f"Answer: It isn’t {right}",
                "twice": f"Answer: twice {right}",
                "everything but": f"Answer: everything but {right}",
            }
        return cheats

    def _stated(self, text: str) -> str:
        return f"\\boxed{{{text}}}" if self.extraction[0] == "boxed" else f"Answer: {text}"


def rule(task: Json) -> tuple[Kind, list[Any]]:
    """The kind of the answer, and the accepted values."""
    name: str = need(task, "kind", str, f"one of {', '.join(KINDS)}")
    if name not in ("set", "list"):
        kind = kind_of(task, name)
        texts = [expected_text(task), *(need(task, "aliases", list, "a list of texts") if "aliases" in task else [])]
        return kind, [_value(kind, text, name) for text in texts]
    item = kind_of(task, str(task.get("item_kind", "text")))
    ordered = name == "list"
    expected_values = tuple(_value(item, each, str(task.get("item_kind", "text"))) for each in expected_items(task))
    if not ordered:
        expected_values = tuple(sorted(set(expected_values), key=item.order))
    return Kind(
        lambda text: items_in(text, item, ordered=ordered), lambda answer, expected: same_items(answer, expected, item)
    ), [expected_values]


def _value(kind: Kind, expected: Any, name: str) -> Any:
    scalar = isinstance(expected, str | int | float) and not isinstance(expected, bool)
    value = kind.read(str(expected)) if scalar else None
    if value is None:
        raise TaskError(f'"expected_answer": {str(expected)[:80]!r} cannot be read as a {name}')
    return value


def expected_items(task: Json) -> list[Any]:
    items: list[Any] = need(task, "expected_answer", list, "a list of items")
    return items


def expected_text(task: Json) -> str:
    """The expected answer as text."""
    if task.get("kind") in ("set", "list"):
        return "; ".join(map(str, expected_items(task)))
    return str(need(task, "expected_answer", (str, int, float), "a text or a number")).strip()


def other_text(task: Json) -> str:
    """A wrong answer of the same kind."""
    _, (expected, *_) = rule(task)
    if isinstance(expected, Quantity):
        return NUMBER.sub(lambda match: beside(Fraction(match["above"].replace(",", ""))), expected_text(task), count=1)
    if isinstance(expected, tuple):
        return "; ".join([*map(str, expected_items(task)), beside(expected[0] if expected else "one")])
    return beside(expected)
