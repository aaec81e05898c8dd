"""The student: what it computes, what it remembers, and where its random numbers come from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from velodrome.errors import InputError
from velodrome.training.envs.interface import ActionSpace, Spec
from velodrome.training.kernels.cells import add_cells
from velodrome.training.network.encoders import TokenEncoder
from velodrome.training.network.policy import Policy
from velodrome.training.settings import PolicySettings

WINDOW, CODES, FEATURES = 5, 7, 6
TOKENS = Spec(
    "hub",
    4,
    3,
    ActionSpace((5,)),
    "tokens",
    (WINDOW * WINDOW + FEATURES,),
    "uint8",
    window=WINDOW,
    codes=CODES,
    features=FEATURES,
)
VECTOR = Spec("pole", 8, 1, ActionSpace((2,)), "vector", (4,), "float32")
SMALL_PLANES = Spec("grid", 8, 1, ActionSpace((4,)), "planes", (3, 7, 9), "float32")
IMAGE = Spec("game", 2, 1, ActionSpace((6,)), "planes", (4, 84, 84), "uint8")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_obs(spec: Spec, *shape: int, seed: int = 0) -> Tensor:
    if spec.layout == "tokens":
        cells = torch.randint(0, spec.codes, (*shape, spec.window**2), generator=generator(seed), dtype=torch.uint8)
        numbers = torch.randint(0, 256, (*shape, spec.features), generator=generator(seed + 1), dtype=torch.uint8)
        return torch.cat((cells, numbers), -1)
    if spec.obs_dtype == "uint8":
        return torch.randint(0, 256, (*shape, *spec.obs_shape), generator=generator(seed), dtype=torch.uint8)
    return torch.randn(*shape, *spec.obs_shape, generator=generator(seed))


def a_policy(spec: Spec = TOKENS, seed: int = 0, **given: object) -> Policy:
    return Policy(PolicySettings.model_validate({"hidden": 16, **given}), spec, generator(seed))


def test_weights_are_a_function_of_the_generator_and_of_nothing_else() -> None:
    before = torch.get_rng_state()
    first, second, other = (a_policy(core="lstm", seed=seed).state_dict() for seed in (1, 1, 2))

    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if "bias" not in name)
    assert torch.equal(before, torch.get_rng_state())


def test_an_lstm_begins_by_remembering_rather_than_forgetting() -> None:
    core = a_policy(VECTOR, core="lstm").core
    assert isinstance(core, torch.nn.LSTM)
    state = torch.zeros(1, 1, 16), torch.ones(1, 1, 16)

    _, (_, kept) = core(torch.zeros(1, 1, 16), state)

    torch.testing.assert_close(kept, torch.sigmoid(torch.ones_like(kept)))


@pytest.mark.parametrize("spec", [TOKENS, VECTOR, SMALL_PLANES, IMAGE], ids=lambda spec: spec.name)
@pytest.mark.parametrize("core", ["mlp", "lstm"])
def test_an_untrained_student_reads_every_layout_and_prefers_nothing(spec: Spec, core: str) -> None:
    policy = a_policy(spec, core=core)

    logits, values, state = policy(some_obs(spec, 3), policy.initial_state(3))

    assert (logits.shape, values.shape) == ((3, spec.actions.width), (3,))
    assert (state is None) == (core == "mlp")
    shares = torch.softmax(logits, 1)
    torch.testing.assert_close(shares, torch.full_like(shares, 1 / spec.actions.width), rtol=0, atol=0.02)


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


def test_a_code_the_table_does_not_know_is_as_nothing() -> None:
    table = torch.randn(4 * 2, 8, generator=generator())
    obs = torch.tensor([[1, 3, 255, 2]], dtype=torch.uint8)

    added = add_cells(torch.zeros(1, 8), obs, table, 4)

    assert torch.equal(added, (table[0] + table[7]).unsqueeze(0))


@pytest.mark.parametrize("spec", [TOKENS, VECTOR, SMALL_PLANES], ids=lambda spec: spec.name)
@pytest.mark.parametrize("core", ["mlp", "lstm"])
@pytest.mark.parametrize("ends", [0.0, 0.2, 1.0])
def test_many_steps_at_once_give_what_single_steps_gave(spec: Spec, core: str, ends: float) -> None:
    policy = a_policy(spec, core=core)
    obs_TN = some_obs(spec, 8, 4)
    starts_TN = torch.rand(8, 4, generator=generator(7)) < ends
    state = None if core == "mlp" else torch.randn(2, 4, 16, generator=generator(8))
    first, logits, values = state, [], []
    for t in range(8):
        logits_NA, values_N, state = policy(obs_TN[t], state, starts_TN[t])
        logits.append(logits_NA)
        values.append(values_N)

    logits_BA, values_B = policy.sequence(obs_TN, starts_TN, first)

    torch.testing.assert_close(logits_BA, torch.cat(logits), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(values_B, torch.cat(values), rtol=1e-4, atol=1e-5)


def test_what_was_seen_before_an_episode_began_is_forgotten_and_what_came_after_is_not() -> None:
    policy = a_policy(VECTOR, core="lstm")
    obs_TN = some_obs(VECTOR, 6, 1).requires_grad_()
    starts_TN = torch.zeros(6, 1, dtype=torch.bool)
    starts_TN[3] = True
    state = policy.initial_state(1)
    assert state is not None

    policy.sequence(obs_TN, starts_TN, state.requires_grad_())[1][5].sum().backward()

    assert obs_TN.grad is not None
    assert (obs_TN.grad.abs().sum((1, 2)) > 0).tolist() == [False, False, False, True, True, True]
    assert state.grad is not None
    assert not state.grad.any()


def test_in_half_precision_the_results_are_whole_again_and_near() -> None:
    for core in ("mlp", "lstm"):
        policy = a_policy(core=core)
        obs_TN, starts_TN = some_obs(TOKENS, 4, 6), torch.zeros(4, 6, dtype=torch.bool)
        state = policy.initial_state(6)
        logits, values = policy.sequence(obs_TN, starts_TN, state)
        with torch.autocast("cpu", torch.bfloat16):
            half_logits, half_values = policy.sequence(obs_TN, starts_TN, state)
            step_logits, _, half_state = policy(obs_TN[0], state)
        (half_logits.sum() + half_values.sum()).backward()

        torch.testing.assert_close(half_logits, logits, rtol=0, atol=0.02)
        torch.testing.assert_close(half_values, values, rtol=0, atol=0.1)
        assert step_logits.dtype == torch.float32
        assert half_state is None or half_state.dtype == torch.float32


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
