"""Before the clock runs: every kernel is compiled, or loaded, on a small run that is thrown away.

The time of the first rollout is then its own, and not the compiler's. Nothing of the run itself is changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from velodrome.training.run.dashboard import waiting
from velodrome.training.run.session import Run, make_run
from velodrome.training.schedule import Phase, phase_at
from velodrome.training.settings import OutputSettings, ProfilerSettings, Settings

_STEPS = 2  # with a single one there is nothing to take advantages' spread of


def rehearse(run: Run, epoch: Callable[[Run, Phase, int], Any]) -> None:
    """A short epoch of each phase to come."""
    given = run.settings
    gates = sorted({run.step, max(run.step, given.supervised.steps)})
    phases = [phase_at(given, step) for step in gates if step < given.trainer.total_timesteps]
    if not phases:
        return
    began = time.perf_counter()
    with waiting(run.say, "compiling kernels: half a minute, once"):
        small = _small(given, run.env.spec.agents)
        with (
            TemporaryDirectory(prefix="velodrome-") as folder,
            closing(make_run(small, Path(folder), run.say)) as tried,
        ):
            tried.folder = run.folder  # what goes wrong is told of the run itself
            for phase in phases:
                epoch(tried, phase, _STEPS)
        if given.trainer.compile:
            _compile(run)
    run.account.set_apart("kernels", time.perf_counter() - began)


def _small(given: Settings, agents: int) -> Settings:
    """The same with one environment and a rollout of a few steps; nothing is shown or written."""
    batch = _STEPS * agents
    trainer = {"batch_size": batch, "minibatch_size": batch, "compile": False, "profiler": ProfilerSettings()}
    return given.model_copy(
        update={
            "env": given.env.model_copy(update={"num_envs": 1}),
            "trainer": given.trainer.model_copy(update=trainer),
            "output": OutputSettings(),
        }
    )


def _compile(run: Run) -> None:
    """torch compiles for shapes: the student is asked, and its gradient taken and dropped, in those of the run."""
    assert run.begun_N is not None
    obs_N, begun_N = torch.from_numpy(run.env.obs).to(run.device), torch.from_numpy(run.begun_N).to(run.device)
    with torch.no_grad(), run.precision():
        run.act(obs_N, run.memory, begun_N)
    length = run.buffer.stretch
    stretches = run.buffer.horizon * run.agents // length
    columns = -(-stretches // -(-stretches // max(1, run.settings.trainer.minibatch_size // length)))
    obs_LC = torch.zeros((length, columns, *obs_N.shape[1:]), dtype=obs_N.dtype, device=run.device)
    state = run.policy.initial_state(columns)
    begun_LC = None if state is None else torch.zeros((length, columns), dtype=torch.bool, device=run.device)
    with run.precision():
        logits_LCA, values_LC = run.learn(obs_LC, begun_LC, state)
    torch.autograd.backward(logits_LCA.sum() + values_LC.sum())
    run.optimizer.zero_grad()
