"""A policy as an ONNX file for other programs, with what it needs to know beside the weights.

The file takes observations (and memory, and which options are allowed) and gives actions. Scaling, normalisation
and bounds are inside.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from velodrome.errors import InputError, StorageError
from velodrome.training.envs.interface import Spec
from velodrome.training.network.distributions import bounded
from velodrome.training.network.policy import Policy

Json = dict[str, Any]

ABOUT = "velodrome.json"  # the metadata of a file that describes its inputs and outputs
_ROWS = 3  # of the example that torch follows through the network


class ExportedPolicy(nn.Module):
    """obs[, state, starts][, mask] -> actions, outputs, values[, state]."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        state, starts = inputs[1:3] if self.policy.recurrent else (None, None)
        outputs_NO, values_N, after = self.policy(inputs[0], state, starts)
        actions_N = self.policy.distribution(outputs_NO, inputs[-1] if self.policy.actions.masked else None).mode()
        results = (bounded(actions_N, self.policy.actions), outputs_NO, values_N)
        return results if after is None else (*results, after)


def export_policy(policy: Policy, spec: Spec, step: int, path: Path) -> Json:
    """Write the file; returns what it takes and gives."""
    missing = [name for name in ("onnx", "onnxscript") if find_spec(name) is None]
    if missing:
        raise InputError(f'needs {", ".join(missing)}: pip install "velodrome[onnx]"')
    inputs = example_inputs(policy, spec)
    outputs = ["actions", "outputs", "values", *(["state"] if policy.recurrent else [])]
    about = {"env": spec.name, "step": step, "inputs": _shapes(inputs), "outputs": outputs}
    batch = torch.export.Dim("batch", min=1)
    axes = tuple({1 if name == "state" else 0: batch} for name in inputs)
    after = [f"{name}_after" if name in inputs else name for name in outputs]  # names are used once
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns that torchvision is not installed
    try:
        with torch.no_grad(), warnings.catch_warnings(action="ignore"):
            program = torch.export.export(ExportedPolicy(policy).eval(), tuple(inputs.values()), dynamic_shapes=(axes,))
            exported = torch.onnx.export(program, dynamo=True, verbose=False, input_names=[*inputs], output_names=after)
    finally:
        logger.setLevel(level)
    assert exported is not None
    exported.model.metadata_props[ABOUT] = json.dumps(about)
    new = path.parent / f"{path.name}.new"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            exported.save(str(new))
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error
    return {"file": str(path), **about}


def example_inputs(policy: Policy, spec: Spec) -> dict[str, Tensor]:
    """Inputs by name, in the order in which an exported file takes them."""
    inputs = {"obs": torch.zeros(_ROWS, *spec.obs_shape, dtype=getattr(torch, spec.obs_dtype))}
    if policy.recurrent:
        inputs["state"] = torch.zeros(2, _ROWS, policy.hidden)
        inputs["starts"] = torch.ones(_ROWS, dtype=torch.bool)
    if spec.actions.masked:
        inputs["mask"] = torch.ones(_ROWS, spec.actions.width, dtype=torch.bool)
    return inputs


def _shapes(inputs: Mapping[str, Tensor]) -> Json:
    return {
        name: {
            "dtype": str(each.dtype).removeprefix("torch."),
            "shape": ["batch" if axis == (name == "state") else size for axis, size in enumerate(each.shape)],
        }
        for name, each in inputs.items()
    }
