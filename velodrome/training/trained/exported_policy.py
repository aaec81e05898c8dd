"""A policy as an ONNX file for other programs, with what it needs to know beside the weights.

The file takes observations (and memory, and which options are allowed) and gives actions. Scaling, normalisation
and bounds are inside. What was written is run and compared with the policy before it gets its name.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from velodrome.errors import InputError, StorageError
from velodrome.training.envs.interface import Array, Spec
from velodrome.training.network.distributions import bounded
from velodrome.training.network.policy import Policy

Json = dict[str, Any]

ABOUT = "velodrome.json"  # the name of what the file says of itself
_TRIED = 3  # observations that a file is tried with
_CLOSE = 1e-4  # how far its outputs may be from the policy's


class _ForExport(nn.Module):
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
    """Write the file, and what it takes and gives; returns that."""
    refuse_missing("onnx", "onnx", "onnxscript", "onnxruntime")
    inputs = random_inputs(policy, spec, np.random.default_rng(0), _TRIED)
    outputs = ["actions", "outputs", "values", *(["state"] if policy.recurrent else [])]
    about = {"env": spec.name, "step": step, "inputs": _shapes(inputs), "outputs": outputs}
    new = path.with_name(f"{path.name}.new")
    try:
        new.parent.mkdir(parents=True, exist_ok=True)
        _write(policy, inputs, about, new)
        with torch.no_grad():
            expected = _ForExport(policy)(*map(torch.from_numpy, inputs.values()))[1].numpy()
        if not np.allclose(run_onnx(new, inputs)[1], expected, rtol=_CLOSE, atol=_CLOSE):
            raise InputError(f"{path}: does not act as the policy; another version of torch or onnxruntime may help")
        new.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        new.unlink(missing_ok=True)
    return {"file": str(path), **about}


def _write(policy: Policy, inputs: Mapping[str, Array], about: Json, path: Path) -> None:
    arguments = tuple(map(torch.from_numpy, inputs.values()))
    batch = torch.export.Dim("batch", min=1)
    axes = tuple({1 if name == "state" else 0: batch} for name in inputs)
    after = [f"{name}_after" if name in inputs else name for name in about["outputs"]]  # names are used once
    with torch.no_grad(), _quiet():
        program = torch.export.export(_ForExport(policy).eval(), arguments, dynamic_shapes=(axes,))
        made = torch.onnx.export(program, dynamo=True, verbose=False, input_names=[*inputs], output_names=after)
    assert made is not None
    made.model.metadata_props[ABOUT] = json.dumps(about)
    made.save(str(path))


def run_onnx(path: Path, inputs: Mapping[str, Array]) -> list[Array]:
    """What the file gives for these inputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    outputs: list[Array] = session.run(None, dict(inputs))
    return outputs


def random_inputs(policy: Policy, spec: Spec, rng: np.random.Generator, n: int) -> dict[str, Array]:
    """Inputs of n observations, by name, in the order that an exported file takes them."""
    inputs: dict[str, Array] = {}
    if spec.obs_dtype == "uint8":
        inputs["obs"] = rng.integers(0, 256, (n, *spec.obs_shape), np.uint8)
    else:
        inputs["obs"] = rng.normal(size=(n, *spec.obs_shape)).astype(np.float32)
    if spec.layout == "tokens":
        inputs["obs"][:, : spec.window * spec.window] %= spec.codes
    if policy.recurrent:
        inputs["state"] = rng.normal(size=(2, n, policy.hidden)).astype(np.float32)
        inputs["starts"] = rng.random(n) < 0.2
    if spec.actions.masked:
        allowed = rng.random((n, spec.actions.width)) < 0.5
        allowed[:, np.cumsum((0, *spec.actions.sizes[:-1]))] = True  # each choice has an option
        inputs["mask"] = allowed
    return inputs


def _shapes(inputs: Mapping[str, Array]) -> Json:
    return {
        name: {
            "dtype": str(each.dtype),
            "shape": ["batch" if axis == (name == "state") else size for axis, size in enumerate(each.shape)],
        }
        for name, each in inputs.items()
    }


def refuse_missing(extra: str, *packages: str) -> None:
    """One line if a package of an extra is not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InputError(f'needs {", ".join(missing)}: pip install "velodrome[{extra}]"')


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of torch's exporter, for example that torchvision is not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
