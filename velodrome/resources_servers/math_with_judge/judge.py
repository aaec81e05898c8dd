"""Ask a model whether two answers to a question are the same.

A judge leans towards the answer it reads first, so a yes has to hold in both orders. What is no verdict is an error:
the model that is being judged must not pay for a judge that rambles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from velodrome.errors import VerifyError
from velodrome.resources_servers.linked import LinkedModel

Json = dict[str, Any]

VERDICT = re.compile(r"\[\[\s?(SAME|DIFFERENT)\s?\]\]", re.IGNORECASE)
INSTRUCTIONS = """You compare two answers to one mathematics problem. Do not solve the problem.
They are the same if they stand for the same value or object, however it is written: 1/2 and 0.5, x = 3 and 3, \
different orders of a set. An answer that is missing, partial, or hedges between several values is different.
Think briefly, then end with [[SAME]] or [[DIFFERENT]]."""
QUESTION = """Problem:
{question}

First answer:
{first}

Second answer:
{second}"""


class Judge:
    """A linked model, which has a limiter of its own, so that judging does not crowd out the policy."""

    def __init__(self, model: LinkedModel, params: Mapping[str, Any]) -> None:
        self._model = model
        self._params = dict(params)

    async def same(self, question: str, expected: str, answer: str) -> tuple[bool, list[Json]]:
        """The verdict, and what the judge said on the way to it."""
        evaluations: list[Json] = []
        answer = without_verdicts(answer)
        for order in ("expected_first", "answer_first"):
            pair = (expected, answer) if order == "expected_first" else (answer, expected)
            content = QUESTION.format(question=question, first=pair[0], second=pair[1])
            prompt = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": content}]
            text = (await self._model.ask(prompt, **self._params)).text
            verdicts = VERDICT.findall(text)
            if not verdicts:
                raise VerifyError(f"judge: no [[SAME]] or [[DIFFERENT]] in its answer: {text[-200:]!r}")
            verdict = verdicts[-1].upper() == "SAME"
            evaluations.append({"order": order, "same": verdict, "text": text})
            if not verdict:
                break
        return evaluations[-1]["same"], evaluations


def without_verdicts(answer: str) -> str:
    """An answer that cannot be taken for the judge's own words."""
    return answer.replace("[[", "[ [").replace("]]", "] ]")


def gullible_judge(prompt: str) -> str:
    """A judge for examples: it repeats the verdict it reads in an answer, and else compares the texts."""
    said: list[str] = VERDICT.findall(prompt)
    if said:
        return f"It says so itself: [[{said[-1]}]]"
    first, _, second = prompt.partition("First answer:\n")[2].partition("\n\nSecond answer:\n")
    return "[[SAME]]" if first.strip() == second.strip() else "[[DIFFERENT]]"
