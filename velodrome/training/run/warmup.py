"""Before the clock starts: every kernel is compiled, or loaded, by a small run that is discarded.

So the first rollout takes no longer than the others. The run itself is not changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from velodrome.timing.report import counted
from velodrome.training.run.dashboard import announced
from velodrome.training.run.session import Session, make_session
from velodrome.training.schedule import Phase, phase_at
from velodrome.training.settings import OutputSettings, ProfilerSettings, RunSettings

_PROBE_S, _MOST_TURNS, _PROBED = 0.3, 50, 4096  # the last: agent steps at once
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
        if settings.trainer.mixed_precision and run.device.type == "cpu":
            run.say(precision_line(run))
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


def _minibatch(run: Session, most: int = 10**9) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """What the student reads in an update, in the shapes of the run: the current observations, repeated.

    With `most` about so many agent steps, if a minibatch has more.
    """
    length = run.buffer.segment
    segments = run.buffer.horizon * run.agents // length
    columns = -(-segments // -(-segments // max(1, run.settings.trainer.minibatch_size // length)))
    columns = max(1, min(columns, most // length))
    obs_N, _ = run.inputs()
    rows = torch.arange(length * columns, device=run.device) % len(obs_N)
    state = run.policy.initial_state(columns)
    starts_LC = None if state is None else torch.zeros((length, columns), dtype=torch.bool, device=run.device)
    return obs_N[rows].view(length, columns, *obs_N.shape[1:]), starts_LC, state


def precision_line(run: Session) -> str:
    """How long bfloat16 takes on this CPU, measured in turn with float32. It changes no weight, gradient or stream."""
    batch = _minibatch(run, most=_PROBED)
    least_s = {True: inf, False: inf}
    began = time.perf_counter()
    for turn in range(_MOST_TURNS):
        for half in least_s:
            start = time.process_time()  # other programs do not count
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                outputs_BO, values_B = run.policy.sequence(*batch)
            torch.autograd.backward(outputs_BO.sum() + values_B.sum())
            if turn:  # the first is slower
                least_s[half] = min(least_s[half], time.process_time() - start)
        if turn and time.perf_counter() - began > _PROBE_S:
            break
    run.optimizer.zero_grad()
    factor = round(least_s[True] / least_s[False], 2)
    steps = counted(batch[0].shape[:2].numel(), "agent step")
    line = f"on this CPU bfloat16 takes {factor} times as long as float32"
    measured = f"measured: forward and backward of {steps}"
    way = "; trainer.mixed_precision=False is faster" if factor > 1 else ""
    return f"trainer.mixed_precision=True: {line} ({measured}){way}"
