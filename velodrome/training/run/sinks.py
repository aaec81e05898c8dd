"""TensorBoard and Weights & Biases, with `output.tensorboard` and `output.wandb`: the numbers of `metrics.jsonl` too.

A sink that fails is reported once and left out; training continues. Every number is in `metrics.jsonl` in any case.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

import orjson

from velodrome.errors import InputError, VelodromeError, blame
from velodrome.settings import mask
from velodrome.training.run.metrics_log import scalars
from velodrome.training.run.train_folder import METRICS
from velodrome.training.settings import OutputSettings, RunSettings

Say = Callable[[str], None]


class MetricSink(Protocol):
    """Receives the numbers of each epoch and evaluation after `step`, the step of the checkpoint."""

    def __init__(self, settings: RunSettings, folder: Path, step: int, say: Say) -> None: ...

    def write(self, step: int, numbers: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoardSink:
    """An event file per start of a run. A resumed run makes TensorBoard forget what follows its checkpoint."""

    def __init__(self, settings: RunSettings, folder: Path, step: int, say: Say) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1 if step else None)  # type: ignore[no-untyped-call]

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """A run of W&B, online or, without a login, offline, with its files in `wandb/` of the run's folder.

    What `metrics.jsonl` holds is written first, and an offline run is rewritten at every start, so a resumed run is one
    run with each step once. The process that wandb starts ends with the sink.
    """

    def __init__(self, settings: RunSettings, folder: Path, step: int, say: Say) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would call home, offline too
        import wandb

        own = folder / "wandb"
        mode: Any = os.environ.get("WANDB_MODE")
        if not mode and not wandb.login(prompt=False, verify=False):
            mode = "offline"
            say(f"output.wandb: not logged in, so the run is kept offline; to upload it: wandb sync {own}/offline-*")
        for older in own.glob("offline-run-*") if mode == "offline" else ():
            shutil.rmtree(older)
        self._wandb: Any = (
            None if "WANDB_SERVICE" in os.environ else wandb
        )  # else the caller's runs use the process too
        try:
            self._run: Any = wandb.init(
                mode=mode,
                project=os.environ.get("WANDB_PROJECT", "velodrome"),
                id=_run_id(own),
                name=folder.name,
                dir=str(folder),
                config=mask(settings.model_dump(mode="json")),
                resume=None if mode == "offline" else "allow",
                settings=wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True),
            )
        except BaseException:
            self._end_service()
            raise
        for line in map(orjson.loads, (folder / METRICS).read_bytes().splitlines()):
            if line["step"] >= self._run.starting_step:  # of an online run, what W&B does not have yet
                self.write(line["step"], scalars(line))

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        try:
            self._run.finish()
        finally:
            self._end_service()

    def _end_service(self) -> None:
        if self._wandb is not None:
            self._wandb.teardown()


def _run_id(folder: Path) -> str:
    """The id of the run at W&B, drawn once and kept in the folder."""
    path = folder / "velodrome_run_id"
    if not path.exists():
        folder.mkdir(exist_ok=True)
        path.write_text(token_hex(8))
    return path.read_text()


SINKS: dict[str, type[MetricSink]] = {"tensorboard": TensorBoardSink, "wandb": WandbSink}  # by setting and package


def chosen_sinks(output: OutputSettings) -> list[str]:
    """The sinks of a run; an `InputError` if the package of one is absent."""
    chosen = [name for name in SINKS if getattr(output, name)]
    missing = [name for name in chosen if find_spec(name) is None]
    if missing:
        raise InputError(
            *(f'output.{name}: needs the package "{name}" (pip install "velodrome[{name}]")' for name in missing)
        )
    return chosen


class Sinks:
    """The sinks of a run, as one. A sink that fails is reported once and left out."""

    def __init__(self, settings: RunSettings, folder: Path, step: int, say: Say) -> None:
        self._say = say
        self._open: dict[str, MetricSink] = {}
        for name in chosen_sinks(settings.output):
            with self._reported(name):
                self._open[name] = SINKS[name](settings, folder, step, say)

    def write(self, line: Mapping[str, Any]) -> None:
        """A line of metrics."""
        for name, sink in list(self._open.items()):
            with self._reported(name):
                sink.write(line["step"], scalars(line))

    def close(self) -> None:
        for name, sink in list(self._open.items()):
            with self._reported(name):
                sink.close()
        self._open.clear()

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        try:
            with blame(InputError, f"output.{name}"):
                yield
        except VelodromeError as error:
            first = str(error).partition("\n")[0]
            self._say(f"{first}; training continues without output.{name}, and metrics.jsonl has every number")
            failed = self._open.pop(name, None)
            if failed is not None:
                with suppress(VelodromeError), blame(InputError, name):
                    failed.close()
