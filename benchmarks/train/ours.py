"""Our own loop, epoch by epoch: the body of `loop.run_training` without evaluation and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.summary import Json
from benchmarks.train.cases import Case, Epochs, settings_of
from velodrome.training import loop
from velodrome.training.cpu_settings import cpu_settings
from velodrome.training.run.session import Session, make_session
from velodrome.training.schedule import phase_at, rollout_steps


def epoch(run: Session) -> Json:
    """Roll out, learn, count, tell; the line of metrics."""
    phase = phase_at(run.settings, run.step)
    steps = rollout_steps(phase, run.step, run.agents, run.buffer.horizon)
    stats, rollout, update = loop.epoch(run, phase, steps)
    run.step += steps * run.agents
    run.epoch += 1
    spent = run.account.add(phase.name, steps * run.agents, rollout, update)
    return loop.report(run, phase, stats, spent)


@contextmanager
def begun(case: Case, *, supervised: bool = False) -> Iterator[Session]:
    """A run in a folder that is gone afterwards."""
    with TemporaryDirectory(prefix="velodrome-bench-") as folder, cpu_settings(threads=1):
        run = make_session(settings_of(case, supervised=supervised, folder=folder), Path(folder), lambda line: None)
        try:
            yield run
        finally:
            run.close()


@contextmanager
def trainer(case: Case, variant: str) -> Iterator[Epochs]:
    """As it is."""
    with begun(case) as run:

        def epochs(count: int) -> None:
            for _ in range(count):
                epoch(run)

        yield epochs
