"""Weights & Biases: a run of the same numbers, online or, without a login, offline.

What `metrics.jsonl` holds is written first, an offline run anew at every start: a resumed run is one run that has each
step once. Online, W&B ignores the steps that it has. The process that wandb starts ends with the sink.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from secrets import token_hex
from typing import Any

from velodrome.settings import mask
from velodrome.training.run.metrics_log import past_scalars
from velodrome.training.run.train_folder import METRICS
from velodrome.training.settings import RunSettings


class WandbSink:
    """An open run of W&B, with its files in `wandb/` of the run's folder."""

    def __init__(self, settings: RunSettings, folder: Path, step: int, say: Callable[[str], None]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would call home, offline too
        import wandb

        own = folder / "wandb"
        mode: Any = os.environ.get("WANDB_MODE")
        if not mode and not wandb.login(prompt=False, verify=False):
            mode = "offline"
            say(f"output.wandb: not logged in, so the run is kept offline; to upload it: wandb sync {own}/offline-*")
        self._alone = "WANDB_SERVICE" not in os.environ  # otherwise the caller's own runs use the process too
        self._wandb: Any = wandb
        run_id = _run_id(own)
        if mode == "offline":
            for older in own.glob(f"offline-run-*-{run_id}"):
                shutil.rmtree(older)
        with ExitStack() as undo:
            undo.callback(self._end_service)
            self._run: Any = wandb.init(
                mode=mode,
                project=os.environ.get("WANDB_PROJECT", "velodrome"),
                id=run_id,
                name=folder.name,
                dir=str(folder),
                config=mask(settings.model_dump(mode="json")),
                resume=None if mode == "offline" else "allow",
                settings=wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True),
            )
            undo.pop_all()
        for past, numbers in past_scalars(folder / METRICS):
            if past >= self._run.starting_step:  # of an online run, what W&B does not have yet
                self.write(past, numbers)

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def flush(self) -> None:
        """Nothing to do: what a kill loses is written again when the run resumes."""

    def close(self) -> None:
        try:
            self._run.finish()
        finally:
            self._end_service()

    def _end_service(self) -> None:
        if self._alone:
            self._wandb.teardown()


def _run_id(folder: Path) -> str:
    """The name of the run at W&B. It is drawn once and kept, so that a run made again elsewhere is another run."""
    path = folder / "velodrome_run_id"
    known = path.read_text() if path.exists() else ""
    if not known:
        folder.mkdir(exist_ok=True)
        path.write_text(known := token_hex(8))
    return known
