"""One rollout in preallocated memory: written step by step, read in shuffled minibatches.

A minibatch consists of whole segments of `segment` steps (1 for a student without memory). A rollout cut short has
fewer steps; nothing of an earlier rollout is ever read. On the CPU numpy writes through views of the same memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

from velodrome.training.advantages import gae
from velodrome.training.envs.interface import Spec

Values: TypeAlias = Tensor | NDArray[Any]


@dataclass(frozen=True, slots=True)
class Minibatch:
    """B is L x C, in the order of `obs_LC.flatten(0, 1)`."""

    obs_LC: Tensor  # L steps of C segments, for Policy.sequence; L is 1 for a student without memory
    starts_LC: Tensor | None
    state: Tensor | None  # 2 x C x hidden: the memory at the start of each segment
    actions_B: Tensor
    teacher_actions_B: Tensor
    mask_BA: Tensor | None  # options that were allowed
    logprobs_B: Tensor
    values_B: Tensor
    advantages_B: Tensor
    returns_B: Tensor


class Buffer:
    """A rollout as T x N tensors. `state` is the student's initial memory, if it has one."""

    def __init__(
        self, horizon: int, spec: Spec, device: torch.device, *, state: Tensor | None = None, segment: int = 1
    ) -> None:
        self.horizon = horizon
        self.segment = 1 if state is None else min(segment, horizon)
        self.steps = 0  # of the rollout held; set by `compute_advantages`
        shape = (horizon, spec.total)
        self._device = device
        self._floats = torch.zeros(4, *shape, device=device)  # together: a minibatch gathers them at once
        self.logprobs, self.values, self.advantages, self.returns = self._floats
        act = spec.actions
        acted = torch.zeros(*shape, *act.shape, dtype=getattr(torch, act.dtype), device=device)
        self.actions, self.teacher_actions = acted, torch.zeros_like(acted)
        self.mask = torch.ones(*shape, act.width, dtype=torch.bool, device=device) if act.masked else None
        self.obs = torch.zeros(*shape, *spec.obs_shape, dtype=getattr(torch, spec.obs_dtype), device=device)
        self.rewards = torch.zeros(shape, device=device)
        self.final_values = torch.zeros(shape, device=device)
        self.starts = torch.zeros(shape, dtype=torch.bool, device=device)
        self.terminals = torch.zeros(shape, dtype=torch.bool, device=device)
        self.truncations = torch.zeros(shape, dtype=torch.bool, device=device)
        starts = -(-horizon // self.segment)
        self._states = None if state is None else torch.zeros(starts, spec.total, 2, state.shape[-1], device=device)
        self._row: dict[str, list[Any]] = {
            name: list(tensor.numpy() if device.type == "cpu" else tensor)
            for name, tensor in vars(self).items()
            if isinstance(tensor, Tensor) and not name.startswith("_")
        }

    def store(
        self,
        t: int,
        *,
        obs: Values,
        starts: Values,
        actions: Values,
        logprobs: Values,
        values: Values,
        teacher_actions: Values | None = None,
        mask: Values | None = None,
        state: Tensor | None = None,
    ) -> None:
        """What was seen and done in step `t`; `starts` and `state` are the inputs of the student."""
        self._put("obs", t, obs)
        self._put("starts", t, starts)
        self._put("actions", t, actions)
        self._put("logprobs", t, logprobs)
        self._put("values", t, values)
        if teacher_actions is not None:
            self._put("teacher_actions", t, teacher_actions)
        if mask is not None:
            self._put("mask", t, mask)
        if self._states is not None and t % self.segment == 0:
            assert state is not None, "a student with memory has a state"
            self._states[t // self.segment].copy_(state.transpose(0, 1))

    def store_outcome(
        self, t: int, *, rewards: Values, terminals: Values, truncations: Values, final_values: Values | None = None
    ) -> None:
        """What step `t` led to. `final_values` may be None if no episode was truncated."""
        self._put("rewards", t, rewards)
        self._put("terminals", t, terminals)
        self._put("truncations", t, truncations)
        if final_values is not None:
            self._put("final_values", t, final_values)

    def compute_advantages(self, steps: int, last_value_N: Tensor, gamma: float, lam: float) -> None:
        """The rollout ends after this many steps: compute advantages and returns."""
        self.steps = steps
        advantages_TN, returns_TN = gae(
            self.rewards[:steps],
            self.values[:steps],
            self.terminals[:steps],
            self.truncations[:steps],
            self.final_values[:steps],
            last_value_N,
            gamma,
            lam,
        )
        self.advantages[:steps].copy_(advantages_TN)
        self.returns[:steps].copy_(returns_TN)

    def minibatches(self, generator: torch.Generator, size: int) -> Iterator[Minibatch]:
        """Everything once, shuffled, in parts of nearly equal size: at most `size` agent steps, or one segment."""
        whole, rest = divmod(self.steps, self.segment)
        parts = self._parts(generator, 0, whole, self.segment, size)
        if rest:
            parts += self._parts(generator, whole, 1, rest, size)
        order = torch.randperm(len(parts), generator=generator, device=generator.device).tolist()
        for k in order if rest and whole else range(len(parts)):
            yield self._batch(*parts[k])

    def _parts(
        self, generator: torch.Generator, first: int, count: int, length: int, size: int
    ) -> list[tuple[Tensor, int]]:
        """Segments of one length from `first` on (as rows of `_states`), dealt out."""
        columns = self.obs.shape[1]
        dealt = torch.randperm(count * columns, generator=generator, device=generator.device).to(self._device)
        if not len(dealt):
            return []
        per_part = max(1, size // length)
        return [
            (segments_C, length) for segments_C in (dealt + first * columns).tensor_split(-(-len(dealt) // per_part))
        ]

    def _batch(self, segments_C: Tensor, length: int) -> Minibatch:
        columns = self.obs.shape[1]
        rows_B = segments_C
        if self.segment > 1:
            starts_C = segments_C + segments_C.div(columns, rounding_mode="floor") * (self.segment - 1) * columns
            steps_L = torch.arange(length, device=self._device) * columns
            rows_B = (steps_L.unsqueeze(1) + starts_C).flatten()
        shape = (length, len(segments_C))
        starts_LC, state = None, None
        if self._states is not None:
            starts_LC = self.starts.flatten()[rows_B].view(shape)
            state = self._states.flatten(0, 1)[segments_C].transpose(0, 1)
        obs_LC = self.obs.flatten(0, 1).index_select(0, rows_B).view(*shape, *self.obs.shape[2:])
        actions_B, teacher_B = (e.flatten(0, 1).index_select(0, rows_B) for e in (self.actions, self.teacher_actions))
        mask_BA = None if self.mask is None else self.mask.flatten(0, 1).index_select(0, rows_B)
        logprobs_B, values_B, advantages_B, returns_B = self._floats.flatten(1).index_select(1, rows_B)
        floats = (logprobs_B, values_B, advantages_B, returns_B)
        return Minibatch(obs_LC, starts_LC, state, actions_B, teacher_B, mask_BA, *floats)

    def _put(self, name: str, t: int, values: Values) -> None:
        row = self._row[name][t]
        if isinstance(row, Tensor):
            row.copy_(torch.as_tensor(values), non_blocking=True)
        else:
            row[...] = values.numpy() if isinstance(values, Tensor) else values
