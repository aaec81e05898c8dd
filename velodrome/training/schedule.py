"""Which phase an agent step belongs to, and how long a rollout may be so that none crosses a gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from velodrome.errors import InputError
from velodrome.training.settings import Settings

PhaseName = Literal["supervised", "ppo"]


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of training in which one loss holds. It ends before agent step `until`."""

    name: PhaseName
    asks_teacher: bool
    until: int


def phase_at(settings: Settings, step: int) -> Phase:
    """The phase of the next agent step after `step` of them."""
    taught, total = settings.supervised.steps, settings.trainer.total_timesteps
    if step < taught:
        return Phase("supervised", True, min(taught, total))
    kept = taught + (settings.supervised.keep_steps if settings.supervised.keep_coef > 0 else 0)
    if step < kept:
        return Phase("ppo", True, min(kept, total))
    return Phase("ppo", False, total)


def horizon(settings: Settings, agents: int) -> int:
    """Steps of a full rollout with so many agents."""
    size = settings.trainer.batch_size
    if size % agents:
        below = size - size % agents
        near = f"{below} or {below + agents}" if below else f"{agents}"
        raise InputError(
            f"trainer.batch_size={size}: not a multiple of the {agents} agents that act at once "
            f"(environments x agents of each); {near} would be"
        )
    return size // agents


def rollout_steps(phase: Phase, step: int, agents: int, full: int) -> int:
    """Steps of the next rollout: a full one, or what is left before the gate."""
    return min(full, -(-(phase.until - step) // agents))
