"""Away from the CPU nothing asks for the host's memory and no operator mixes two devices.

torch's device `meta` has shapes but no numbers, so this needs no GPU. That the forms for other devices compute the same
numbers is in the tests of each.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from velodrome.training.buffer import Buffer
from velodrome.training.envs.interface import ActionSpace, Spec
from velodrome.training.losses.ppo import ppo_loss
from velodrome.training.losses.supervised import supervised_loss
from velodrome.training.network.policy import Policy
from velodrome.training.settings import PolicySettings, PPOSettings

META = torch.device("meta")
TOKENS = Spec("hub", 3, 2, ActionSpace((5,)), "tokens", (31,), "uint8", window=5, codes=7, features=6)
VECTOR = Spec("pole", 6, 1, ActionSpace((2,)), "vector", (4,), "float32")


@pytest.mark.parametrize("core", ["mlp", "lstm"])
@pytest.mark.parametrize("spec", [TOKENS, VECTOR], ids=lambda spec: spec.name)
def test_a_rollout_and_an_update_stay_on_their_device(monkeypatch: pytest.MonkeyPatch, spec: Spec, core: str) -> None:
    monkeypatch.setattr(torch, "rand", lambda *size, generator, device: torch.empty(size, device=device))
    settings = PolicySettings(hidden=16, core=core)
    policy = Policy(settings, spec, torch.Generator()).to(META)
    state = policy.initial_state(spec.total)
    buffer = Buffer(5, spec, META, state=state, segment=2)
    for t in range(5):
        obs, starts = np.zeros((6, *spec.obs_shape), spec.obs_dtype), np.zeros(6, np.bool_)
        with torch.no_grad():
            logits, values, after = policy(torch.from_numpy(obs).to(META), state, torch.from_numpy(starts).to(META))
            actions, logprobs = policy.distribution(logits).sample(torch.Generator())
        inputs = {"obs": obs, "starts": starts, "actions": actions, "logprobs": logprobs, "values": values}
        buffer.store(t, **inputs, teacher_actions=np.zeros(6, np.int64), state=state)
        buffer.store_outcome(t, rewards=np.zeros(6), terminals=starts, truncations=starts, final_values=values)
        state = after
    buffer.compute_advantages(5, torch.empty(6, device=META), 0.9, 0.8)
    batches = list(buffer.minibatches(torch.Generator(), 12))
    assert {batch.obs_LC.device for batch in batches} == {META}
    for batch in batches if core == "mlp" else ():  # an lstm reads where episodes begin, and here are no numbers
        logits, values = policy.sequence(batch.obs_LC, batch.starts_LC, batch.state)
        outputs = (policy.distribution(logits), values)
        old = (batch.actions_B, batch.logprobs_B, batch.advantages_B, batch.returns_B, batch.values_B)
        loss, _ = ppo_loss(*outputs, *old, PPOSettings())
        more, stats = supervised_loss(*outputs, batch.teacher_actions_B, batch.returns_B, 1.0, 0.5)
        (loss + more).backward()
        assert stats.device == META
        assert {weight.grad is not None and weight.grad.device == META for weight in policy.parameters()} == {True}
