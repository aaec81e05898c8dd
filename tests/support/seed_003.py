"""Seed 003, method 2, as typed."""

from __future__ import annotations

THINKY = "cvc.thinky_supervised_to_ppo"
SEED = [
    "run=msb_profile",
    "base_missions=extractor_hub_30",
    "supervised_steps=5_000",
    "trainer.total_timesteps=10_000",
    "trainer.profiler.enabled=True",
    "trainer.profiler.wait_steps=2",
    "trainer.profiler.warmup_steps=2",
    "trainer.profiler.active_steps=4",
    "trainer.profiler.record_shapes=True",
    "evaluator.evaluate_local=False",
]
