"""The rehearsal: no kernel is compiled or loaded inside the first rollout or update of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from patience import DEADLINE_S

# In a process of its own: what another test has used is ready there already.
ASK = """
import gc, sys
from pathlib import Path
from numba.core.registry import CPUDispatcher
from small_run import small
from velodrome.training.loop import epoch
from velodrome.training.rehearsal import rehearse
from velodrome.training.run.session import make_run
from velodrome.training.schedule import phase_at

folder = Path(sys.argv[1])
settings = small(folder, **dict(each.split("=") for each in sys.argv[2:]))
run = make_run(settings, folder, print)
rehearse(run, epoch)

def ready():
    kernels = [each for each in gc.get_objects() if isinstance(each, CPUDispatcher)]
    return sorted((each.__module__, each.__name__, len(each.signatures)) for each in kernels)

before = ready()
for step in (0, settings.supervised.steps):
    epoch(run, phase_at(settings, step), run.buffer.horizon)
run.close()
assert sum(count for _, _, count in before) > 0
print(sorted(set(ready()) - set(before)))
"""


@pytest.mark.parametrize(
    "more",
    [
        ["policy__core=mlp"],
        ["policy__core=lstm"],
        ["env__name=gymnasium:CartPole-v1", "supervised__steps=0", "env__max_steps=8"],
    ],
    ids=["mlp", "lstm", "gymnasium"],
)
def test_every_kernel_is_ready_before_the_first_rollout(tmp_path: Path, more: list[str]):
    here = str(Path(__file__).parent)
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {here!r})\n{ASK}", str(tmp_path), *more],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (found.returncode, found.stdout.splitlines()[-1:]) == (0, ["[]"]), found.stderr
