"""Times the parts of an epoch, and runs PyTorch's profiler over a few epochs.

Every part is a span. While the profiler records, the name of a part is in its trace too: `profiler_trace_0.json` in
the run's folder. A step of the profiler is one epoch: a rollout and its update, whole. Evaluations and checkpoints
between epochs are not recorded. Nothing here changes what is computed or counts as time of what is observed; a trace
that cannot be written is reported, and training continues.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch.autograd import _enable_record_function  # type: ignore[attr-defined]  # for this thread, on and off
from torch.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule

from velodrome.timing.figures import counted
from velodrome.timing.spans import Span, span
from velodrome.training.settings import ProfilerSettings

_TOP = 12
_SILENT = "6"  # above the level at which it reports starting and stopping
_RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class Tracer:
    """Opens parts, counts epochs and, with `enabled`, writes a trace. `synchronized`: a clock waits for the device."""

    def __init__(
        self,
        settings: ProfilerSettings,
        folder: Path,
        device: torch.device,
        say: Callable[[str], None],
        *,
        profiled: bool,
    ) -> None:
        self.synchronized = profiled and device.type == "cuda"
        self._recording = False
        self._settings = settings
        self._folder = folder
        self._device = device
        self._say = say
        self._epochs = 0
        self._open: list[Any] = []  # ranges that have begun
        self._recorded = False
        self.took_s = 0.0  # by the profiler itself
        self.paths: list[Path] = []
        self._wanted = settings.enabled  # started with the first epoch
        self._profile: profile | None = None

    def part(self, name: str) -> AbstractContextManager[Any]:
        """A span of this name."""
        return self._watched(name) if self.synchronized or self._recording else span(name)

    @contextmanager
    def _watched(self, name: str) -> Iterator[Span]:
        """A span that is also marked in the trace, or that waits for the device."""
        mark: AbstractContextManager[Any] = record_function(name) if self._recording else nullcontext()
        with mark, span(name) as opened:
            yield opened
            if self.synchronized:
                torch.cuda.synchronize()

    @contextmanager
    def epoch(self, number: int) -> Iterator[None]:
        """Around a rollout and its update."""
        if self._wanted:
            self._wanted = False
            with self._apart():
                self._profile = self._started()
        if self._profile is None:
            yield
            return
        self._recording = self._profile.current_action in _RECORDING
        _enable_record_function(True)
        self.begin(f"epoch {number}")
        try:
            yield
        finally:
            while self._open:
                self.end()
            self._recording = False
            _enable_record_function(False)  # until the next epoch
        self._epochs += 1
        with self._apart():
            self._profile.step()
        settings = self._settings
        if self._epochs >= settings.wait_steps + settings.warmup_steps + settings.active_steps:
            self.close()

    def begin(self, name: str) -> None:
        """A range of this name begins, if it is recorded."""
        if self._recording:
            self._open.append(record_function(name))
            self._open[-1].__enter__()

    def end(self) -> None:
        """The range that began last is over."""
        if self._open:
            self._open.pop().__exit__(None, None, None)

    def close(self) -> None:
        """Stop; a started trace is written as far as it got."""
        if self._profile is None:
            return
        ending, self._profile = self._profile, None
        with self._apart():
            ending.stop()
        _enable_record_function(True)
        if self._epochs and not self._recorded:
            before = "trainer.profiler.wait_steps and warmup_steps come first; trainer.total_timesteps may be larger"
            self._say(f"profiler: no trace: there were {counted(self._epochs, 'epoch')}, and {before}")

    @contextmanager
    def _apart(self) -> Iterator[None]:
        """For the profiler's own work: its time counts for no part, and its warnings are dropped."""
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*Profiler", category=UserWarning)
                yield
        finally:
            self.took_s += time.perf_counter() - began

    def _started(self) -> profile:
        settings = self._settings
        os.environ.setdefault("KINETO_LOG_LEVEL", _SILENT)
        activities = [ProfilerActivity.CPU]
        if self._device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        started = profile(
            activities=activities,
            schedule=schedule(
                wait=settings.wait_steps,
                warmup=settings.warmup_steps,
                active=settings.active_steps,
                repeat=1,
            ),
            on_trace_ready=self._keep,
            record_shapes=settings.record_shapes,
            profile_memory=settings.profile_memory,
        )
        started.start()
        return started

    def _keep(self, done: profile) -> None:
        """Write the trace whole or not at all, and show which operators took the time."""
        self._recorded = True
        path, new = self._folder / "profiler_trace_0.json", self._folder / "profiler_trace.new.json"
        try:
            done.export_chrome_trace(str(new))
            size = new.stat().st_size if new.exists() else 0
            if not size:  # torch does not say why
                raise OSError("is there room on the disk?")
            new.replace(path)
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            self._say(f"profiler: {path}: the trace cannot be written ({error.strerror or error}); training continues")
            return
        self.paths.append(path)
        order = "self_cuda_time_total" if self._device.type == "cuda" else "self_cpu_time_total"
        table = done.key_averages().table(sort_by=order, row_limit=_TOP, max_name_column_width=40)
        self._say(f"profiler: {path} ({size / 1e6:.1f} MB; open it in Perfetto or chrome://tracing)\n{table}")
