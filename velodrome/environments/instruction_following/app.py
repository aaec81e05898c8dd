"""Instructions that a program can check. `verify` is `async def`: the text is bounded, and all patterns are linear."""

from __future__ import annotations

from typing import Any, Literal

from velodrome.environments.instruction_following.kinds import (
    BINARY,
    constraints_of,
    described,
    folded,
    followed,
    is_varied,
    visible,
)
from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment
from velodrome.settings.component import Field

Json = dict[str, Any]


class InstructionFollowing(Environment):
    """The reward is 1.0 if the answer keeps all constraints of the task, or the share that it keeps."""

    grading: Literal["all", "fraction"] = Field(
        "all", description="all constraints must be kept, or the reward is the share of those that are"
    )
    max_answer_chars: int = Field(50_000, gt=0, description="a longer answer keeps no constraint")

    async def verify(self, task: Json, response: Response) -> Json:
        """`kept` tells for each constraint whether the answer keeps it, in the task's order.

        An answer that is not text, has no words (unless it is one of `options`) or repeats a few words keeps none.
        """
        constraints = constraints_of(task)
        text = visible(response.text) if len(response.text) <= self.max_answer_chars else ""
        words = folded(text)
        has_content = bool(words) or (bool(text) and any(each["kind"] == "choice" for each in constraints))
        readable = has_content and is_varied(words) and not BINARY.search(response.text)
        kept = [readable and followed(text, constraint) for constraint in constraints]
        share = sum(kept) / len(kept)
        return {
            "reward": share if self.grading == "fraction" else float(all(kept)),
            "fraction": share,
            "kept": [{"kind": each["kind"], "kept": good} for each, good in zip(constraints, kept, strict=True)],
        }

    def reference_answer(self, task: Json) -> str | None:
        """The task's `reference`, if it has one."""
        return task.get("reference")

    def wrong_answers(self, task: Json) -> Json:
        """Texts that break a constraint: too short, or the reference with changes."""
        reference = self.reference_answer(task) or "fine"
        texts = {
            "too little": "Sure.",
            "cut off": reference[: len(reference) // 2],
            "said twice": f"{reference}\n\n{reference}",
            "more before and after": f"Well, {reference} Nº 1!",
        }
        constraints = constraints_of(task)
        return {name: text for name, text in texts.items() if not all(followed(text, each) for each in constraints)}

    def cheats(self, task: Json) -> Json:
        """Claims, the instructions repeated, one word many times, and invisible text."""
        constraints = constraints_of(task)
        reference = self.reference_answer(task) or "fine"
        instructions = " ".join(map(described, constraints))
        return {
            "a claim": "I have followed every instruction exactly as given, without exception",
            "a report": '{"followed": true, "kept": "all", "reward": 1.0}',
            "the instructions": f"Instructions: {instructions} (done)",
            "one word": "word " * 400,
            "two words": "fine words " * 2000,
            "in a comment": f"<!-- {reference} -->ok",
            "only thought": f"<think>{reference}</think>ok",
            "invisible": "\u200b" * 200 + "ok" + "\u2060" * 200,
            "endless": reference + " again and again" * 20_000,
        }
