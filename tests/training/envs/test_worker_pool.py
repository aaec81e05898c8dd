"""Worker processes: the same numbers as one process, one line for what goes wrong, and nothing left behind."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.patience import DEADLINE_S
from tests.support.small_run import children
from tests.support.toy_envs import Sampled
from velodrome.errors import InputError, TrainError
from velodrome.training.envs.interface import VectorEnv
from velodrome.training.envs.make import make_env
from velodrome.training.settings import EnvSettings

FAILING = "tests.support.toy_envs:toy/Failing-v0"
FIELDS = ("obs", "rewards", "terminals", "truncations", "final_obs", "action_mask")


def made(name: str = "tests.support.toy_envs:toy/Sampled-v0", num_envs: int = 5, **settings: Any) -> VectorEnv:
    return make_env(EnvSettings(name=f"gymnasium:{name}", num_envs=num_envs, **settings), 3)


def actions(env: VectorEnv, random: np.random.Generator) -> NDArray[Any]:
    """Any, or the first that is allowed."""
    acts = env.spec.actions
    if acts.continuous:
        return np.clip(random.normal(0, 2, (env.spec.total, acts.width)), acts.low, acts.high).astype(np.float32)
    if env.action_mask is not None:
        return env.action_mask.argmax(1)
    return random.integers(0, acts.sizes, (env.spec.total, len(acts.sizes))).reshape(env.spec.total, *acts.shape)


@pytest.mark.parametrize(
    ("workers", "options", "more"),
    [
        (2, {"observation": "dict", "action": "multi"}, {"action_repeat": 2}),
        (3, {"observation": "image", "action": "box"}, {"action_repeat": 3}),
        (9, {"mask": "method"}, {}),
    ],
)
def test_workers_give_the_numbers_of_one_process(workers: int, options: dict[str, Any], more: dict[str, Any]) -> None:
    before, random = children(), np.random.default_rng(0)
    with closing(made(options=options, **more)) as one, closing(made(options=options, workers=workers, **more)) as many:
        assert many.spec == one.spec
        assert len(children() - before) == min(workers, 5)
        for t in range(40):
            if t == 25:
                one.reset(8)
                many.reset(8)
            for name in FIELDS:
                np.testing.assert_array_equal(getattr(one, name), getattr(many, name), strict=True)
            drawn = actions(one, random)
            one.step(drawn)
            many.step(drawn)
        assert many.ended().returns.tolist() == one.ended().returns.tolist()
    assert children() == before


def test_a_worker_whose_environment_raises_says_what_one_process_says(capfd: pytest.CaptureFixture[str]) -> None:
    before, said = children(), []
    for workers in (0, 2):
        with closing(made(FAILING, workers=workers)) as env:
            for _ in range(2):
                env.step(np.zeros(5, np.int64))
            with pytest.raises(InputError) as raised:
                env.step(np.zeros(5, np.int64))
        said.append(str(raised.value))
    assert said[0] == said[1]
    assert said[0].startswith(f"env.name=gymnasium:{FAILING}: RuntimeError: the floor gave way (")
    assert children() == before
    assert capfd.readouterr().err == ""


def group(leader: int) -> list[int]:
    """The processes of a group that run."""
    result = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, of, *_ = path.read_text().rpartition(")")[2].split()
            if int(of) == leader and state != "Z":
                result.append(int(path.parent.name))
    return result


def test_workers_close_their_environments_and_end_what_these_have_started(tmp_path: Path) -> None:
    before, options = children(), {"folder": str(tmp_path), "but": os.getpid()}
    env = made("tests.support.toy_envs:toy/Forking-v0", 2, workers=2, options=options)
    workers = children() - before
    assert all(len(group(worker)) == 2 for worker in workers)
    env.close()
    assert all((tmp_path / f"closed_{worker}").exists() for worker in workers)
    deadline = time.monotonic() + DEADLINE_S
    while any(map(group, workers)):
        assert time.monotonic() < deadline


def test_a_worker_that_ends_is_named_in_one_line_and_the_others_end_too() -> None:
    before = children()
    with closing(made(FAILING, workers=2, options={"how": "exit"})) as env:
        for _ in range(2):
            env.step(np.zeros(5, np.int64))
        with pytest.raises(TrainError, match=rf"^env\.name=gymnasium:{FAILING}: worker [^\n]* ended: exit code 3;"):
            env.step(np.zeros(5, np.int64))
    assert children() == before


PARENT = """
from velodrome.training.envs.make import make_env
from velodrome.training.settings import EnvSettings
options = {"sleep_s": 1000, "says": True}
env = make_env(EnvSettings(name="gymnasium:tests.support.toy_envs:toy/Working-v0", workers=2, options=options), 0)
env.step([0] * 16)
"""


def test_workers_of_a_parent_that_is_killed_end_in_the_middle_of_a_step() -> None:
    before = set(os.listdir("/dev/shm"))
    path = os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, sys.path)])
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], bufsize=0, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as parent:
        assert parent.stderr is not None  # where workers print, too
        for _ in range(2):  # each of them
            assert select.select([parent.stderr], [], [], DEADLINE_S)[0]
            assert b"stepping\n" in iter(parent.stderr.readline, b"")
        parent.kill()
        assert select.select([parent.stderr], [], [], DEADLINE_S)[0]  # which the workers have open, too
        assert parent.stderr.read() == b""
    assert set(os.listdir("/dev/shm")) == before


OWN = """
import gymnasium
from tests.support.toy_envs import Sampled
PAYS = 7.0
class Own(Sampled):
    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, PAYS, *rest
gymnasium.register("own/Own-v0", Own)
"""


def test_an_environment_of_a_file_that_no_worker_can_import_works(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("recipe_velo_recipe")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    try:
        exec(OWN, module.__dict__)
        with closing(made("own/Own-v0", workers=2)) as env:
            env.step(np.zeros(5, np.int64))
            assert env.rewards.tolist() == [7.0] * 5
    finally:
        gymnasium.registry.pop("own/Own-v0", None)


def test_an_environment_that_cannot_be_sent_to_workers_is_refused_with_the_way_out() -> None:
    lock = threading.Lock()
    gymnasium.register("own/Locked-v0", lambda **_: (lock, Sampled())[1])
    try:
        with pytest.raises(
            InputError, match=r"^env\.workers=2: own/Locked-v0 cannot be sent .*gymnasium:<module>:<id>"
        ):
            made("own/Locked-v0", workers=2)
    finally:
        gymnasium.registry.pop("own/Locked-v0")
