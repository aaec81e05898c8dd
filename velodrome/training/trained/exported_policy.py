"""A policy as a file for other programs: TorchScript or ONNX, with what it needs to know beside the weights.

The file takes observations (and memory, and which options are allowed) and gives actions, so nobody has to repeat
scaling, normalisation or bounds. What was written is run before it gets its name.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from velodrome.errors import InputError, StorageError, blame
from velodrome.training.envs.interface import Array, Spec
from velodrome.training.network.distributions import bounded
from velodrome.training.network.policy import Policy

Json = dict[str, Any]
Format = Literal["torchscript", "onnx"]

SUFFIXES = {".onnx": "onnx", ".pt": "torchscript"}
_ABOUT = "velodrome.json"
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


class ExportedPolicy:
    """A file that was exported: `about` says what it is, `run` takes its inputs and gives its outputs, by name."""

    def __init__(self, path: Path, about: Json, call: Callable[[list[Array]], list[Array]]) -> None:
        self.path = path
        self.about = about
        self._call = call

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        with blame(InputError, f"{self.path}: cannot be run"):
            outputs = self._call([np.ascontiguousarray(inputs[name]) for name in self.about["inputs"]])
        return dict(zip(self.about["outputs"], outputs, strict=True))


def export_policy(policy: Policy, spec: Spec, step: int, path: Path, kind: Format) -> Json:
    """Write the file, and what it takes and gives; returns that."""
    if kind == "onnx":
        refuse_missing("onnx", "onnx", "onnxscript", "onnxruntime")
    shapes = _shapes(random_inputs(policy, spec, np.random.default_rng(0), _TRIED))
    inputs = _inputs_of(shapes)
    with torch.no_grad():
        expected = _ForExport(policy)(*map(torch.from_numpy, inputs.values()))[1].tolist()
    names = ["actions", "outputs", "values", *(["state"] if policy.recurrent else [])]
    about = {"env": spec.name, "step": step, "inputs": shapes, "outputs": names, "format": kind, "expected": expected}
    new = path.with_name(f"{path.name}.new")
    try:
        new.parent.mkdir(parents=True, exist_ok=True)
        _write(policy, inputs, about, new)
        result = check_exported(new, kind)
        new.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        new.unlink(missing_ok=True)
    return {**result, "file": str(path)}


def _write(policy: Policy, inputs: Mapping[str, Array], about: Json, path: Path) -> None:
    arguments = tuple(map(torch.from_numpy, inputs.values()))
    batch = torch.export.Dim("batch", min=1)
    axes = tuple({1 if name == "state" else 0: batch} for name in inputs)
    with torch.no_grad(), _quiet():
        program = torch.export.export(_ForExport(policy).eval(), arguments, dynamic_shapes=(axes,))
        if about["format"] == "torchscript":
            traced = torch.jit.trace(program.module(), arguments, check_trace=False)  # type: ignore[no-untyped-call]
            torch.jit.save(traced, str(path), _extra_files={_ABOUT: json.dumps(about).encode()})
            return
        after = [f"{name}_after" if name in inputs else name for name in about["outputs"]]  # names are used once
        made = torch.onnx.export(program, dynamo=True, verbose=False, input_names=[*inputs], output_names=after)
        assert made is not None
        made.model.metadata_props[_ABOUT] = json.dumps(about)
        made.save(str(path))


def read_exported(path: Path, kind: str | None = None) -> ExportedPolicy:
    """A file that `export_policy` wrote; the ending of its name says what it is. A damaged one is an `InputError`."""
    kind = kind or SUFFIXES.get(path.suffix)
    if kind is None:
        raise InputError(f"{path}: not an exported policy, whose name ends in {' or '.join(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with blame(InputError, f"{path}: not a whole {kind} file"):
            text, call = _onnx(path) if kind == "onnx" else _torchscript(path)
    except InputError as error:  # torch's and onnxruntime's have many lines
        way = "; the weights of a run are read by velo policy eval" if kind == "torchscript" else ""
        said = str(error).removeprefix(str(path)).splitlines()[0].partition(". ")[0]
        raise InputError(f"{path}{said:.300}{way}") from error
    try:
        return ExportedPolicy(path, json.loads(text), call)
    except ValueError:
        raise InputError(f"{path}: a {kind} file, but not one that velo policy export wrote") from None


def _onnx(path: Path) -> tuple[str, Callable[[list[Array]], list[Array]]]:
    refuse_missing("onnx", "onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    about = session.get_modelmeta().custom_metadata_map.get(_ABOUT, "")
    return about, lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))


def _torchscript(path: Path) -> tuple[str, Callable[[list[Array]], list[Array]]]:
    extra = {_ABOUT: ""}
    with _quiet():
        module = torch.jit.load(str(path), map_location="cpu", _extra_files=extra)  # type: ignore[no-untyped-call]

    def call(arrays: list[Array]) -> list[Array]:
        with torch.no_grad():
            return [each.numpy() for each in module(*map(torch.from_numpy, arrays))]

    return extra[_ABOUT], call


def check_exported(path: Path, kind: str | None = None) -> Json:
    """Read a file and compare what it gives with what the policy gave when it was written; returns what it is."""
    exported = read_exported(path, kind)
    with blame(InputError, f"{path}: not as velo policy export wrote it"):
        expected = exported.about.pop("expected")
        outputs = exported.run(_inputs_of(exported.about["inputs"]))["outputs"]
        same = np.allclose(outputs, expected, rtol=_CLOSE, atol=_CLOSE)
    if not same:
        raise InputError(f"{path}: does not act as the policy that was exported; export it again")
    return {"file": str(path), **exported.about}


def _inputs_of(shapes: Json) -> dict[str, Array]:
    """The inputs that a file is tried with, the same everywhere."""
    rng = np.random.default_rng(0)
    return {
        name: _random(rng, one["dtype"], tuple(_TRIED if size == "batch" else size for size in one["shape"]))
        for name, one in shapes.items()
    }


def random_inputs(policy: Policy, spec: Spec, rng: np.random.Generator, n: int) -> dict[str, Array]:
    """Inputs of n observations, by name, in the order that an exported file takes them."""
    inputs: dict[str, Array] = {"obs": _random(rng, spec.obs_dtype, (n, *spec.obs_shape))}
    cells = spec.window * spec.window
    if spec.layout == "tokens":
        inputs["obs"][:, :cells] %= spec.codes
    if policy.recurrent:
        inputs["state"] = _random(rng, "float32", (2, n, policy.hidden))
        inputs["starts"] = rng.random(n) < 0.2
    if spec.actions.masked:
        allowed = rng.random((n, spec.actions.width)) < 0.5
        allowed[:, np.cumsum((0, *spec.actions.sizes[:-1]))] = True  # each choice has an option
        inputs["mask"] = allowed
    return inputs


def _random(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype == "uint8":
        return rng.integers(0, 256, shape, np.uint8)
    return np.ones(shape, np.bool_) if dtype == "bool" else rng.normal(size=shape).astype(np.float32)


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
    """Without what torch says of its own exporters: that jit is deprecated, that torchvision is not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
