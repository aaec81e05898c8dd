"""Training, to be read from top to bottom: roll out, learn, tell, and now and then evaluate and keep a checkpoint.

There is one loop for all phases, timed by the same spans whether anybody looks or not. Nothing that is printed, traced
or evaluated changes what is computed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from velodrome.errors import TrainError
from velodrome.timing.report import counted, speaks_unicode
from velodrome.timing.spans import Span, root
from velodrome.training.buffer import Batch
from velodrome.training.evaluate import Stopped, evaluate, evaluation_line
from velodrome.training.kernels.compiled import keeping
from velodrome.training.losses.gae import explained_variance
from velodrome.training.losses.ppo import PPO_STATS, ppo_loss
from velodrome.training.losses.supervised import SUPERVISED_STATS, annealed, supervised_loss
from velodrome.training.parts import (
    ADVANTAGES,
    BACKWARD,
    ENVIRONMENT,
    FORWARD,
    GATHER,
    OPTIMIZER,
    ROLLOUT,
    STORE,
    STUDENT,
    TEACHER,
    UPDATE,
)
from velodrome.training.plan import notes, plan
from velodrome.training.policy import sample
from velodrome.training.rehearsal import rehearse
from velodrome.training.run import checkpoint
from velodrome.training.run.dashboard import Dashboard, waiting
from velodrome.training.run.episodes import DRAWN, EPISODES, write_episodes
from velodrome.training.run.place import Interrupt, held
from velodrome.training.run.report import advice, timing_table
from velodrome.training.run.session import Run, Say, make_run
from velodrome.training.schedule import Phase, phase_at, rollout_steps
from velodrome.training.settings import Settings
from velodrome.training.streams import stream

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `finished` is False if it was asked to stop before its last step."""

    folder: Path
    step: int
    finished: bool
    evaluation: Json | None
    timing: Json
    advice: list[str]
    traces: list[Path]
    lstm_precision: str | None  # with mixed precision


def train(settings: Settings, say: Say = print) -> Outcome:
    """Run to the last step or to Ctrl-C; the same settings again go on from the last checkpoint."""
    total = settings.trainer.total_timesteps
    dashboard = Dashboard(sys.stderr, total) if settings.output.dashboard else None
    say = dashboard.above(say) if dashboard else say
    interrupt = Interrupt(say)
    with held(settings) as folder, _threads(settings.trainer.threads), interrupt.heard():
        with keeping():
            run = make_run(settings, folder, say)
        try:
            saved = run.step if run.step else -1
            say(_opening(run))
            with keeping():
                rehearse(run, epoch)
            while run.step < total and not interrupt.asked:
                phase = phase_at(settings, run.step)
                steps = rollout_steps(phase, run.step, run.agents, run.buffer.horizon)
                stats, rollout, update = epoch(run, phase, steps)
                run.step += steps * run.agents
                run.epoch += 1
                spent = run.account.add(phase.name, steps * run.agents, rollout, update)
                told = tell(run, phase, stats, spent)
                if dashboard:
                    dashboard.show(run.step, phase.name, run.account, told)
                if settings.evaluator.evaluate_local and _due(run, settings.evaluator.epoch_interval):
                    measure(run, interrupt)
                if _due(run, settings.trainer.checkpoint_interval):
                    saved = keep(run)
            if settings.evaluator.evaluate_local and run.step >= total and not run.evaluated:
                measure(run, interrupt)
                saved = -1
            if saved != run.step:
                keep(run)
            if dashboard:
                dashboard.clear()
            if settings.output.episodes and run.step >= total:
                show(run)
            if run.tracer.took_s:
                run.account.set_apart("profiler", run.tracer.took_s)
            return Outcome(
                folder,
                run.step,
                run.step >= total,
                run.evaluation["found"] if run.evaluation else None,
                run.account.as_json(),
                advice(run.account, settings, run.agents, run.device.type),
                run.tracer.paths,
                run.lstm_precision,
            )
        finally:
            run.close()


def epoch(run: Run, phase: Phase, steps: int) -> tuple[dict[str, float], Span, Span]:
    """A rollout and what is learned from it: what the losses told, and the time of both."""
    with root(ROLLOUT) as rollout:
        roll_out(run, phase, steps)
    with root(UPDATE) as update:
        stats = learn(run, phase, steps)
    return stats, rollout, update


@torch.no_grad()
def roll_out(run: Run, phase: Phase, steps: int) -> None:
    """So many steps of all environments: one forward and one store each."""
    part, env, buffer, lesson = run.timer, run.env, run.buffer, run.lesson
    drawn = stream(run.settings.seed, "actions", run.step, run.device)
    led_N = _led(run, phase)
    taught_N: Tensor | None = None
    for t in range(steps):
        run.tracer.begin("environment step")
        assert run.begun_N is not None
        with part(STUDENT):
            obs_N = torch.from_numpy(env.obs).to(run.device)
            begun_N = torch.from_numpy(run.begun_N).to(run.device)
            before = run.memory
            with run.precision():
                logits_NA, values_N, run.memory = run.act(obs_N, before, begun_N)
            actions_N, logprobs_N = sample(logits_NA, drawn)
        if phase.asks_teacher:
            assert lesson is not None
            with part(TEACHER):
                taught_N = lesson.ask(run.begun_N)
                if led_N is not None:
                    actions_N = torch.where(led_N, taught_N, actions_N)
        with part(STORE):
            buffer.store(
                t,
                obs=obs_N,
                begun=begun_N,
                actions=actions_N,
                logprobs=logprobs_N,
                values=values_N,
                teacher_actions=taught_N,
                state=before,
            )
        with part(ENVIRONMENT):
            env.step(actions_N.cpu().numpy())
        final_N = _final_values(run) if env.truncations.any() else None
        with part(STORE):
            buffer.store_outcome(
                t, rewards=env.rewards, terminals=env.terminals, truncations=env.truncations, final_values=final_N
            )
            run.begun_N = env.terminals | env.truncations
        run.tracer.end()


def learn(run: Run, phase: Phase, steps: int) -> dict[str, float]:
    """Advantages, then gradients on shuffled minibatches; the means of what the losses tell."""
    given, part, buffer = run.settings, run.timer, run.buffer
    run.tracer.begin("update")
    with part(FORWARD):
        next_N = _next_values(run)
    with part(ADVANTAGES):
        buffer.finish(steps, next_N, given.trainer.gamma, given.trainer.gae_lambda)
    for group in run.optimizer.param_groups:
        group["lr"] = _learning_rate(given, phase, run.step)
    taught = phase.name == "supervised"
    told: list[Tensor] = []
    for epoch in range(1 if taught else given.ppo.epochs):
        drawn = stream(given.seed, f"minibatches/{epoch}", run.step)
        batches = buffer.minibatches(drawn, given.trainer.minibatch_size)
        while True:
            with part(GATHER):
                batch = next(batches, None)
            if batch is None:
                break
            with part(FORWARD), run.precision():
                logits_LCA, values_LC = run.learn(batch.obs_LC, batch.begun_LC, batch.state)
            with part(FORWARD):
                loss, stats = _loss(run, phase, batch, logits_LCA.flatten(0, 1), values_LC.flatten())
            with part(BACKWARD):
                run.optimizer.zero_grad()
                torch.autograd.backward(loss)
            with part(OPTIMIZER):
                norm = run.optimizer.clipped_step(given.trainer.max_grad_norm)
            told.append(torch.cat((stats, norm.reshape(1))))
        if not taught and given.ppo.target_kl and float(told[-1][4]) > 1.5 * given.ppo.target_kl:
            break
    names = (*(SUPERVISED_STATS if taught else PPO_STATS), "grad_norm")
    means = dict(zip(names, torch.stack(told).mean(0).tolist(), strict=True))
    run.tracer.end()
    if not np.isfinite(list(means.values())).all():
        raise TrainError(_not_a_number(run, means))
    return means


def tell(run: Run, phase: Phase, stats: Mapping[str, float], spent: Mapping[str, float]) -> Json:
    """A line of metrics, and the timing tree when it is due."""
    given = run.settings
    buffer, rows = run.buffer, run.buffer.steps
    line: Json = {
        "step": run.step,
        "epoch": run.epoch,
        "phase": phase.name,
        **stats,
        "explained_variance": explained_variance(buffer.values[:rows], buffer.returns[:rows]).item(),
        "learning_rate": run.optimizer.param_groups[0]["lr"],
        **_episodes(run, phase),
        **({"lstm_precision": run.lstm_precision} if run.lstm_precision else {}),
    }
    spent_ms = {name: seconds * 1e3 for name, seconds in spent.items()}
    line["sps"] = rows * run.agents / (spent[ROLLOUT] + spent[UPDATE])
    line |= {"rollout_ms": spent_ms.pop(ROLLOUT), "update_ms": spent_ms.pop(UPDATE), "parts_ms": spent_ms}
    run.log.write(line)
    if run.board:
        run.board.add(line)
    if run.account.rollouts >= given.trainer.timing_interval or run.step >= given.trainer.total_timesteps:
        if given.supervised.profiled:
            ascii_only = not speaks_unicode(sys.stderr)
            run.say(timing_table(run.account, run.step, settled=run.timer.settled, ascii_only=ascii_only))
        run.account.begin_interval()
    return line


def measure(run: Run, interrupt: Interrupt) -> None:
    """Evaluate the student, on a clock of its own; left undone if somebody asks to stop."""
    given, began = run.settings, time.perf_counter()
    count = given.evaluator.episodes
    with waiting(run.say, f"evaluating: {counted(count, 'episode')}"), suppress(Stopped):
        found = evaluate(given, run.policy, run.device, step=run.step, episodes=count, stop=lambda: interrupt.asked)
    if interrupt.asked:
        return
    took_s = time.perf_counter() - began
    run.account.set_apart("evaluation", took_s)
    run.evaluation = {"step": run.step, "by": run.settings.evaluator.model_dump_json(), "found": found}
    line = {"step": run.step, "epoch": run.epoch, "evaluation": found, "evaluation_s": took_s}
    run.log.write(line)
    if run.board:
        run.board.add(line)
    run.say(f"agent step {run.step:,}: {evaluation_line(found)}")


def show(run: Run) -> None:
    """Write episodes of the student as rollouts, those that are not there yet."""
    began = time.perf_counter()
    path = run.folder / (EPISODES if run.settings.evaluator.greedy else DRAWN)
    wanted = run.settings.output.episodes
    written = write_episodes(run.settings, run.policy, run.device, path, wanted, step=run.step)
    run.account.set_apart("episodes", time.perf_counter() - began)
    run.say(f"{path}: {counted(written, 'episode')} written{'' if written else ', as all were there'}")


def keep(run: Run) -> int:
    """Write a checkpoint; the step it is of."""
    began = time.perf_counter()
    run.save()
    run.account.set_apart("checkpoints", time.perf_counter() - began)
    return run.step


def _loss(run: Run, phase: Phase, batch: Batch, logits_BA: Tensor, values_B: Tensor) -> tuple[Tensor, Tensor]:
    given = run.settings.supervised
    if phase.name == "supervised":
        coef = annealed(given.coef, given.end_coef, run.step, given.steps)
        return supervised_loss(logits_BA, values_B, batch.teacher_actions_B, batch.returns_B, coef, given.value_coef)
    loss, stats = ppo_loss(
        logits_BA,
        values_B,
        batch.actions_B,
        batch.logprobs_B,
        batch.advantages_B,
        batch.returns_B,
        batch.values_B,
        run.settings.ppo,
    )
    if phase.asks_teacher:
        coef = annealed(given.keep_coef, 0.0, run.step - given.steps, given.keep_steps)
        kept = coef * torch.nn.functional.cross_entropy(logits_BA, batch.teacher_actions_B)
        loss = loss + kept
        stats[PPO_STATS.index("loss")] += kept.detach()
    return loss, stats


def _led_envs(run: Run, phase: Phase) -> int:
    """In how many environments, the first ones, agents do what the teacher says."""
    given = run.settings.supervised
    if phase.name != "supervised" or given.led_by == "student":
        return 0
    return round((1.0 if given.led_by == "teacher" else given.teacher_share) * run.env.spec.num_envs)


def _led(run: Run, phase: Phase) -> Tensor | None:
    """Which agents these are; None if there are none."""
    led = _led_envs(run, phase) * run.env.spec.agents
    return torch.arange(run.agents, device=run.device) < led if led else None


def _episodes(run: Run, phase: Phase) -> Json:
    """Of the episodes that ended in a rollout: the student's, and apart from them what the teacher got where it led."""
    ended = run.env.ended()
    own = ended.envs >= _led_envs(run, phase)
    told: Json = {"episodes": int(own.sum())}
    if own.any():
        told |= {"mean_return": float(ended.returns[own].mean()), "mean_length": float(ended.lengths[own].mean())}
        told |= {name: float(numbers[own].mean()) for name, numbers in ended.numbers.items()}
    if not own.all():
        told["teacher_return"] = float(ended.returns[~own].mean())
    return told


@torch.no_grad()
def _final_values(run: Run) -> Tensor:
    """What the student thinks of the last view of episodes that were cut off."""
    with run.timer(STUDENT), run.precision():
        rows = torch.from_numpy(np.flatnonzero(run.env.truncations))
        obs = torch.from_numpy(run.env.final_obs)[rows].to(run.device)
        memory = None if run.memory is None else run.memory[:, rows.to(run.device)]
        values_N = torch.zeros(run.agents, device=run.device)
        values_N[rows.to(run.device)] = run.policy(obs, memory, None)[1]
    return values_N


@torch.no_grad()
def _next_values(run: Run) -> Tensor:
    """What the student thinks of what is seen now."""
    assert run.begun_N is not None
    obs_N, begun_N = torch.from_numpy(run.env.obs).to(run.device), torch.from_numpy(run.begun_N).to(run.device)
    with run.precision():
        return run.act(obs_N, run.memory, begun_N)[1]


def _learning_rate(settings: Settings, phase: Phase, step: int) -> float:
    given = settings.trainer
    rate = given.learning_rate
    if phase.name == "ppo" and settings.ppo.learning_rate is not None:
        rate = settings.ppo.learning_rate
    return annealed(rate, 0.0, step, given.total_timesteps) if given.anneal_lr else rate


def _opening(run: Run) -> str:
    """What is about to be done."""
    total = run.settings.trainer.total_timesteps
    if run.step >= total:
        return f"{run.folder}: is at agent step {run.step:,} already, of {total:,}: nothing is left to train"
    todo = plan(run.settings, run.agents)
    steps = ", then ".join(f"{each.agent_steps:,} agent steps {each.phase}" for each in todo.stretches)
    after = f"; going on from agent step {run.step:,}" if run.step else ""
    first = f"{run.folder}: {steps}{after}; {counted(run.agents, 'agent')} at once on {run.device.type}"
    return "\n".join((first, *notes(run.settings, todo), *run.precision_notes))


def _due(run: Run, interval: int) -> bool:
    return run.epoch % interval == 0 or run.step >= run.settings.trainer.total_timesteps


def _not_a_number(run: Run, means: Mapping[str, float]) -> str:
    where = f"{run.folder}: after agent step {run.step:,}"
    steps = run.buffer.steps
    for name, seen in (("a reward", run.buffer.rewards), ("an observation", run.buffer.obs)):
        if not seen[:steps].isfinite().all():
            return f"{where}, {run.env.spec.name} gave {name} that is not a finite number; nothing was learned from it"
    bad = ", ".join(name for name, value in means.items() if not np.isfinite(value))
    kept = "The last checkpoint is good and stays; a" if checkpoint.found(run.folder) else "A"
    rate = run.optimizer.param_groups[0]["lr"]
    helps = f"{kept} smaller trainer.learning_rate (now {rate:g}) or trainer.max_grad_norm usually helps"
    return f"{where}, {bad} is not a finite number. {helps}"


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Torch's threads inside; more of them than cores make everything many times slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
