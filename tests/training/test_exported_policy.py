"""An exported policy acts as the policy does: every layout and kind of action, any batch, with memory and masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.errors import InputError
from velodrome.training.envs.interface import ActionSpace, Spec
from velodrome.training.evaluate import choose
from velodrome.training.network.policy import Policy
from velodrome.training.settings import PolicySettings
from velodrome.training.trained.exported_policy import check_exported, export_policy, random_inputs, read_exported

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
    "multi_masked": ActionSpace((3, 4, 2), masked=True),
    "box": ActionSpace(low=(-2.0, float("-inf"), 0.0), high=(2.0, float("inf"), 1.0)),
}
# every layout, every kind of action, every core, normalised and not
CASES = [
    ("tokens", "discrete", "mlp", "auto", False),
    ("tokens", "masked", "lstm", "auto", False),
    ("tokens", "multi", "lstm", "cnn", False),
    ("planes", "box", "mlp", "auto", False),
    ("image", "multi", "lstm", "auto", False),
    ("vector", "discrete", "mlp", "auto", False),
    ("vector", "box", "mlp", "auto", True),
    ("vector", "box", "lstm", "auto", True),
    ("vector", "multi_masked", "mlp", "auto", True),
    ("mixed", "discrete", "lstm", "auto", True),
    ("mixed", "multi_masked", "mlp", "auto", False),
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


@pytest.mark.parametrize("case", CASES, ids=["-".join(map(str, case)) for case in CASES])
@pytest.mark.parametrize("kind", ["torchscript", "onnx"])
def test_actions_are_equal_and_log_probabilities_to_five_digits(tmp_path: Path, case, kind: str):
    policy, spec = made(*case)
    path = tmp_path / "policy.x"
    export_policy(policy, spec, 64, path, kind)
    exported = read_exported(path, kind)
    rng = np.random.default_rng(5)
    for n in (1, 2, 37):
        inputs = random_inputs(policy, spec, rng, n)
        outputs = exported.run(inputs)
        tensors = {name: torch.from_numpy(each.copy()) for name, each in inputs.items()}
        starts = tensors.get("starts", torch.zeros(n, dtype=torch.bool))
        state, mask = tensors.get("state"), tensors.get("mask")
        actions, after = choose(policy, tensors["obs"], state, starts, mask)
        assert np.array_equal(outputs["actions"], actions) or np.allclose(outputs["actions"], actions, atol=1e-5)
        assert spec.actions.continuous or np.array_equal(outputs["actions"], actions)
        assert outputs["actions"].shape == (n, *spec.actions.shape)
        with torch.no_grad():
            raw, values, _ = policy(tensors["obs"], state, starts)
            mine = policy.distribution(raw, mask).log_prob(*chosen(policy, raw, mask))
            theirs = torch.from_numpy(outputs["outputs"])
            others = policy.distribution(theirs, mask).log_prob(*chosen(policy, raw, mask))
        assert np.allclose(mine, others, atol=1e-5)
        assert np.allclose(outputs["values"], values, atol=1e-5)
        assert after is None or np.allclose(outputs["state"], after, atol=1e-5)


def chosen(policy: Policy, outputs: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor]:
    return (policy.distribution(outputs, mask).mode(),)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exported")
    paths = {"onnx": folder / "a.onnx", "torchscript": folder / "a.pt"}
    for kind, path in paths.items():
        export_policy(*made("vector", "discrete", "lstm"), 64, path, kind)
    return paths


@pytest.mark.parametrize("kind", ["torchscript", "onnx"])
def test_a_file_says_what_it_is_and_what_it_takes(files: dict[str, Path], kind: str):
    about = check_exported(files[kind])
    assert (about["env"], about["step"], about["format"]) == ("vector", 64, kind)
    assert about["inputs"]["obs"] == {"dtype": "float32", "shape": ["batch", 6]}
    assert about["inputs"]["state"] == {"dtype": "float32", "shape": [2, "batch", 16]}
    assert about["outputs"] == ["actions", "outputs", "values", "state"]


@pytest.mark.parametrize("kind", ["torchscript", "onnx"])
@given(where=st.floats(0, 0.9), how=st.sampled_from(["cut", "garbage", "empty"]))
@settings(max_examples=25, deadline=None)
def test_a_corrupt_file_is_one_clear_line(files: dict[str, Path], kind: str, where: float, how: str):
    data = files[kind].read_bytes()
    at = int(where * (len(data) - 1))
    broken = files[kind].with_name(f"broken{files[kind].suffix}")
    broken.write_bytes({"cut": data[:at], "garbage": data[:at] + b"\xff" * (len(data) - at), "empty": b""}[how])
    with pytest.raises(InputError) as caught:
        check_exported(broken)
    message = str(caught.value)
    assert message.startswith(str(broken))
    assert "\n" not in message
    assert len(message) < 600


def test_a_file_whose_weights_were_changed_is_refused(files: dict[str, Path]):
    import onnx

    model = onnx.load(files["onnx"])
    largest = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    largest.raw_data = bytes(len(largest.raw_data))
    changed = files["onnx"].with_name("changed.onnx")
    onnx.save(model, changed)
    with pytest.raises(InputError, match="does not act as the policy"):
        check_exported(changed)


def test_other_files_are_one_clear_line(tmp_path: Path, files: dict[str, Path]):
    scripted = tmp_path / "other.pt"
    module = torch.nn.Linear(2, 2)
    with pytest.warns(DeprecationWarning, match="jit"):
        torch.jit.script(module).save(str(scripted))
    for path, words in (
        (scripted, "not one that velo policy export wrote"),
        (tmp_path / "none.onnx", "no such file"),
        (tmp_path / "x.txt", ".onnx or .pt"),
    ):
        with pytest.raises(InputError, match=words):
            check_exported(path)


@pytest.mark.parametrize("text", ["[]", "5", "{}", '{"expected": [], "inputs": {"obs": {"shape": []}}}'])
def test_a_file_with_other_words_about_it_is_refused_in_one_line(files: dict[str, Path], text: str):
    import onnx

    model = onnx.load(files["onnx"])
    next(each for each in model.metadata_props if each.key == "velodrome.json").value = text
    changed = files["onnx"].with_name("other.onnx")
    onnx.save(model, changed)
    with pytest.raises(InputError, match=r"^[^\n]*other\.onnx: not as velo policy export wrote it: [^\n]*$"):
        check_exported(changed)
