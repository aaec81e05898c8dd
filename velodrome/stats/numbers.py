"""The numbers of one rollout that can be averaged and compared, by name.

These are the numbers at the top level of the row, and those of the conversation, the usage and the timing. If `verify`
returned a number with the same name, that one is taken.
"""

from __future__ import annotations

from velodrome.records.facts import RowFacts

TIMES = ("total_s", "model_s", "tools_s", "verify_s", "queue_s")
COUNTS = ("tools", "turns", "length", "tokens", "input_tokens", "output_tokens", "retries")


def numbers_of(facts: RowFacts) -> dict[str, float]:
    numbers: dict[str, float | None] = {
        "tools": facts.tool_calls,
        "turns": facts.turns,
        "length": len(facts.answer),
        "tokens": facts.total_tokens,
        "input_tokens": facts.input_tokens,
        "output_tokens": facts.output_tokens,
        "retries": facts.count("retries") if "retries" in facts.timing else None,
        **{name: facts.seconds(name) for name in TIMES},
    }
    if facts.verified_later:
        numbers["verify_s"] = None  # unknown, not 0: verification was not a part of this rollout
    numbers.update(
        {name: value for name, value in facts.numbers.items() if name not in numbers or name in facts.scored}
    )
    return {name: float(value) + 0.0 for name, value in numbers.items() if value is not None}  # -0.0 is 0.0
