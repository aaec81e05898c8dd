"""A limit of CPU time ends code of others, also code that swallows the exception."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.resources_servers.playing import score
from velodrome import Environment
from velodrome.environments.reasoning_gym.app import ReasoningGym
from velodrome.environments.reasoning_gym.cpu_limit import CpuSpent, within_cpu
from velodrome.errors import InputError, VerifyError


def burn() -> None:
    while True:
        pass


class Destroyed:
    def __del__(self) -> None:
        burn()  # an exception here is printed and forgotten


def swallow_twice() -> None:
    Destroyed()
    try:
        burn()
    except:  # noqa: E722 - as careless code has it
        pass
    burn()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the destructor
def test_code_that_swallows_the_end_of_its_time_is_ended_all_the_same():
    before = signal.getsignal(signal.SIGPROF)
    with pytest.raises(CpuSpent):
        within_cpu(0.05, swallow_twice)
    assert (signal.getitimer(signal.ITIMER_PROF), signal.getsignal(signal.SIGPROF)) == ((0.0, 0.0), before)
    assert within_cpu(0.05, lambda: 7) == 7


class Stubborn(Environment):
    def verify(self, task: dict[str, Any], response: Any) -> float:
        return within_cpu(0.05, self.never if task["hard"] else self.at_once)

    def at_once(self) -> float:
        return 1.0

    def never(self) -> float:
        while True:
            try:
                burn()
            except BaseException:  # noqa: BLE001 - as careless code has it
                pass


@pytest.mark.slow
def test_a_worker_that_swallows_every_end_is_ended_by_the_kernel():
    with pytest.raises(VerifyError, match="its process ended with signal SIGXCPU"):
        score(Stubborn(executor="process", worker_processes=1), {"hard": True})
    assert score(Stubborn(executor="process", worker_processes=1), {"hard": False})["reward"] == 1.0


def test_a_worker_on_a_machine_with_a_limit_of_cpu_time_of_its_own_has_that_limit():
    code = """
import resource
from velodrome.resources_servers import code_worker
from velodrome.environments.reasoning_gym.cpu_limit import within_cpu

code_worker.is_worker = True
resource.setrlimit(resource.RLIMIT_CPU, (3000, 3600))
print(within_cpu(7200, lambda: resource.getrlimit(resource.RLIMIT_CPU)), resource.getrlimit(resource.RLIMIT_CPU))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "(3600, 3600) (3000, 3600)\n", done.stderr
    with pytest.raises(InputError, match="verify_cpu_s"):  # no timer takes it, and every answer would earn 0
        ReasoningGym(verify_cpu_s=1e30)
