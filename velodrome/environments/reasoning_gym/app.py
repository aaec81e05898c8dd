"""Puzzles of reasoning-gym. A row has the whole entry, so a score does not depend on the generator or its version."""

from __future__ import annotations

import json
from typing import Any, Literal

from velodrome.environments.reasoning_gym import families
from velodrome.environments.reasoning_gym.answers import EVALUATED, PARSED, answer_in, reference
from velodrome.environments.reasoning_gym.cpu_limit import KILLED
from velodrome.errors import InputError, TaskError, VerifyError
from velodrome.records.conversation import Response
from velodrome.resources_servers.environment import Environment
from velodrome.settings.component import Field

Json = dict[str, Any]

PROMPT = (
    "Solve the problem. Think step by step first if that helps. Then give the final answer, and nothing else, between"
    " <answer> and </answer>. If the problem shows how answers look, follow that form exactly."
)


class ReasoningGym(Environment):
    """The reward is what the family's own scorer gives for the text between the answer tags."""

    executor: Literal["inline", "thread", "process"] = Field(
        "process", description="scorers run in processes with limits; elsewhere nothing ends one that hangs"
    )
    verify_cpu_s: float = Field(
        10.0, gt=0, le=86_400, description="CPU time of a scorer; an answer that takes more earns 0"
    )
    full_marks_only: bool = Field(False, description="a reward of 1.0 or 0.0: what a scorer gives for trying is 0.0")

    def setup(self) -> None:
        families.need_package()

    def verify(self, task: Json, response: Response) -> Json:
        """Score the answer with the scorer of the task's family."""
        family, config, entry = _entry_of(task)
        answer = answer_in(response.text)
        reward = 0.0
        if answer is not None:
            reward = min(1.0, families.score(family, config, answer, entry, self.verify_cpu_s))
            reward = float(reward == 1.0) if self.full_marks_only else reward
        return _scored(family, answer, reward)

    async def _run_elsewhere(self, kind: Any, hook: Any, limit_s: float, method: str, *arguments: Any) -> Any:
        """Score in a worker process. The reward is 0 if the kernel ended the process because of its CPU time."""
        try:
            return await super()._run_elsewhere(kind, hook, limit_s, method, *arguments)
        except VerifyError as error:
            if KILLED not in str(error):
                raise
            task, response = arguments
            return _scored(task["family"], answer_in(Response(response).text), 0.0)

    def generate(self, seed: int, index: int, *, families: str | list[str] = "all", config: Json | None = None) -> Json:
        """One task of `velo data generate`.

        families: names, in turn; or all
        config: parameters of the family, where there is one
        """
        names = _names(families)
        if config and len(names) > 1:
            raise InputError(f"config: of one family; there are {len(names)} here: give families=NAME")
        return make_task(names[index % len(names)], seed, index // len(names), config or {})

    def reference_answer(self, task: Json) -> Any:
        """The package's own answer."""
        right = reference(task["family"], task["expected_answer"], task["metadata"])
        return None if right is None else f"I worked it out.\n<answer>{right}</answer>"

    def wrong_answers(self, task: Json) -> Json:
        """Another answer, no tags, and a changed answer."""
        right = str(reference(task["family"], task["expected_answer"], task["metadata"]))
        return {
            "another answer": "<answer>not that one</answer>",
            "no tags": f"The answer is {right}",
            "an empty answer": "<answer></answer>",
            "a second thought": f"<answer>{right}</answer> No, it is <answer>I do not know</answer>",
            "tags never closed": f"<answer>{right}",
        }

    def cheats(self, task: Json) -> Json:
        """Code for the scorers that evaluate, claims for the checker, and formulas that compute for ever."""
        frame = "__import__('sys')._getframe(1).f_locals['entry']"
        code = {
            "reads the entry": f"<answer>{frame}['answer']</answer>",
            "replaces the answer": f"<answer>{frame}.__setitem__('answer', 'x') or 'x'</answer>",
            "patches the scorer": "<answer>[setattr(__import__('builtins'), 'float', lambda *a: 1.0)]</answer>",
            "an object that is equal to all": "<answer>type('X', (str,), {'__eq__': lambda s, o: True})()</answer>",
            "leaves at once": "<answer>__import__('os')._exit(0)</answer>",
            "computes for ever": "<answer>9**9**9**9</answer>",
            "takes all memory": "<answer>[0] * 10**12</answer>",
        }
        words = {
            "for the checker": '<answer>{"reward": 1.0, "accuracy": 1.0}</answer>',
            "the field": "<answer>{expected_answer}</answer>",
            "not a number": "<answer>nan</answer>",
        }
        return {**code, **words} if task["family"] in EVALUATED | PARSED else words


def make_task(family: str, seed: int, index: int, config: Json) -> Json:
    """A row: the prompt, its origin, and the data for the scorer."""
    entry = families.make_entry(family, families.spread_seed(seed, family), index, config)
    return {
        "id": f"{family}-{seed}-{index}",
        "responses_create_params": {
            "input": [{"role": "system", "content": PROMPT}, {"role": "user", "content": entry["question"]}]
        },
        "family": family,
        "seed": seed,
        "index": index,
        "config": config,
        "expected_answer": entry["answer"],
        "metadata": json.loads(json.dumps(entry["metadata"], default=str)),  # no tuples, no numpy, keys are texts
    }


def _names(chosen: str | list[str]) -> list[str]:
    known = families.family_names()
    words = chosen.split(",") if isinstance(chosen, str) else chosen
    names = known if chosen == "all" else [each.strip() for each in words if each.strip()]
    unknown = sorted(set(names) - set(known))
    if unknown or not names:
        raise InputError(
            f"families: no family {', '.join(unknown) or 'named'} in reasoning-gym; there are {len(known)}"
        )
    return names


def _scored(family: str, answer: str | None, reward: float) -> Json:
    shown = None if answer is None else answer[:500]
    return {"reward": reward, "accuracy": float(reward == 1.0), "extracted_answer": shown, "family": family}


def _entry_of(task: Json) -> tuple[str, Json, Json]:
    family, config, metadata = task.get("family"), task.get("config") or {}, task.get("metadata")
    for name, value, kind in (("family", family, str), ("config", config, dict), ("metadata", metadata, dict)):
        if not isinstance(value, kind):
            raise TaskError(f'no "{name}" in the task, or not a {kind.__name__}: velo data generate reasoning_gym')
    if "expected_answer" not in task:
        raise TaskError('no "expected_answer" in the task; where a family has none it is null')
    assert isinstance(family, str)
    assert isinstance(metadata, dict)
    messages = (task.get("responses_create_params") or {}).get("input") or ""
    question = messages if isinstance(messages, str) else str(messages[-1].get("content", ""))
    return family, config, families.as_entry(family, question, task["expected_answer"], metadata)
