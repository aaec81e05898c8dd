"""Before the clock starts: every kernel is compiled, or loaded, by a small run that is discarded.

So the first rollout takes no longer than the others. The run itself is not changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from velodrome.training.run.dashboard import announced
from velodrome.training.run.session import Session, make_session
from velodrome.training.schedule import Phase, phase_at
from velodrome.training.settings import OutputSettings, ProfilerSettings, RunSettings

_STEPS = 2  # one would leave advantages without a standard deviation


def warm_up(run: Session, epoch: Callable[[Session, Phase, int], Any]) -> None:
    """A short epoch of each phase to come."""
    settings = run.settings
    total = settings.trainer.total_timesteps
    gates = {run.step, *(max(run.step, term.start) for term in settings.loss_terms())}
    phases = [phase_at(settings, step) for step in sorted(gates) if step < total]
    if not phases:
        return
    began = time.perf_counter()
    with announced(run.say, "compiling kernels: half a minute, once"):
        small = _small(settings, run.env.spec.agents)
        with (
            TemporaryDirectory(prefix="velodrome-") as folder,
            closing(make_session(small, Path(folder), run.say)) as small_run,
        ):
            small_run.folder = run.folder  # errors name the run itself
            for phase in phases:
                epoch(small_run, phase, _STEPS)
        if settings.trainer.compile:
            _compile(run)
    run.account.add_apart("kernels", time.perf_counter() - began)


def _small(settings: RunSettings, agents: int) -> RunSettings:
    """The same with one environment and a short rollout; nothing is shown or written."""
    batch = _STEPS * agents
    trainer = {"batch_size": batch, "minibatch_size": batch, "compile": False, "profiler": ProfilerSettings()}
    return settings.model_copy(
        update={
            "env": settings.env.model_copy(update={"num_envs": 1, "workers": 0}),
            "trainer": settings.trainer.model_copy(update=trainer),
            "output": OutputSettings(),
        }
    )


def _compile(run: Session) -> None:
    """torch compiles for shapes: run the student forward and backward in those of the run."""
    obs_N, starts_N = run.inputs()
    with torch.no_grad(), run.precision():
        run.act(obs_N, run.lstm_state, starts_N)
    with run.precision():
        outputs_BO, values_B = run.learn(*_minibatch(run))
    torch.autograd.backward(outputs_BO.sum() + values_B.sum())
    run.optimizer.zero_grad()


def _minibatch(run: Session) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """What the student reads in an update, in the shapes of the run: the current observations, repeated."""
    length = run.buffer.segment
    segments = run.buffer.horizon * run.agents // length
    columns = -(-segments // -(-segments // max(1, run.settings.trainer.minibatch_size // length)))
    obs_N, _ = run.inputs()
    rows = torch.arange(length * columns, device=run.device) % len(obs_N)
    state = run.policy.initial_state(columns)
    starts_LC = None if state is None else torch.zeros((length, columns), dtype=torch.bool, device=run.device)
    return obs_N[rows].view(length, columns, *obs_N.shape[1:]), starts_LC, state
