"""Everything a training run can be told, typed and bounded. A recipe returns one of these; `key=value` changes it.

Whoever adds a setting adds its description: `velo train RECIPE -h` and docs/training.md are made from it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Group(BaseModel):
    """Settings that belong together. Frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EnvSettings(Group):
    """Which environment, and how many of it."""

    name: str = Field("extractor_hub_30", description="extractor_hub_<size>, gymnasium:<id> or mettagrid:<mission>")
    num_envs: int = Field(16, ge=1, le=65_536, description="environments stepped at once")
    agents: int = Field(4, ge=1, le=64, description="agents in each (extractor_hub, missions of mettagrid)")
    max_steps: int = Field(
        256, ge=8, le=100_000, description="steps of an episode (extractor_hub, missions of mettagrid)"
    )
    notes: bool = Field(True, description="agents are shown the way to extractors they have seen (extractor_hub)")


class PolicySettings(Group):
    """The student."""

    encoder: Literal["auto", "tokens", "cnn", "vector"] = Field("auto", description="auto: what the observation is")
    core: Literal["mlp", "lstm"] = Field("mlp", description="lstm: remembers within an episode (truncated BPTT)")
    critic: Literal["auto", "shared", "apart"] = Field(
        "auto", description="apart: with an encoder and core of its own; auto: so for vectors, shared otherwise"
    )
    hidden: int = Field(128, ge=4, le=4096, description="width of encoder and core")


class ActionSupervisedAndCriticConfig(Group):
    """The first phase: cross-entropy to the teacher's action, and a critic fitted to the returns."""

    steps: int = Field(0, ge=0, description="agent steps of this phase; 0 leaves it out")
    coef: float = Field(1.0, ge=0, description="weight of the cross-entropy at the start")
    end_coef: float = Field(1.0, ge=0, description="its weight at the end of the phase (linear)")
    value_coef: float = Field(0.5, ge=0, description="weight of the critic's loss")
    led_by: Literal["teacher", "student", "mixed"] = Field("mixed", description="whose actions are taken")
    teacher_share: float = Field(0.5, ge=0, le=1, description="mixed: share of environments the teacher leads")
    keep_coef: float = Field(0.0, ge=0, description="weight of the cross-entropy at the start of PPO")
    keep_steps: int = Field(
        0, ge=0, description="agent steps in which that falls to zero; the teacher is asked till then"
    )
    profiled: bool = Field(
        False, description="print the timing tree every trainer.timing_interval rollouts, device settled"
    )

    @property
    def asks_teacher(self) -> bool:
        """Whether there is any step in which the teacher is asked."""
        return self.steps > 0 or (self.keep_coef > 0 and self.keep_steps > 0)


class PPOSettings(Group):
    """The second phase."""

    learning_rate: float | None = Field(None, gt=0, le=1, description="Adam's in this phase; none: the trainer's")
    clip: float = Field(0.2, gt=0, lt=10, description="how far a probability ratio counts")
    value_clip: float = Field(0.0, ge=0, description="how far a value may move; 0: as far as it likes")
    value_coef: float = Field(0.5, ge=0, description="weight of the critic's loss")
    entropy_coef: float = Field(0.01, ge=0, description="weight of the entropy bonus")
    epochs: int = Field(4, ge=1, le=100, description="passes over a rollout")
    target_kl: float = Field(0.0, ge=0, description="stop passing once the KL is beyond 1.5 times this; 0: never")
    normalize_advantages: bool = Field(True, description="per minibatch")


class ProfilerSettings(Group):
    """PyTorch's profiler. A step is one environment step or one update."""

    enabled: bool = Field(False, description="record torch's operators and our spans into a trace file")
    wait_steps: int = Field(10, ge=0, description="steps before anything")
    warmup_steps: int = Field(5, ge=0, description="steps recorded and thrown away")
    active_steps: int = Field(10, ge=1, description="steps recorded")
    repeat: int = Field(1, ge=1, le=100, description="how many traces")
    record_shapes: bool = Field(False, description="the shapes of what operators are given")
    profile_memory: bool = Field(False, description="what operators allocate and free")
    with_stack: bool = Field(False, description="the lines of Python that called them; slow")
    compress: bool = Field(False, description="write .json.gz")
    max_mb: int = Field(500, ge=1, description="a larger trace is not kept, and said so")


class TrainerSettings(Group):
    """The loop."""

    total_timesteps: int = Field(1_000_000, ge=1, description="agent steps in all, both phases")
    batch_size: int = Field(512, ge=1, description="agent steps of a rollout")
    minibatch_size: int = Field(256, ge=1, description="agent steps of one gradient")
    learning_rate: float = Field(2.5e-3, gt=0, le=1, description="Adam's")
    anneal_lr: bool = Field(False, description="linearly to zero over total_timesteps")
    gamma: float = Field(0.99, ge=0, le=1, description="worth of a reward one step later")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="0: one step and the critic; 1: all that was seen")
    max_grad_norm: float = Field(0.5, gt=0, description="a longer gradient is cut to this")
    bptt_horizon: int = Field(16, ge=1, le=1024, description="lstm: steps a gradient goes back")
    mixed_precision: bool = Field(False, description="bfloat16 in forward and backward")
    compile: bool = Field(False, description="torch.compile the student")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda if there is one")
    threads: int = Field(1, ge=1, le=256, description="torch's threads on the CPU")
    checkpoint_interval: int = Field(100, ge=1, description="epochs between checkpoints; also at the end")
    timing_interval: int = Field(10, ge=1, description="rollouts between two timing trees, when profiled")
    profiler: ProfilerSettings = ProfilerSettings()


class EvaluatorConfig(Group):
    """Evaluation, apart from training and from its clock."""

    evaluate_local: bool = Field(True, description="evaluate at all")
    epoch_interval: int = Field(100, ge=1, description="epochs between evaluations; also at the end")
    episodes: int = Field(32, ge=1, le=100_000, description="episodes of one evaluation")
    greedy: bool = Field(True, description="the likeliest action; else sampled")


class OutputSettings(Group):
    """What is written and shown. Nothing here moves a weight."""

    train_dir: str = Field("train_dir", description="the folder that folders of runs are in")
    dashboard: bool = Field(True, description="progress on the terminal")
    tensorboard: bool = Field(False, description="metrics for TensorBoard too (extra tensorboard)")
    episodes: int = Field(0, ge=0, description="episodes of the trained student written as rollouts at the end")
    episode_observations: bool = Field(True, description="with what every agent saw in every step, compressed")


class Settings(Group):
    """A whole run."""

    run: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="name of the run and its folder")
    seed: int = Field(0, ge=0, lt=2**31, description="of all randomness")
    env: EnvSettings = EnvSettings()
    policy: PolicySettings = PolicySettings()
    supervised: ActionSupervisedAndCriticConfig = ActionSupervisedAndCriticConfig()
    ppo: PPOSettings = PPOSettings()
    trainer: TrainerSettings = TrainerSettings()
    evaluator: EvaluatorConfig = EvaluatorConfig()
    output: OutputSettings = OutputSettings()

    @model_validator(mode="after")
    def _fits(self) -> Settings:
        if self.trainer.minibatch_size > self.trainer.batch_size:
            raise ValueError("trainer.minibatch_size: larger than trainer.batch_size; there would be no minibatch")
        return self
