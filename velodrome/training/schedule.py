"""Phases of a run: which losses hold at an agent step, how long a rollout may be, and the whole run counted in advance.

Time advances by whole environment steps, in which every agent acts once: a phase of 5,000 agent steps with 64 agents
ends after 79 of them, at 5,056. A rollout is cut short where its phase ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from velodrome.errors import InputError
from velodrome.timing.figures import counted
from velodrome.training.assignments import apply
from velodrome.training.envs.env_names import agents_problem, kind_of
from velodrome.training.settings import EnvSettings, LossTerm, RunSettings


@dataclass(frozen=True, slots=True)
class Phase:
    """A range of agent steps with the same losses. It ends before agent step `until`."""

    terms: tuple[LossTerm, ...]  # the first one leads
    until: int

    @property
    def name(self) -> str:
        return self.terms[0].name

    @property
    def asks_teacher(self) -> bool:
        return any(term.needs_teacher for term in self.terms)


def phase_at(settings: RunSettings, step: int) -> Phase:
    """The phase of the agent step that follows `step` of them."""
    terms, total = settings.loss_terms(), settings.trainer.total_timesteps
    gates = [gate for term in terms for gate in (term.start, term.until)]
    gates = [gate for gate in (*gates, *_stage_ends(settings)) if step < gate < total]
    return Phase(tuple(term for term in terms if term.start <= step < term.until), min([*gates, total]))


def stage_at(settings: RunSettings, step: int) -> str:
    """The curriculum's stage after `step` agent steps; empty after the last."""
    return next((name for name, stage in settings.curriculum.items() if step < stage.until), "")


def env_at(settings: RunSettings, step: int) -> EnvSettings:
    """The environments after `step` agent steps: those of the curriculum's stage, then the run's own."""
    stage = stage_at(settings, step)
    return apply(settings.env, settings.curriculum[stage].env) if stage else settings.env


def _stage_ends(settings: RunSettings) -> list[int]:
    return [stage.until for stage in settings.curriculum.values()]


def _stage_problems(settings: RunSettings) -> Iterator[str]:
    for name, stage in settings.curriculum.items():
        try:
            changed = apply(settings.env, stage.env)
        except InputError as error:
            yield from (f"curriculum.{name}.env: {line}" for line in error.problems)
            continue
        for key in ("num_envs", "agents"):
            if getattr(changed, key) != getattr(settings.env, key):
                yield f"curriculum.{name}.env: {key} must stay the same in all stages"
    for (before, earlier), (name, stage) in pairwise(settings.curriculum.items()):
        if stage.until <= earlier.until:
            way = "list stages in the order in which they end"
            yield f"curriculum.{name}.until={stage.until}: not after {before}, which ends at {earlier.until}; {way}"


def horizon(settings: RunSettings, agents: int) -> int:
    """Environment steps of a full rollout with this many agents."""
    size = settings.trainer.batch_size
    if size % agents:
        below = size - size % agents
        near = f"{below} or {below + agents}" if below else f"{agents}"
        raise InputError(
            f"trainer.batch_size={size}: not a multiple of the {agents} agents that act at once "
            f"(environments x agents in each); use {near}"
        )
    return size // agents


def rollout_steps(phase: Phase, step: int, agents: int, full: int) -> int:
    """Environment steps of the next rollout: a full one, or what is left of the phase."""
    return min(full, -(-(phase.until - step) // agents))


@dataclass(frozen=True, slots=True)
class PlannedPhase:
    """One phase, counted. `updates` are gradient steps, at most: `ppo.target_kl` may end the passes early."""

    phase: str
    asks_teacher: bool
    agent_steps: int
    rollouts: int
    updates: int
    stage: str = ""  # of the curriculum

    @property
    def title(self) -> str:
        return f"{self.phase} ({self.stage})" if self.stage else self.phase


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A run counted before it starts. `horizon`: environment steps of a full rollout."""

    agents: int
    horizon: int
    phases: tuple[PlannedPhase, ...]
    notes: tuple[str, ...]  # where the plan differs from the request

    @property
    def words(self) -> str:
        steps = ", then ".join(f"{each.agent_steps:,} agent steps {each.title}" for each in self.phases)
        return "\n".join((f"{steps}; {counted(self.agents, 'agent')} at once", *self.notes))


def conflicts(settings: RunSettings) -> list[str]:
    """Settings that are valid one by one but not together, found without making an environment."""
    env = settings.env
    crowded = agents_problem(env.name, env.agents)
    problems = [*([crowded] if crowded else []), *_stage_problems(settings)]
    taught = sorted({term.name for term in settings.loss_terms() if term.needs_teacher})
    if taught and not kind_of(env.name).teacher:
        way = "set supervised.steps=0 supervised.kickstart_coef=0"
        problems.append(f"{env.name} has no teacher, and {', '.join(taught)} needs one; {way}")
    if settings.trainer.mixed_precision and settings.policy.core == "lstm":
        problems.append("trainer.mixed_precision=True: not with policy.core=lstm, which is computed in float32")
    each = kind_of(env.name).agents(env.agents)
    if each is not None:
        try:
            horizon(settings, env.num_envs * each)
        except InputError as error:
            problems += error.problems
    return problems


def make_plan(settings: RunSettings, agents: int) -> TrainingPlan:
    """The run with this many agents in all environments."""
    full, done, phases, moved = horizon(settings, agents), 0, [], []
    while done < settings.trainer.total_timesteps:
        phase = phase_at(settings, done)
        steps = -(-(phase.until - done) // agents)
        whole, rest = divmod(steps, full)
        updates = whole * _updates(settings, phase, full * agents) + _updates(settings, phase, rest * agents)
        rollouts, stage = whole + bool(rest), stage_at(settings, done)
        phases.append(PlannedPhase(phase.name, phase.asks_teacher, steps * agents, rollouts, updates, stage))
        done += steps * agents
        if done != phase.until:
            moved.append(f"{phases[-1].title} {phase.until:,} -> {done:,}")
    notes = [f"a phase ends with a step of all {agents:,} agents: {', '.join(moved)}"] if moved else []
    notes += _notes(settings, agents, full)
    return TrainingPlan(agents, full, tuple(phases), tuple(notes))


def _updates(settings: RunSettings, phase: Phase, size: int) -> int:
    return phase.terms[0].update_epochs * -(-size // settings.trainer.minibatch_size)


def _notes(settings: RunSettings, agents: int, full: int) -> Iterator[str]:
    taught, total = settings.supervised.steps, settings.trainer.total_timesteps
    if -(-taught // agents) * agents >= total:
        yield f"no PPO phase: supervised.steps={taught} leaves nothing of trainer.total_timesteps={total}"
    for name in kind_of(settings.env.name).unused:
        if getattr(settings.env, name) != getattr(EnvSettings(), name):
            yield f"env.{name}: has no effect on {settings.env.name}"
    if settings.policy.core == "lstm":
        yield from _lstm_notes(settings.trainer.bptt_horizon, agents, full)


def _lstm_notes(wanted: int, agents: int, full: int) -> Iterator[str]:
    segment = min(wanted, full)
    if segment < wanted:
        enough = f"trainer.batch_size={wanted * agents} would allow {wanted}"
        yield f"trainer.bptt_horizon={wanted}: a gradient reaches back {segment}, the steps of a rollout; {enough}"
