"""An exported policy acts as the policy does: every layout and kind of action, any batch, with memory and masks."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from velodrome.errors import StorageError
from velodrome.training.envs.interface import ActionSpace, Spec
from velodrome.training.evaluate import choose
from velodrome.training.network.policy import Policy
from velodrome.training.settings import PolicySettings
from velodrome.training.trained.exported_policy import ABOUT, export_policy

LAYOUTS = {
    "tokens": {"obs_shape": (30,), "obs_dtype": "uint8", "window": 5, "codes": 7, "features": 5},
    "planes": {"obs_shape": (3, 12, 9), "obs_dtype": "uint8"},
    "image": {"obs_shape": (4, 40, 36), "obs_dtype": "uint8"},
    "vector": {"obs_shape": (6,), "obs_dtype": "float32"},
    "mixed": {"obs_shape": (3 * 6 * 6 + 4,), "obs_dtype": "float32", "images": ((3, 6, 6),)},
}
ACTIONS = {
    "discrete": ActionSpace((5,)),
    "masked": ActionSpace((5,), masked=True),
    "multi": ActionSpace((3, 4, 2)),
    "box": ActionSpace(low=(-2.0, float("-inf"), 0.0), high=(2.0, float("inf"), 1.0)),
}
# every layout, every kind of action, every core, normalised and not
CASES = [
    ("tokens", "masked", "lstm", "auto", False),
    ("tokens", "multi", "lstm", "cnn", False),
    ("planes", "box", "mlp", "auto", False),
    ("image", "multi", "lstm", "auto", False),
    ("vector", "box", "lstm", "auto", True),
    ("mixed", "discrete", "lstm", "auto", True),
]


def made(layout: str, actions: str, core: str, encoder: str = "auto", normal: bool = False) -> tuple[Policy, Spec]:
    """A policy with weights that make its outputs differ, and statistics that are not those of the start."""
    kind = "planes" if layout == "image" else layout
    spec = Spec(name=layout, num_envs=1, agents=1, actions=ACTIONS[actions], layout=kind, **LAYOUTS[layout])
    generator = torch.Generator().manual_seed(1)
    how = PolicySettings(core=core, encoder=encoder, hidden=16, normalize_obs=normal)
    policy = Policy(how, spec, generator).eval()
    with torch.no_grad():
        policy.heads.weight.normal_(0, 0.5, generator=generator)
    if policy.normalizer is not None:
        rows = torch.randn(50, spec.obs_shape[0], generator=generator) * 3 + 1
        policy.normalizer.update(rows)
    return policy, spec


def drawn(policy: Policy, spec: Spec, n: int) -> dict[str, np.ndarray]:
    """Inputs of n observations, in the order in which an exported file takes them."""
    rng = np.random.default_rng(n)
    numbers = rng.normal(size=(n, *spec.obs_shape)).astype(np.float32)
    inputs = {"obs": numbers if spec.obs_dtype == "float32" else rng.integers(0, 7, numbers.shape, np.uint8)}
    if policy.recurrent:
        inputs["state"] = rng.normal(size=(2, n, policy.hidden)).astype(np.float32)
        inputs["starts"] = rng.random(n) < 0.2
    if spec.actions.masked:
        inputs["mask"] = rng.random((n, spec.actions.width)) < 0.5
        inputs["mask"][:, 0] = True
    return inputs


@pytest.mark.parametrize("case", CASES, ids=["-".join(map(str, case)) for case in CASES])
def test_actions_are_equal_and_log_probabilities_to_five_digits(tmp_path: Path, case):
    policy, spec = made(*case)
    path = tmp_path / "policy.onnx"
    about = export_policy(policy, spec, 64, path)
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for n in (1, 2, 37):
        inputs = drawn(policy, spec, n)
        outputs = dict(zip(about["outputs"], session.run(None, inputs), strict=True))
        tensors = {name: torch.from_numpy(each.copy()) for name, each in inputs.items()}
        starts = tensors.get("starts", torch.zeros(n, dtype=torch.bool))
        state, mask = tensors.get("state"), tensors.get("mask")
        actions, after = choose(policy, tensors["obs"], state, starts, mask)
        assert np.allclose(outputs["actions"], actions, rtol=0, atol=1e-5 if spec.actions.continuous else 0)
        assert outputs["actions"].shape == (n, *spec.actions.shape)
        with torch.no_grad():
            raw, values, _ = policy(tensors["obs"], state, starts)
            mine, theirs = (policy.distribution(each, mask) for each in (raw, torch.from_numpy(outputs["outputs"])))
            assert np.allclose(mine.log_prob(mine.mode()), theirs.log_prob(mine.mode()), atol=1e-5)
        assert np.allclose(outputs["values"], values, atol=1e-5)
        assert after is None or np.allclose(outputs["state"], after, atol=1e-5)


def test_a_file_says_what_it_is_and_what_it_takes(tmp_path: Path):
    import onnx

    path = tmp_path / "new" / "a.onnx"
    about = export_policy(*made("vector", "discrete", "lstm"), 64, path)
    (kept,) = [each.value for each in onnx.load(path).metadata_props if each.key == ABOUT]
    assert {"file": str(path), **json.loads(kept)} == about
    assert (about["env"], about["step"]) == ("vector", 64)
    assert about["inputs"]["obs"] == {"dtype": "float32", "shape": ["batch", 6]}
    assert about["inputs"]["state"] == {"dtype": "float32", "shape": [2, "batch", 16]}
    assert about["outputs"] == ["actions", "outputs", "values", "state"]
    assert [each.name for each in path.parent.iterdir()] == ["a.onnx"]


def test_an_export_that_fails_leaves_the_earlier_file_and_the_log_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def save(_: object, path: str) -> None:
        Path(path).write_text("torn")
        raise OSError(28, "No space left on device")

    logger = logging.getLogger("torch.onnx")
    level, path = logger.level, tmp_path / "a.onnx"
    path.write_text("earlier")
    monkeypatch.setattr(torch.onnx.ONNXProgram, "save", save)
    with pytest.raises(StorageError, match="No space left"):
        export_policy(*made("vector", "discrete", "mlp"), 64, path)
    assert ([each.name for each in tmp_path.iterdir()], path.read_text()) == (["a.onnx"], "earlier")
    assert logger.level == level
