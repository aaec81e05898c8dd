"""Answers: whether there is one, and whether it is the model's best or the end of its rope."""

from __future__ import annotations

from collections.abc import Iterator

import velodrome.checks.thresholds as at
from velodrome.checks.facts import Batch
from velodrome.checks.finding import Check, Finding, graded, part


class EmptyAnswers(Check):
    name = "empty-answers"
    severity = "error"
    about = "the final answer is empty"
    advice = (
        "velo show tells how far they came; often max_output_tokens went into reasoning, or max_steps into tool calls"
    )

    def add(self, batch: Batch) -> None:
        self.hit([one.line for one in batch if one.empty])

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            severity = graded(self.hits, self.share(), warning=at.EMPTY_WARNING, error=at.EMPTY_ERROR)
            yield self.found(severity, f"{part(self.hits, self.seen.rows, 'answers')} are empty")


class ErrorAnswers(Check):
    name = "error-answers"
    severity = "error"
    about = "the final answer is ERROR, FAILED or a traceback"
    advice = "an agent that crashes must raise, not answer; mend it and collect these again"

    def add(self, batch: Batch) -> None:
        self.hit([one.line for one in batch if one.error])

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            severe = self.share() >= at.ERROR_ANSWERS_ERROR and self.hits >= at.FEW
            message = f"{part(self.hits, self.seen.rows, 'answers')} are the error of a program"
            yield self.found("error" if severe else "warning", message)


class Truncated(Check):
    name = "truncated"
    severity = "warning"
    about = "the token limit cut the answer off"
    advice = "raise max_output_tokens, or ask for shorter answers; a cut answer is scored as a wrong one"

    def add(self, batch: Batch) -> None:
        self.hit([one.line for one in batch if one.cut == "tokens"])

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            severity = graded(self.hits, self.share(), warning=at.CUT_WARNING)
            yield self.found(severity, f"{part(self.hits, self.seen.rows, 'answers')} are cut off by the token limit")


class OutOfSteps(Check):
    name = "out-of-steps"
    severity = "warning"
    about = "the agent's max_steps ended the rollout"
    advice = "raise max_steps in the agent's block, or see with velo show what the steps go into"

    def add(self, batch: Batch) -> None:
        self.hit([one.line for one in batch if one.cut == "steps"])

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            severity = graded(self.hits, self.share(), warning=at.CUT_WARNING)
            yield self.found(severity, f"{part(self.hits, self.seen.rows, 'rollouts')} ended at max_steps")


class Refusals(Check):
    name = "refusals"
    severity = "warning"
    about = "the model refuses"
    advice = "read a few with velo show: either the tasks ask for what the model may not do, or the prompt makes it shy"

    def add(self, batch: Batch) -> None:
        self.hit([one.line for one in batch if one.refusal])

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            severity = graded(self.hits, self.share(), warning=at.REFUSALS_WARNING)
            yield self.found(severity, f"{part(self.hits, self.seen.rows, 'answers')} begin like a refusal")


class Repetition(Check):
    name = "repetition"
    severity = "warning"
    about = "a text ends in saying one thing over and over"
    advice = (
        "check the chat template and the sampling (temperature, repetition penalty); leave these out of training data"
    )

    def add(self, batch: Batch) -> None:
        self.hit([one.line for one in batch if one.circles])

    def findings(self) -> Iterator[Finding]:
        if self.hits:
            severity = graded(self.hits, self.share(), warning=at.LOOPS_WARNING)
            yield self.found(
                severity, f"{part(self.hits, self.seen.rows, 'rollouts')} run in circles at the end of a text"
            )


CHECKS: tuple[type[Check], ...] = (EmptyAnswers, ErrorAnswers, Truncated, OutOfSteps, Refusals, Repetition)
