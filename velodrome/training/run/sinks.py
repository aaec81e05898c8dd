"""Where the numbers of a run go besides `metrics.jsonl`: one class per service, chosen by `output.<name>=True`.

A sink that fails is reported once and left out; training continues. Every number is in `metrics.jsonl` in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from velodrome.errors import InputError, VelodromeError, blame
from velodrome.training.run.metrics_log import scalars
from velodrome.training.run.tensorboard_sink import TensorBoardSink
from velodrome.training.run.wandb_sink import WandbSink
from velodrome.training.settings import OutputSettings, RunSettings

Say = Callable[[str], None]


class MetricSink(Protocol):
    """Takes the numbers of each epoch and evaluation. It is made for what follows `step`, that of the checkpoint."""

    def __init__(self, settings: RunSettings, folder: Path, step: int, say: Say) -> None: ...

    def write(self, step: int, numbers: Mapping[str, float]) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


SINKS: dict[str, type[MetricSink]] = {
    "tensorboard": TensorBoardSink,
    "wandb": WandbSink,
}  # by setting, extra and package


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
    """The sinks of a run, as one."""

    def __init__(self, settings: RunSettings, folder: Path, step: int, say: Say) -> None:
        self._say = say
        self._open: dict[str, MetricSink] = {}
        for name in chosen_sinks(settings.output):
            try:
                with blame(InputError, f"output.{name}"):
                    self._open[name] = SINKS[name](settings, folder, step, say)
            except VelodromeError as error:
                self._report(name, error)

    def write(self, line: Mapping[str, Any]) -> None:
        """A line of metrics."""
        self._each(lambda sink: sink.write(line["step"], scalars(line)))

    def flush(self) -> None:
        self._each(lambda sink: sink.flush())

    def close(self) -> None:
        self._each(lambda sink: sink.close())
        self._open.clear()

    def _each(self, call: Callable[[MetricSink], None]) -> None:
        for name, sink in list(self._open.items()):
            try:
                with blame(InputError, f"output.{name}"):
                    call(sink)
            except VelodromeError as error:
                del self._open[name]
                self._report(name, error)
                with suppress(VelodromeError), blame(InputError, name):
                    sink.close()

    def _report(self, name: str, error: VelodromeError) -> None:
        first = str(error).partition("\n")[0]
        self._say(f"{first}; training continues without output.{name}, and metrics.jsonl has every number")
