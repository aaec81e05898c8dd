"""Final answers: whether there is one, and whether the model could finish it."""

from __future__ import annotations

import velodrome.checks.thresholds as at
from velodrome.checks.check import Check, RowCheck
from velodrome.checks.texts import is_error, is_refusal, runs_in_circles
from velodrome.records.facts import RowFacts

_TOKEN_LIMITS = frozenset(("max_output_tokens", "max_tokens", "length", "token_limit"))


class EmptyAnswers(RowCheck):
    name = "empty-answers"
    about = "the final answer is empty"
    advice = (
        "velo show prints how far they came; often max_output_tokens went into reasoning, or max_steps into tool calls"
    )
    of, says = "answers", "are empty"
    warning, error = at.EMPTY_WARNING, at.EMPTY_ERROR

    def true_of(self, facts: RowFacts) -> bool:
        return not facts.answer or facts.answer.isspace()


class ErrorAnswers(RowCheck):
    name = "error-answers"
    about = "the final answer is ERROR, FAILED or a traceback"
    advice = "an agent that crashes must raise, not answer; fix it and collect these again"
    of, says = "answers", "are the error of a program"
    least, error = "warning", at.ERROR_ANSWERS_ERROR

    def true_of(self, facts: RowFacts) -> bool:
        return is_error(facts.answer)


class Truncated(RowCheck):
    name = "truncated"
    about = "the token limit cut the answer off"
    advice = "raise max_output_tokens, or ask for shorter answers; a cut answer is scored as a wrong one"
    of, says = "answers", "are cut off by the token limit"
    warning = at.CUT_WARNING

    def true_of(self, facts: RowFacts) -> bool:
        return facts.stopped_by in _TOKEN_LIMITS


class OutOfSteps(RowCheck):
    name = "out-of-steps"
    about = "the agent's max_steps ended the rollout"
    advice = "raise max_steps in the agent's block, or see with velo show what the steps go into"
    says = "ended at max_steps"
    warning = at.CUT_WARNING

    def true_of(self, facts: RowFacts) -> bool:
        return facts.stopped_by == "max_steps"


class Refusals(RowCheck):
    name = "refusals"
    about = "the model refuses"
    advice = "read a few with velo show: the tasks may ask for what the model must not do, or the prompt is off-putting"
    of, says = "answers", "begin like a refusal"
    warning = at.REFUSALS_WARNING

    def true_of(self, facts: RowFacts) -> bool:
        return is_refusal(facts.answer) or facts.refused


class Repetition(RowCheck):
    name = "repetition"
    about = "a text ends in one thing repeated over and over"
    advice = (
        "check the chat template and the sampling (temperature, repetition penalty); leave these out of training data"
    )
    says = "run in circles at the end of a text"
    warning = at.LOOPS_WARNING

    def true_of(self, facts: RowFacts) -> bool:
        long = [text for text in facts.written if len(text) >= at.REPETITION_LEAST]
        return any(map(runs_in_circles, long))


CHECKS: tuple[type[Check], ...] = (EmptyAnswers, ErrorAnswers, Truncated, OutOfSteps, Refusals, Repetition)
