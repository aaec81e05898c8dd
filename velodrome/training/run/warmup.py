"""Before the clock starts: every kernel is compiled, or loaded, by a small run that is discarded.

So the first rollout takes no longer than the others. The run itself is not changed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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
    with run.account.count_apart("kernels"), announced(run.say, "compiling kernels: half a minute, once"):
        small = _small(settings, run.env.spec.agents)
        with (
            TemporaryDirectory(prefix="velodrome-") as folder,
            closing(make_session(small, Path(folder), run.say)) as small_run,
        ):
            small_run.folder = run.folder  # errors name the run itself
            for phase in phases:
                epoch(small_run, phase, _STEPS)


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
