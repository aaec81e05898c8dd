"""What a run will do, counted before it is started, by the gates of `schedule`.

Time moves by whole environment steps, in which every agent acts once; so a phase of 5,000 agent steps with 64 agents
ends after 79 of them, at 5,056. A rollout is cut short where its phase ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from velodrome.errors import InputError
from velodrome.training.envs.names import faults, foreign_kind
from velodrome.training.overrides import keys
from velodrome.training.schedule import Phase, horizon, phase_at
from velodrome.training.settings import EnvSettings, Settings

_OF_OTHERS = ("agents", "max_steps", "notes")  # settings that Gymnasium's environments do not know


@dataclass(frozen=True, slots=True)
class Stretch:
    """One phase, counted. `updates` are gradient steps, at most: a KL beyond its target ends a rollout's early."""

    phase: str
    asks_teacher: bool
    agent_steps: int
    rollouts: int
    updates: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`horizon`: environment steps of a full rollout."""

    agents: int
    horizon: int
    stretches: tuple[Stretch, ...]


def agents_each(settings: Settings) -> int | None:
    """Agents in one environment; None if only the environment itself can tell."""
    kind = settings.env.name.partition(":")[0]
    if kind == "gymnasium":
        return 1
    return None if kind == "mettagrid" else settings.env.agents


def misfits(settings: Settings, unread: Collection[str] = ()) -> list[str]:
    """What could not be trained, as far as that can be told before an environment is made and a folder with it.

    `unread` are names that were given and could not be taken: what they may have been about is not judged.
    """
    env, taught = settings.env, settings.supervised
    known = {key.name for key in keys(settings)}

    def sure(*names: str) -> bool:
        return not any(name in names or name not in known for name in unread)

    found = faults(env.name, env.agents) if sure("env.agents") else faults(env.name, 1)
    if foreign_kind(env.name):
        if taught.steps and sure("supervised.steps"):
            found.append(f"supervised.steps={taught.steps}: {env.name} has no teacher; give 0")
        if taught.keep_steps and taught.keep_coef and sure("supervised.keep_steps", "supervised.keep_coef"):
            found.append(f"supervised.keep_steps={taught.keep_steps}: {env.name} has no teacher; give 0")
    each = agents_each(settings)
    if each is not None and not found and sure("trainer.batch_size", "env.num_envs", "env.agents", "env.name"):
        try:
            horizon(settings, env.num_envs * each)
        except InputError as error:
            found += error.problems
    return found


def plan(settings: Settings, agents: int) -> Plan:
    """With so many agents in all environments."""
    full = horizon(settings, agents)
    return Plan(agents, full, tuple(_stretches(settings, agents, full)))


def notes(settings: Settings, counted: Plan) -> list[str]:
    """Where what will be done is not quite what was asked for."""
    taught, total = settings.supervised.steps, settings.trainer.total_timesteps
    found = []
    moved = [f"{name} {asked:,} -> {made:,}" for name, asked, made in _gates(settings, counted) if made != asked]
    if moved:
        found.append(f"a phase ends with a step of all {counted.agents:,} agents: {', '.join(moved)}")
    if all(one.phase == "supervised" for one in counted.stretches):
        found.append(f"no PPO phase: supervised.steps={taught} leaves nothing of trainer.total_timesteps={total}")
    if foreign_kind(settings.env.name) == "gymnasium":
        of_others = [
            f"env.{name}" for name in _OF_OTHERS if getattr(settings.env, name) != getattr(EnvSettings(), name)
        ]
        found += [f"{name}: says nothing to {settings.env.name}" for name in of_others]
    if settings.policy.core == "lstm":
        found += _stretch_notes(settings.trainer.bptt_horizon, counted)
    return found


def _gates(settings: Settings, counted: Plan) -> Iterator[tuple[str, int, int]]:
    """Each gate that is come to: its setting, the agent step asked for, and the one it is at."""
    done = 0
    for one in counted.stretches:
        phase = phase_at(settings, done)
        done += one.agent_steps
        if phase.until == settings.trainer.total_timesteps:
            yield "trainer.total_timesteps", phase.until, done
        elif one.phase == "supervised":
            yield "supervised.steps", phase.until, done
        else:
            yield "supervised.steps + keep_steps", phase.until, done


def _stretch_notes(asked: int, counted: Plan) -> Iterator[str]:
    stretch = min(asked, counted.horizon)
    if stretch < asked:
        whole = f"trainer.batch_size={asked * counted.agents} would be {asked}"
        yield f"trainer.bptt_horizon={asked}: a gradient goes back {stretch}, the steps of a rollout; {whole}"
    whole_stretches, rest = divmod(counted.horizon, stretch)
    if rest:
        parts = f"{whole_stretches} x {stretch} and a rest of {rest}"
        yield f"trainer.bptt_horizon={asked}: the {counted.horizon} steps of a rollout are cut into {parts}"


def _stretches(settings: Settings, agents: int, full: int) -> Iterator[Stretch]:
    done = 0
    while done < settings.trainer.total_timesteps:
        phase = phase_at(settings, done)
        steps = -(-(phase.until - done) // agents)
        whole, rest = divmod(steps, full)
        updates = whole * _updates(settings, phase, full * agents) + _updates(settings, phase, rest * agents)
        yield Stretch(phase.name, phase.asks_teacher, steps * agents, whole + bool(rest), updates)
        done += steps * agents


def _updates(settings: Settings, phase: Phase, size: int) -> int:
    passes = settings.ppo.epochs if phase.name == "ppo" else 1
    return passes * -(-size // settings.trainer.minibatch_size)
