"""What a program may use, and what is known of it afterwards."""

from __future__ import annotations

from dataclasses import dataclass

STOPPED = ("", "time", "cpu", "memory", "output", "disk", "processes", "ended")  # the codes inside.py answers with


@dataclass(frozen=True, slots=True)
class Limits:
    """What one `run` may use. `disk_mb` is that of the box: it holds for all its runs together."""

    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory_mb: int = 512
    processes: int = 32
    output_bytes: int = 1 << 20
    disk_mb: int = 64


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that ended. `stopped` names the limit that ended it; "ended": it was told to, or its box was lost."""

    stdout: str
    stderr: str
    exit_code: int  # negative: the signal
    stopped: str
    wall_s: float
    cpu_s: float


LOST = Ran("", "", -9, "ended", 0.0, 0.0)  # its sandbox is gone, and with it what it wrote
