"""Environments of verifiers up to 0.3: one turn, tools, and a game by turns."""

from __future__ import annotations

from typing import Any

import verifiers as vf
from datasets import Dataset


def load_environment(kind: str = "single") -> vf.Environment:
    """The environment of this kind."""
    return {"single": single, "tools": with_tools, "game": game}[kind]()


async def right(completion: vf.Messages, answer: str) -> float:
    """1 if the last message ends with the answer."""
    return float(str(completion[-1].content).endswith(f" {answer}"))


def rows(count: int) -> Dataset:
    """1 + 10, 2 + 10, …"""
    return Dataset.from_list([{"question": f"{n} + 10?", "answer": str(n + 10)} for n in range(1, count + 1)])


def single() -> vf.Environment:
    """One answer."""
    return vf.SingleTurnEnv(dataset=rows(2), system_prompt="Be brief.", rubric=vf.Rubric(funcs=[right]))


async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


def with_tools() -> vf.Environment:
    """A tool, and the answer."""
    return vf.ToolEnv(tools=[add], dataset=rows(2), rubric=vf.Rubric(funcs=[right]))


class Guessing(vf.MultiTurnEnv):
    """A number is to be guessed; each answer is told to be too low or too high."""

    async def setup_state(self, state: vf.State) -> vf.State:
        state["guesses"] = 0
        return await super().setup_state(state) or state

    @vf.stop
    async def guessed(self, state: vf.State) -> bool:
        """Whether the last guess is right."""
        return bool(state["trajectory"]) and str(state["trajectory"][-1]["completion"][-1].content) == state["answer"]

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        state["guesses"] += 1
        guess = int(str(messages[-1].content))
        word = "low" if guess < int(state["answer"]) else "high"
        return [vf.UserMessage(role="user", content=f"too {word}")]


async def quick(state: vf.State) -> float:
    """1 for the first guess, half of it for the second, …"""
    return 1.0 / len(state["trajectory"]) if state.get("stop_condition") == "guessed" else 0.0


def game() -> vf.Environment:
    """Guess within three turns."""
    rows = Dataset.from_list([{"question": "Guess a number from 1 to 9.", "answer": "7"}])
    return Guessing(dataset=rows, max_turns=3, rubric=vf.Rubric(funcs=[quick]))
