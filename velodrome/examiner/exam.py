"""One examination: an environment, its tasks, and the answers to play.

Each answer is played once alone; the rules check the result, and compare it with other plays.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice
from typing import Any

from velodrome.contracts import prompt_text
from velodrome.errors import InputError, VelodromeError, blame, describe
from velodrome.examiner.playing import AnswerCase, PlayedAnswer, Player, play_together
from velodrome.examiner.subject import Subject

Json = dict[str, Any]

IN_FLIGHT = 64
SAMPLE = 24
_CODES = (*range(48), *range(123, 256), 0x2028, 0x202E, 0xFEFF, 0xFFFD, 0x1F600, 0x10FFFF)  # a digit may be right
_NOISE = "".join(map(chr, _CODES))


class Exam:
    """The input of the rules: the environment, its tasks and answers, and their plays."""

    def __init__(
        self,
        subject: Subject,
        environment: Any,
        max_tasks: int,
        sample: int = SAMPLE,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> None:
        self.on_step = on_step
        self.subject = subject
        self.environment = environment
        self.tasks = [row for row in subject.rows if row.task is not None][:max_tasks]
        self.unanswered: dict[str, str] = {}  # by task id: why the environment has no answers to the task
        self.cases = [case for row in self.tasks for case in self._cases(row.task or {}, row.task_id)]
        self.rollouts = 0
        self._sample_size = sample
        self._alone: list[PlayedAnswer] = []
        self._together: list[PlayedAnswer] = []

    async def alone(self) -> list[PlayedAnswer]:
        """Every answer, played one after the other on the first call."""
        if not self._alone:
            player = Player(self.environment)
            for number, case in enumerate(self.cases, 1):
                self.on_step(f"answer {number} of {len(self.cases)}")
                self._alone.append(await player.play(case))
            self.rollouts += len(self._alone)
        return self._alone

    async def of_kind(self, kind: str) -> list[PlayedAnswer]:
        return [play for play in await self.alone() if play.case.kind == kind]

    async def sample(self) -> list[PlayedAnswer]:
        """A random sample of the plays; at most half of them are references."""
        plays = await self.alone()
        chance = random.Random(0)
        references = [play for play in plays if play.case.kind == "reference"]
        others = [play for play in plays if play.case.kind != "reference"]
        sampled = chance.sample(references, min(self._sample_size // 2, len(references)))
        return sampled + chance.sample(others, min(self._sample_size - len(sampled), len(others)))

    async def crowd(self) -> list[PlayedAnswer]:
        """The sample, repeated to `IN_FLIGHT` plays."""
        return list(islice(cycle(await self.sample()), IN_FLIGHT))

    async def together(self) -> list[PlayedAnswer]:
        """The crowd, played concurrently on the first call."""
        if not self._together:
            self._together = await play_together(Player(self.environment), [play.case for play in await self.crowd()])
            self.rollouts += len(self._together)
        return self._together

    def _cases(self, task: Json, task_id: str) -> Iterator[AnswerCase]:
        try:
            with blame(InputError, "its answers"):
                yield from list(self._own_cases(task, task_id))
        except VelodromeError as error:
            self.unanswered[task_id] = describe(error)
        for name, answer in garbage(task, task_id).items():
            yield AnswerCase(task, task_id, "garbage", name, answer)

    def _own_cases(self, task: Json, task_id: str) -> Iterator[AnswerCase]:
        reference = self._hook("reference_answer", task)
        if reference is not None:
            yield AnswerCase(task, task_id, "reference", "", reference)
        for kind, hook in (("wrong", "wrong_answers"), ("cheat", "cheats")):
            answers = self._hook(hook, task) or {}
            if not isinstance(answers, Mapping):
                raise InputError(f"{hook}: expected answers by name, not {answers!r:.80}")
            for name, answer in answers.items():
                yield AnswerCase(task, task_id, kind, str(name), answer)

    def _hook(self, name: str, task: Json) -> Any:
        hook = getattr(self.environment, name, None)
        return None if hook is None else hook(task)


def garbage(task: Json, task_id: str) -> Json:
    """Answers that fit no task, seeded by its id. The long text comes only once, because a game may ask 256 times."""
    chance = random.Random(task_id)
    words = ["lorem", "answer", "therefore", "####", "boxed", "perhaps", "%s", "{}", "\\"]
    return {
        "empty": "",
        "blank": " \n\t ",
        "random text": " ".join(chance.choices(words, k=40)),
        "binary": "".join(chance.choices(_NOISE, k=400)),
        "very long": ["la " * 100_000, "la"],
        "unclosed JSON": '{"answer": [{"a": ["' + "[" * 200,
        "the prompt": prompt_text(task["responses_create_params"]) or "?",
    }
