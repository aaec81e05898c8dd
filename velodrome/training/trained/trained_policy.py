"""A policy to act with: numpy in, numpy out. It acts as in the evaluation of the run."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from velodrome.errors import InputError
from velodrome.training.cpu_settings import cpu_settings
from velodrome.training.envs.interface import Array, Spec
from velodrome.training.envs.make import make_env
from velodrome.training.evaluate import choose, evaluate
from velodrome.training.network.policy import Policy
from velodrome.training.settings import RunSettings
from velodrome.training.trained.exported_policy import export_policy

if TYPE_CHECKING:  # it needs gymnasium
    from velodrome.training.trained.env_actor import EnvActor

Json = dict[str, Any]
State = NDArray[np.float32]


class TrainedPolicy:
    """Weights of a run at one step: `act` says what to do, `evaluate` how good it is.

    `settings` are those of the run, `spec` describes its observations and actions, `step` is how many agent steps it
    has learned from, `path` is its file.
    """

    def __init__(self, network: Policy, settings: RunSettings, spec: Spec, step: int, path: Path) -> None:
        self.network = network
        self.settings = settings
        self.spec = spec
        self.step = step
        self.path = path
        self._generator = torch.Generator().manual_seed(0)

    def __repr__(self) -> str:
        return f"<TrainedPolicy {self.settings.env.name}, {self.step:,} agent steps, {self.path}>"

    def initial_state(self, n: int = 1) -> State | None:
        """The memory with which n episodes begin; None if the policy has none."""
        state = self.network.initial_state(n)
        return None if state is None else state.numpy()

    def act(
        self,
        obs: ArrayLike,
        state: State | None = None,
        *,
        starts: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        sample: bool = False,
        seed: int | None = None,
    ) -> tuple[Array, State | None]:
        """Actions for one observation or a batch, and the memory after it.

        `state` is what the last call returned; without it episodes begin here, and where `starts` is true. `mask` says
        which options are allowed. The likeliest action is taken, or with `sample` one is drawn; `seed` restarts that.
        """
        obs_N, single = self._rows(obs)
        if seed is not None:
            self._generator.manual_seed(seed)
        actions_N, after = choose(
            self.network,
            torch.from_numpy(obs_N),
            self._memory(state, len(obs_N)),
            torch.from_numpy(_flags("starts", False if starts is None else starts, (len(obs_N),))),
            self._allowed(mask, len(obs_N)),
            self._generator if sample else None,
        )
        actions = actions_N.numpy()
        return (actions[0] if single else actions), None if after is None else after.numpy()

    def for_env(self, env: Any) -> EnvActor:
        """The policy for a Gymnasium environment: `act` takes its observations (a Dict, a choice, an image) as they are
        and gives actions for its `step`. An environment that the policy was not made for is refused.
        """
        from velodrome.training.trained.env_actor import EnvActor

        actor = EnvActor(env, self.act, masked=self.spec.actions.masked, repeat=self.settings.env.action_repeat)
        self.refuse_other(actor.spec)
        return actor

    def evaluate(self, episodes: int = 100, *, env: str | None = None, greedy: bool | None = None) -> Json:
        """Play episodes as the evaluation of the run does; `env` is another environment that looks the same."""
        changed = self.settings.env.model_copy(update={} if env is None else {"name": env})
        changed = type(changed).read(changed.model_dump(), "env")
        with closing(make_env(changed.model_copy(update={"num_envs": 1}), 0)) as other:
            self.refuse_other(other.spec)
        evaluator = self.settings.evaluator
        evaluator = evaluator if greedy is None else evaluator.model_copy(update={"greedy": greedy})
        settings = self.settings.model_copy(update={"env": changed, "evaluator": evaluator})
        with cpu_settings(settings.trainer.threads):
            return evaluate(settings, self.network, torch.device("cpu"), step=self.step, episodes=episodes)

    def export(self, path: str | Path) -> Json:
        """Write an ONNX file that takes observations and gives actions; returns what it takes and gives."""
        return export_policy(self.network, self.spec, self.step, Path(path))

    def refuse_other(self, spec: Spec) -> None:
        """Refuse an environment whose observations or actions are not those of the policy."""
        alike = replace(spec, name=self.spec.name, num_envs=self.spec.num_envs, agents=self.spec.agents)
        if alike != self.spec:
            what = "actions" if alike.actions != self.spec.actions else "observations"
            raise InputError(f"{self.path}: a policy for {self.spec.name}; {spec.name} has other {what}")

    def _rows(self, obs: ArrayLike) -> tuple[Array, bool]:
        """Observations as the network reads them, and whether there was only one."""
        shape, dtype = self.spec.obs_shape, np.dtype(self.spec.obs_dtype)
        seen = _numbers("obs", obs)
        single = seen.shape == shape
        if not single and seen.shape[1:] != shape:
            raise InputError(f"obs: expected shape {shape} or (n, *{shape}), as {self.spec.name}, not {seen.shape}")
        rows = seen.astype(dtype)
        if dtype == np.uint8 and not np.array_equal(rows, seen):
            raise InputError(f"obs: expected {dtype}, as {self.spec.name} shows, not these {seen.dtype}")
        return np.ascontiguousarray(rows[None] if single else rows), single

    def _memory(self, state: State | None, n: int) -> torch.Tensor | None:
        initial = self.network.initial_state(n)
        if state is None or initial is None:
            return initial
        memory, shape = _numbers("state", state).astype(np.float32), tuple(initial.shape)
        if memory.shape != shape:
            raise InputError(f"state: expected shape {shape}, as initial_state({n}), not {memory.shape}")
        return torch.from_numpy(memory)

    def _allowed(self, mask: ArrayLike | None, n: int) -> torch.Tensor | None:
        actions = self.spec.actions
        if mask is None and actions.masked:
            raise InputError(f"mask: expected {n} x {actions.width} flags: {self.spec.name} allows some options only")
        if mask is None:
            return None
        allowed = _flags("mask", mask, (n, actions.width))
        if not np.logical_or.reduceat(allowed, np.cumsum((0, *actions.sizes[:-1])), 1).all():
            raise InputError("mask: allows no option of a choice")
        return torch.from_numpy(allowed)


def _flags(name: str, values: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """The values as flags of this shape; a row of a batch may stand for all."""
    array = _numbers(name, values).astype(np.bool_)
    try:
        return np.broadcast_to(array, shape).copy()
    except ValueError:
        raise InputError(f"{name}: expected shape {shape}, not {array.shape}") from None


def _numbers(name: str, values: ArrayLike) -> Array:
    with suppress(TypeError, ValueError):
        array = np.asarray(values)
        if array.dtype.kind in "biuf":
            return array
    way = "; policy.for_env(env).act takes a Dict or a Tuple as it is" if isinstance(values, dict | tuple) else ""
    raise InputError(f"{name}: expected an array of numbers, with rows of equal length{way}")
