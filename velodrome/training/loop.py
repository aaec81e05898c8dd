"""Training, to be read from top to bottom: roll out, learn, report, and now and then evaluate and save a checkpoint.

There is one loop for all phases, always timed by the same spans. Nothing that is printed, traced or evaluated changes
what is computed.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from velodrome.errors import TrainError
from velodrome.timing.figures import counted
from velodrome.timing.report import for_stream
from velodrome.timing.spans import Span, root
from velodrome.training import timed
from velodrome.training.advantages import explained_variance
from velodrome.training.buffer import Minibatch
from velodrome.training.compiled import storage_errors
from velodrome.training.cpu_settings import cpu_settings
from velodrome.training.envs.env_names import kind_of
from velodrome.training.evaluate import Stopped, evaluate, evaluation_line
from velodrome.training.losses import Loss, annealed
from velodrome.training.network.distributions import Distribution, bounded
from velodrome.training.random_streams import stream
from velodrome.training.run import checkpoint
from velodrome.training.run.advice import advice
from velodrome.training.run.dashboard import announced, never, silent
from velodrome.training.run.episodes import EPISODES, SAMPLED, write_episodes
from velodrome.training.run.session import Say, Session, make_session
from velodrome.training.run.time_account import timing_table
from velodrome.training.run.train_folder import held_folder
from velodrome.training.run.warmup import warm_up
from velodrome.training.schedule import Phase, make_plan, phase_at, rollout_steps
from velodrome.training.settings import RunSettings

Json = dict[str, Any]
Stop = Callable[[], bool]
Watch = Callable[[Json], None]


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """How a run ended. `finished` is False if it was stopped before its last step."""

    folder: Path
    step: int
    finished: bool
    evaluation: Json | None
    timing: Json
    advice: list[str]
    traces: list[Path]


def run_training(
    settings: RunSettings, say: Say = silent, *, stop: Stop = never, watch: Watch = silent
) -> TrainingResult:
    """Train to the last step, or until `stop`; the same settings again resume from the last checkpoint.

    `say` gets texts for a person, `watch` the metrics of every epoch.
    """
    total = settings.trainer.total_timesteps
    with held_folder(settings) as folder, cpu_settings(settings.trainer.threads):
        with (
            storage_errors(),
            announced(say, f"loading {settings.env.name}; what is compiled takes longer the first time"),
        ):
            run = make_session(settings, folder, say)
        try:
            saved = run.step if run.step else -1
            say(_opening(run))
            with storage_errors():
                warm_up(run, epoch)
            due_s = _next_checkpoint(settings)
            while run.step < total and not stop():
                phase = phase_at(settings, run.step)
                steps = rollout_steps(phase, run.step, run.agents, run.buffer.horizon)
                stats, rollout, update = epoch(run, phase, steps)
                run.step += steps * run.agents
                run.epoch += 1
                if run.step < total and phase_at(settings, run.step).name != phase.name:
                    run.keep_weights(f"phase_{phase.name}")
                spent = run.account.add(phase.name, steps * run.agents, rollout, update)
                line = report(run, phase, stats, spent)
                run.enter_stage()
                watch(line)
                if settings.evaluator.evaluate_local and _due(run, settings.evaluator.epoch_interval):
                    measure(run, stop)
                if _due(run, settings.trainer.checkpoint_interval) or time.monotonic() >= due_s:
                    saved, due_s = save(run), _next_checkpoint(settings)
            if settings.evaluator.evaluate_local and run.step >= total and not run.evaluated:
                measure(run, stop)
                saved = -1
            if saved != run.step:
                save(run)
            if settings.output.episodes and run.step >= total:
                play_episodes(run)
            return _result(run)
        finally:
            run.close()


def epoch(run: Session, phase: Phase, steps: int) -> tuple[dict[str, float], Span, Span]:
    """A rollout and an update: what the losses reported, and the time of both."""
    with run.tracer.epoch(run.epoch):
        run.tracer.begin("rollout")
        with root(timed.ROLLOUT) as rollout:
            roll_out(run, phase, steps)
        run.tracer.end()
        with root(timed.UPDATE) as update:
            stats = learn(run, phase, steps)
    return stats, rollout, update


@torch.inference_mode()
def roll_out(run: Session, phase: Phase, steps: int) -> None:
    """Step all environments: one forward and one store per step."""
    part, env, buffer = run.tracer.part, run.env, run.buffer
    generator = stream(run.settings.seed, "actions", run.step, run.device)
    forced = _teacher_forced_envs(run, phase) * env.spec.agents
    forced_N = torch.arange(run.agents, device=run.device) < forced if forced else None
    taught_N: Tensor | None = None
    for t in range(steps):
        run.tracer.begin("environment step")
        with part(timed.STUDENT):
            obs_N, starts_N = run.inputs()
            before = run.lstm_state
            with run.precision():
                outputs_NO, values_N, run.lstm_state = run.act(obs_N, before, starts_N)
            mask_NA = run.mask()
            actions_N, logprobs_N = run.policy.distribution(outputs_NO, mask_NA).sample(generator)
        if phase.asks_teacher:
            assert run.teacher is not None
            with part(timed.TEACHER):
                advised_N = run.teacher.act(env.obs, run.starts_N)
                with part(timed.BACK):
                    taught_N = torch.from_numpy(advised_N).to(run.device)
                if forced_N is not None:
                    actions_N = torch.where(forced_N, taught_N, actions_N)
        with part(timed.STORE):
            buffer.store(
                t,
                obs=obs_N,
                starts=starts_N,
                actions=actions_N,
                logprobs=logprobs_N,
                values=values_N,
                teacher_actions=taught_N,
                mask=mask_NA,
                state=before,
            )
        with part(timed.ENVIRONMENT):
            run.step_env(bounded(actions_N, env.spec.actions).cpu().numpy())
        final_N = _final_values(run) if env.truncations.any() else None
        with part(timed.STORE):
            ended = {"terminals": env.terminals, "truncations": env.truncations}
            buffer.store_outcome(t, rewards=run.rewards(), **ended, final_values=final_N)
            run.starts_N = env.terminals | env.truncations
        run.tracer.end()


def learn(run: Session, phase: Phase, steps: int) -> dict[str, float]:
    """Advantages, then gradients on shuffled minibatches; the means of what the losses reported."""
    trainer, part, buffer = run.settings.trainer, run.tracer.part, run.buffer
    losses = [run.loss(term) for term in phase.terms]
    run.tracer.begin("update")
    with part(timed.FORWARD):
        next_N = _next_values(run)
    with part(timed.ADVANTAGES):
        buffer.compute_advantages(steps, next_N, trainer.gamma, trainer.gae_lambda)
    run.optimizer.lr = _learning_rate(run.settings, phase, run.step)
    reported: list[Tensor] = []
    for number in range(phase.terms[0].update_epochs):
        generator = stream(run.settings.seed, f"minibatches/{number}", run.step)
        batches = buffer.minibatches(generator, trainer.minibatch_size)
        while True:
            with part(timed.MINIBATCH):
                batch = next(batches, None)
            if batch is None:
                break
            with part(timed.FORWARD), run.precision():
                outputs_BO, values_B = run.learn(batch.obs_LC, batch.starts_LC, batch.state)
            with part(timed.FORWARD):
                policy = run.policy.distribution(outputs_BO, batch.mask_BA)
                loss, stats = _total(losses, batch, policy, values_B, run.step)
            with part(timed.BACKWARD):
                run.optimizer.zero_grad()
                torch.autograd.backward(loss)
            with part(timed.OPTIMIZER):
                norm = run.optimizer.clipped_step(trainer.max_grad_norm)
            reported.append(torch.cat((stats, norm.reshape(1))))
        if losses[0].ends_update(reported[-1]):
            break
    names = (*(name for loss_term in losses for name in loss_term.reports), "grad_norm")
    means = dict(zip(names, torch.stack(reported).mean(0).tolist(), strict=True))
    normalizer, numbers = run.policy.normalizer, list(means.values())
    if normalizer is not None:
        normalizer.update(buffer.obs[:steps].flatten(0, 1))
        numbers += normalizer.var.tolist()  # it clips what it shows, so no loss tells of an infinite observation
    run.tracer.end()
    if not np.isfinite(numbers).all():
        raise TrainError(_not_finite(run, means))
    return means


def report(run: Session, phase: Phase, stats: Mapping[str, float], spent: Mapping[str, float]) -> Json:
    """Write a line of metrics, and say the timing tree when it is due."""
    buffer, rows = run.buffer, run.buffer.steps
    line: Json = {
        "step": run.step,
        "epoch": run.epoch,
        "phase": phase.name,
        **stats,
        "explained_variance": explained_variance(buffer.values[:rows], buffer.returns[:rows]).item(),
        "learning_rate": run.optimizer.lr,
        **_ended_episodes(run, phase),
    }
    spent_ms = {name: seconds * 1e3 for name, seconds in spent.items()}
    line["sps"] = rows * run.agents / (spent[timed.ROLLOUT] + spent[timed.UPDATE])
    line |= {"rollout_ms": spent_ms.pop(timed.ROLLOUT), "update_ms": spent_ms.pop(timed.UPDATE), "parts_ms": spent_ms}
    run.log(line)
    if run.account.rollouts >= run.settings.trainer.timing_interval or run.step >= phase.until:
        if run.settings.supervised.profiled:
            table = timing_table(run.account, run.step, synchronized=run.tracer.synchronized)
            run.say(for_stream(table, sys.stderr))
        run.account.begin_interval()
    return line


def measure(run: Session, stop: Stop) -> None:
    """Evaluate the student, timed apart; abandoned if the run is stopped."""
    settings, began = run.settings, time.perf_counter()
    count = settings.evaluator.episodes
    with suppress(Stopped), run.account.count_apart("evaluation"):
        result = evaluate(settings, run.policy, run.device, step=run.step, episodes=count, stop=stop)
    if stop():
        return
    took_s = time.perf_counter() - began
    run.evaluation = {"step": run.step, "by": settings.evaluator.model_dump_json(), "found": result}
    run.keep_best(result)
    run.log({"step": run.step, "epoch": run.epoch, "evaluation": result, "evaluation_s": took_s})
    run.say(f"agent step {run.step:,}: {evaluation_line(result)}")


def play_episodes(run: Session) -> None:
    """Write episodes of the student as rollouts."""
    path = run.folder / (EPISODES if run.settings.evaluator.greedy else SAMPLED)
    with run.account.count_apart("episodes"):
        written = write_episodes(run.settings, run.policy, run.device, path, step=run.step)
    run.say(f"{path}: {counted(written, 'episode')} written{'' if written else '; all were there already'}")


def save(run: Session) -> int:
    """Write a checkpoint; returns its step."""
    with run.account.count_apart("checkpoints"):
        run.save()
    return run.step


def _next_checkpoint(settings: RunSettings) -> float:
    """The time of the next checkpoint by trainer.checkpoint_seconds."""
    return time.monotonic() + (settings.trainer.checkpoint_seconds or math.inf)


def _result(run: Session) -> TrainingResult:
    if run.tracer.took_s:
        run.account.apart["profiler"] = run.tracer.took_s
    return TrainingResult(
        folder=run.folder,
        step=run.step,
        finished=run.step >= run.settings.trainer.total_timesteps,
        evaluation=run.evaluation["found"] if run.evaluation else None,
        timing=run.account.as_json(),
        advice=advice(run.account, run.settings, run.device.type),
        traces=run.tracer.paths,
    )


def _total(
    losses: list[Loss], batch: Minibatch, policy: Distribution, values_B: Tensor, step: int
) -> tuple[Tensor, Tensor]:
    """The sum of the losses, and what all of them reported; the first number of the first is the sum."""
    total, stats = losses[0](batch, policy, values_B, step)
    for each in losses[1:]:
        loss, more = each(batch, policy, values_B, step)
        total = total + loss
        stats[0] += loss.detach()
        stats = torch.cat((stats, more))
    return total, stats


def _teacher_forced_envs(run: Session, phase: Phase) -> int:
    """The number of environments, from the first on, in which the teacher's actions are taken."""
    return round(phase.terms[0].teacher_forced * run.env.spec.num_envs)


def _ended_episodes(run: Session, phase: Phase) -> Json:
    """Means of the episodes that ended in a rollout; the student's and teacher-forced ones are kept apart."""
    ended = run.env.ended()
    own = ended.envs >= _teacher_forced_envs(run, phase)
    line: Json = {"episodes": int(own.sum())}
    if own.any():
        line |= {"rollout_return": float(ended.returns[own].mean())}
        line |= {"rollout_length": float(ended.lengths[own].mean())}
        line |= {name: float(numbers[own].mean()) for name, numbers in ended.numbers.items()}
    if not own.all():
        line["teacher_return"] = float(ended.returns[~own].mean())
    return line


@torch.no_grad()
def _final_values(run: Session) -> Tensor:
    """The student's values of the last observations of truncated episodes."""
    with run.tracer.part(timed.STUDENT), run.precision():
        rows = torch.from_numpy(np.flatnonzero(run.env.truncations))
        obs = torch.from_numpy(run.env.final_obs)[rows].to(run.device)
        lstm_state = None if run.lstm_state is None else run.lstm_state[:, rows.to(run.device)]
        values_N = torch.zeros(run.agents, device=run.device)
        values_N[rows.to(run.device)] = run.policy(obs, lstm_state, None)[1]
    return values_N


@torch.no_grad()
def _next_values(run: Session) -> Tensor:
    """The student's values of the current observations."""
    obs_N, starts_N = run.inputs()
    with run.precision():
        return run.act(obs_N, run.lstm_state, starts_N)[1]


def _learning_rate(settings: RunSettings, phase: Phase, step: int) -> float:
    own = phase.terms[0].learning_rate
    rate = settings.trainer.learning_rate if own is None else own
    return annealed(rate, 0.0, step, settings.trainer.total_timesteps) if settings.trainer.anneal_lr else rate


def _opening(run: Session) -> str:
    """Where the run starts, and the plan if only the environment knows how many agents it has."""
    total = run.settings.trainer.total_timesteps
    if run.step >= total:
        return f"{run.folder}: already at agent step {run.step:,} of {total:,}: nothing is left to train"
    where = f"resuming at agent step {run.step:,}" if run.step else "starting"
    known = kind_of(run.settings.env.name).agents(run.settings.env.agents) is not None  # and the plan was shown
    plan = "" if known else f": {make_plan(run.settings, run.agents).words}"
    return f"{run.folder}: {where} on {run.device.type}{plan}"


def _due(run: Session, interval: int) -> bool:
    return run.epoch % interval == 0 or run.step >= run.settings.trainer.total_timesteps


def _not_finite(run: Session, means: Mapping[str, float]) -> str:
    where = f"{run.folder}: after agent step {run.step:,}"
    steps = run.buffer.steps
    for name, values in (("a reward", run.buffer.rewards), ("an observation", run.buffer.obs)):
        if not values[:steps].isfinite().all():
            return f"{where}, {run.env.spec.name} gave {name} that is not a finite number; nothing was learned from it"
    bad = ", ".join(name for name, value in means.items() if not np.isfinite(value))
    kept = "The last checkpoint is good and stays; a" if checkpoint.checkpoints(run.folder) else "A"
    rate = run.optimizer.lr
    remedy = f"{kept} smaller trainer.learning_rate (now {rate:g}) or trainer.max_grad_norm usually helps"
    return f"{where}, {bad} is not a finite number. {remedy}"
