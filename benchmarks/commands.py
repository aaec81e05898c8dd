"""Run the pieces of the benchmark as processes of their own, in a scratch folder where no `env.yaml` can reach them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parent.parent
VELO = str(Path(sys.executable).parent / "velo")


@dataclass(frozen=True)
class Ended:
    """A finished command. `first_s` is when its output file first grew, `first_cpu_s` its CPU time until then.

    `growth` is how the output grew after that: seconds, seconds of CPU, bytes, if it was asked for.
    """

    total_s: float
    first_s: float | None
    peak_mb: float
    first_cpu_s: float | None = None
    growth: tuple[tuple[float, float, int], ...] = ()


def measure(module: str, *args: object, cwd: Path) -> Any:
    """What `python -m benchmarks.<module>` prints, as JSON."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, args)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"benchmarks.{module} failed:\n{done.stderr[-4000:]}")
    return orjson.loads(done.stdout)


def velo(*args: str, cwd: Path, output: Path | None = None, every_s: float | None = None) -> Ended:
    """Run the installed command, and watch `output` grow if there is one: its first line, or every so often."""
    before = _size(output)
    first_s = first_cpu_s = None
    growth: list[tuple[float, float, int]] = []
    with (cwd / "velo.log").open("wb") as log:
        start = time.perf_counter()
        process = subprocess.Popen([VELO, *args], cwd=cwd, stdout=log, stderr=log)
        ended = 0
        while not ended:
            watching = output is not None and (first_s is None or every_s is not None)
            # Not Popen.wait: only wait4 tells what this one child used.
            ended, status, usage = os.wait4(process.pid, os.WNOHANG if watching else 0)
            size = _size(output) if watching else 0
            if size > before:
                now_s, cpu_s = time.perf_counter() - start, _cpu_s(process.pid)
                growth.append((now_s, cpu_s or 0.0, size))
                if first_s is None:
                    first_s, first_cpu_s = now_s, cpu_s
            if watching:
                time.sleep(0.002 if first_s is None else every_s or 0.0)
        total_s = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"velo {' '.join(args)} failed:\n{(cwd / 'velo.log').read_text()[-4000:]}")
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Ended(total_s, first_s, peak_bytes / 1e6, first_cpu_s, tuple(growth))


def _cpu_s(pid: int) -> float | None:
    """The CPU time of a running process; None where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _size(path: Path | None) -> int:
    return path.stat().st_size if path is not None and path.exists() else 0
