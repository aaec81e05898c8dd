"""The student: what it computes, what it remembers, and where its random numbers come from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from velodrome.errors import InputError
from velodrome.training.envs.interface import ActionSpace, Spec
from velodrome.training.network.encoders import TokenEncoder
from velodrome.training.network.policy import Policy
from velodrome.training.settings import PolicySettings

WINDOW, CODES, FEATURES = 5, 7, 6
TOKEN_SIZES = {"window": WINDOW, "codes": CODES, "features": FEATURES}
TOKENS = Spec("hub", 4, 3, ActionSpace((5,)), "tokens", (WINDOW * WINDOW + FEATURES,), "uint8", **TOKEN_SIZES)
VECTOR = Spec("pole", 8, 1, ActionSpace((2,)), "vector", (4,), "float32")
SMALL_PLANES = Spec("grid", 8, 1, ActionSpace((4,)), "planes", (3, 7, 9), "float32")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_obs(spec: Spec, *shape: int, seed: int = 0) -> Tensor:
    if spec.layout == "tokens":
        cells = torch.randint(0, spec.codes + 2, (*shape, spec.window**2), generator=generator(seed), dtype=torch.uint8)
        numbers = torch.randint(0, 256, (*shape, spec.features), generator=generator(seed + 1), dtype=torch.uint8)
        return torch.cat((cells, numbers), -1)
    if spec.obs_dtype == "uint8":
        return torch.randint(0, 256, (*shape, *spec.obs_shape), generator=generator(seed), dtype=torch.uint8)
    return torch.randn(*shape, *spec.obs_shape, generator=generator(seed))


def a_policy(spec: Spec = TOKENS, seed: int = 0, **given: object) -> Policy:
    return Policy(PolicySettings.model_validate({"hidden": 16, **given}), spec, generator(seed))


def by_one_hot(encoder: TokenEncoder, obs: Tensor) -> Tensor:
    """A plain linear layer over one-hot cells without code 0, and one over the numbers."""
    table = encoder.table.view(WINDOW * WINDOW, CODES - 1, -1)
    out = encoder.numbers(obs[:, WINDOW * WINDOW :].float() / 255)
    for n in range(len(obs)):
        for cell in range(WINDOW * WINDOW):
            code = int(obs[n, cell])
            if 0 < code < CODES:
                out = out.index_add(0, torch.tensor([n]), table[cell, code - 1].unsqueeze(0))
    return out


def test_the_token_encoder_is_a_linear_layer_over_one_hot_cells_and_so_is_its_gradient() -> None:
    encoder = a_policy().encoder
    assert isinstance(encoder, TokenEncoder)
    obs = some_obs(TOKENS, 9)
    weight = torch.randn(9, 16, generator=generator(5))
    results = []
    for way in (encoder, lambda obs: by_one_hot(encoder, obs)):
        encoder.zero_grad()
        out = way(obs)
        (out * weight).sum().backward()
        results.append((out.detach(), *(parameter.grad for parameter in encoder.parameters())))

    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spec", [TOKENS, VECTOR, SMALL_PLANES], ids=lambda spec: spec.name)
@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_many_steps_at_once_give_what_single_steps_gave(spec: Spec, core: str) -> None:
    policy = a_policy(spec, core=core)
    obs_TN = some_obs(spec, 8, 4)
    starts_TN = torch.rand(8, 4, generator=generator(7)) < 0.3
    starts_TN[:, 0], starts_TN[:, 1] = False, True
    state = None if core == "mlp" else torch.randn(2, 4, 16, generator=generator(8))
    first, logits, values = state, [], []
    for t in range(8):
        logits_NA, values_N, state = policy(obs_TN[t], state, starts_TN[t])
        logits.append(logits_NA)
        values.append(values_N)

    logits_BA, values_B = policy.sequence(obs_TN, starts_TN, first)

    torch.testing.assert_close(logits_BA, torch.cat(logits), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(values_B, torch.cat(values), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("spec", "given", "touched"),
    [
        (VECTOR, {}, False),
        (VECTOR, {"critic": "shared"}, True),
        (VECTOR, {"core": "lstm"}, True),
        (TOKENS, {}, True),
        (TOKENS, {"critic": "apart"}, False),
    ],
)
def test_a_critic_apart_leaves_the_actor_alone_and_a_shared_one_does_not(
    spec: Spec, given: dict[str, str], touched: bool
) -> None:
    policy = a_policy(spec, **given)

    policy(some_obs(spec, 3), policy.initial_state(3))[1].sum().backward()

    actors = [*policy.encoder.parameters(), *policy.core.parameters()]
    assert {weight.grad is not None for weight in actors} == {touched}


@pytest.mark.parametrize(
    ("spec", "values", "start", "way"),
    [
        (TOKENS, {"core": "lstm", "critic": "apart"}, "policy.critic=apart: ", "policy.critic=shared"),
        (VECTOR, {"encoder": "cnn"}, "policy.encoder=cnn: cannot read pole", "policy.encoder=auto or vector"),
        (TOKENS, {"encoder": "vector"}, "policy.encoder=vector: cannot read hub", "auto or tokens or cnn"),
    ],
)
def test_a_policy_that_cannot_work_is_refused_with_what_can(
    spec: Spec, values: dict[str, str], start: str, way: str
) -> None:
    with pytest.raises(InputError) as refused:
        a_policy(spec, **values)
    assert str(refused.value).startswith(start)
    assert str(refused.value).endswith(way)
