"""The settings of a training run. A recipe returns a `RunSettings`; `key=value` changes it.

`velo train RECIPE -h` and docs/training.md are generated from the descriptions. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import Field, SerializeAsAny, field_validator, model_validator
from pydantic.fields import FieldInfo

from velodrome.settings.model import Settings
from velodrome.training.envs.env_names import name_problem

MOST_ENVS, LEAST_HIDDEN = 65_536, 4


class EnvSettings(Settings):
    """Which environment, and how many of it."""

    name: str = Field(
        "extractor_hub_30",
        description="extractor_hub_<size>, gymnasium:<id>, mettagrid:<mission> or memory:<steps>",
    )
    num_envs: int = Field(16, ge=1, le=MOST_ENVS, description="environments stepped at once")
    agents: int = Field(4, ge=1, le=64, description="agents in each environment (extractor_hub, mettagrid missions)")
    max_steps: int = Field(256, ge=8, le=100_000, description="steps per episode (extractor_hub, mettagrid missions)")
    notes: bool = Field(True, description="show agents the way to extractors they have seen (extractor_hub)")
    options: dict[str, Any] | None = Field(None, description="keyword arguments of the environment (gymnasium)")
    action_repeat: int = Field(1, ge=1, le=1000, description="steps an action is taken for (gymnasium)")
    workers: int = Field(0, ge=0, le=256, description="processes that step the environments; 0: this one (gymnasium)")

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        problem = name_problem(name)
        if problem:
            raise ValueError(problem)
        return name


class PolicySettings(Settings):
    """The student network."""

    encoder: Literal["auto", "tokens", "cnn", "vector", "mixed"] = Field("auto", description="auto: by the observation")
    core: Literal["mlp", "lstm"] = Field("mlp", description="lstm: remembers within an episode (truncated BPTT)")
    critic: Literal["auto", "shared", "apart"] = Field(
        "auto", description="apart: its own encoder and core; auto: apart for vectors, shared otherwise"
    )
    hidden: int = Field(128, ge=LEAST_HIDDEN, le=4096, description="width of encoder and core")
    normalize_obs: bool = Field(False, description="subtract the mean of observations seen, divide by their deviation")


@dataclass(frozen=True, slots=True)
class LossTerm:
    """One loss over a range of agent steps. The first term of a step that `leads` names the phase and drives it."""

    name: str
    implementation: str  # "module:class", a velodrome.training.losses.Loss; imported when training starts
    settings: Any  # of the loss
    start: int
    until: int
    needs_teacher: bool = False
    leads: bool = False
    update_epochs: int = 1  # passes over a batch, if it leads
    learning_rate: float | None = None  # None: the trainer's
    teacher_forced: float = 0.0  # share of environments in which the teacher's actions are taken, if it leads


class LossSettings(Settings):
    """Settings of a loss. A recipe adds a loss of its own as `RunSettings(losses={name: …})`."""

    def terms(self, name: str, start: int, total: int) -> Iterator[LossTerm]:
        """The terms this adds. `start` is where the supervised phase ends, `total` where training does."""
        raise NotImplementedError


class ActionSupervisedAndCriticConfig(LossSettings):
    """The first phase: cross-entropy to the teacher's action, and a critic fitted to the returns."""

    steps: int = Field(0, ge=0, description="agent steps of this phase; 0: no such phase")
    coef: float = Field(1.0, ge=0, description="weight of the cross-entropy")
    value_coef: float = Field(0.5, ge=0, description="weight of the critic's loss")
    teacher_forced: float = Field(
        0.5, ge=0, le=1, description="share of environments in which the teacher's actions are taken"
    )
    kickstart_coef: float = Field(0.0, ge=0, description="weight of the cross-entropy at the start of PPO; 0: none")
    kickstart_steps: int = Field(
        0, ge=0, description="agent steps of PPO over which that weight falls to zero; 0: all of them"
    )
    profiled: bool = Field(
        False, description="print the timing tree every trainer.timing_interval rollouts, device synchronized"
    )

    def terms(self, name: str, start: int, total: int) -> Iterator[LossTerm]:
        path = "velodrome.training.losses.supervised:Supervised"
        yield LossTerm(name, path, self, 0, start, needs_teacher=True, leads=True, teacher_forced=self.teacher_forced)
        if self.kickstart_coef > 0:
            path = "velodrome.training.losses.supervised:Kickstart"
            until = start + self.kickstart_steps if self.kickstart_steps else total
            yield LossTerm("kickstart", path, self, start, until, needs_teacher=True)


class PPOSettings(LossSettings):
    """The second phase."""

    learning_rate: float | None = Field(None, gt=0, le=1, description="Adam's in this phase; none: the trainer's")
    clip: float = Field(0.2, gt=0, lt=10, description="range in which a probability ratio counts")
    value_clip: float = Field(0.0, ge=0, description="how far a value may move; 0: no limit")
    value_coef: float = Field(0.5, ge=0, description="weight of the critic's loss")
    entropy_coef: float = Field(0.01, ge=0, description="weight of the entropy bonus")
    update_epochs: int = Field(4, ge=1, le=100, description="passes over a batch")
    target_kl: float = Field(0.0, ge=0, description="end the passes once the KL exceeds 1.5 times this; 0: never")
    normalize_advantages: bool = Field(True, description="per minibatch")

    def terms(self, name: str, start: int, total: int) -> Iterator[LossTerm]:
        path, rate = "velodrome.training.losses.ppo:PPO", self.learning_rate
        yield LossTerm(name, path, self, start, total, leads=True, update_epochs=self.update_epochs, learning_rate=rate)


class ProfilerSettings(Settings):
    """PyTorch's profiler. A step is one epoch: a rollout and its update."""

    enabled: bool = Field(False, description="record torch's operators and our spans into a trace file")
    wait_steps: int = Field(2, ge=0, description="epochs before the profiler starts")
    warmup_steps: int = Field(1, ge=0, description="epochs recorded and discarded")
    active_steps: int = Field(2, ge=1, description="epochs recorded")
    record_shapes: bool = Field(False, description="record the shapes of operator inputs")
    profile_memory: bool = Field(False, description="record what operators allocate and free")


class TrainerSettings(Settings):
    """The loop."""

    total_timesteps: int = Field(1_000_000, ge=1, description="agent steps in all, both phases")
    batch_size: int = Field(512, ge=1, description="agent steps per rollout")
    minibatch_size: int = Field(256, ge=1, description="agent steps per gradient")
    learning_rate: float = Field(2.5e-3, gt=0, le=1, description="Adam's")
    anneal_lr: bool = Field(False, description="reduce it linearly to zero over total_timesteps")
    gamma: float = Field(0.99, ge=0, le=1, description="discount of a reward one step later")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="0: one step and the critic; 1: the whole return")
    normalize_rewards: bool = Field(False, description="divide rewards by the deviation of the discounted return")
    max_grad_norm: float = Field(0.5, gt=0, description="a longer gradient is scaled down to this length")
    bptt_horizon: int = Field(16, ge=1, le=1024, description="lstm: steps a gradient reaches back")
    mixed_precision: bool = Field(False, description="bfloat16 in forward and backward")
    compile: bool = Field(False, description="torch.compile the student")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda if available")
    threads: int = Field(1, ge=1, le=256, description="torch's threads on the CPU")
    checkpoint_interval: int = Field(100, ge=1, description="epochs between checkpoints; also at the end")
    checkpoint_seconds: float = Field(10.0, ge=0, description="seconds between further checkpoints; 0: none")
    timing_interval: int = Field(10, ge=1, description="rollouts between timing trees, when profiled")
    profiler: ProfilerSettings = ProfilerSettings()

    @model_validator(mode="after")
    def _fits(self) -> TrainerSettings:
        if self.minibatch_size > self.batch_size:
            raise ValueError("minibatch_size: larger than batch_size; no minibatch would be left")
        return self


class EvaluatorConfig(Settings):
    """Evaluation. Its time does not count as training."""

    evaluate_local: bool = Field(True, description="evaluate at all")
    epoch_interval: int = Field(100, ge=1, description="epochs between evaluations; also at the end")
    episodes: int = Field(32, ge=1, le=100_000, description="episodes per evaluation")
    greedy: bool = Field(True, description="take the likeliest action; otherwise a sampled one")


class OutputSettings(Settings):
    """What is written and shown. Nothing here changes a weight."""

    train_dir: str = Field("train_dir", pattern=r"^[^\x00]*$", description="parent of the runs' folders")
    dashboard: bool = Field(True, description="show progress on the terminal")
    tensorboard: bool = Field(False, description="also write metrics for TensorBoard (extra tensorboard)")
    wandb: bool = Field(
        False, description="also log metrics to Weights & Biases (extra wandb); offline without a login"
    )
    episodes: int = Field(0, ge=0, description="episodes of the trained student to write as rollouts at the end")
    episode_observations: bool = Field(True, description="include every agent's observations, compressed")


class CurriculumStage(Settings):
    """The first part of a run, with other environments. The stage of a step is the one that ends next."""

    until: int = Field(ge=1, description="agent step at which the stage ends")
    env: dict[str, Any] = Field({}, description="settings of env that differ until then")


class RunSettings(Settings):
    """A whole run."""

    run: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="name of the run and its folder")
    seed: int = Field(0, ge=0, lt=2**31, description="seed of all random streams")
    env: SerializeAsAny[EnvSettings] = EnvSettings()
    policy: SerializeAsAny[PolicySettings] = PolicySettings()
    supervised: SerializeAsAny[ActionSupervisedAndCriticConfig] = ActionSupervisedAndCriticConfig()
    ppo: SerializeAsAny[PPOSettings] = PPOSettings()
    losses: Mapping[str, SerializeAsAny[LossSettings]] = Field({}, description="further losses of a recipe, by name")
    curriculum: Mapping[str, CurriculumStage] = Field({}, description="stages of a recipe, by name")
    trainer: SerializeAsAny[TrainerSettings] = TrainerSettings()
    evaluator: SerializeAsAny[EvaluatorConfig] = EvaluatorConfig()
    output: SerializeAsAny[OutputSettings] = OutputSettings()

    def loss_terms(self) -> list[LossTerm]:
        """Every loss of the run, those that lead a phase first."""
        start, total = self.supervised.steps, self.trainer.total_timesteps
        groups: dict[str, LossSettings] = {"supervised": self.supervised, "ppo": self.ppo, **self.losses}
        terms = [term for name, group in groups.items() for term in group.terms(name, start, total)]
        return sorted((term for term in terms if term.start < term.until), key=lambda term: not term.leads)


class Leaf(NamedTuple):
    """One setting: its dotted name, its value and its field."""

    name: str
    value: Any
    field: FieldInfo


def leaves(group: Settings, above: str = "") -> Iterator[Leaf]:
    """Every setting at any depth, in the order of this page."""
    for name, field in type(group).model_fields.items():
        value = getattr(group, name)
        if isinstance(value, Settings):
            yield from leaves(value, f"{above}{name}.")
        elif is_group(value):
            for inner, one in value.items():
                yield from leaves(one, f"{above}{name}.{inner}.")
        else:
            yield Leaf(above + name, value, field)


def is_group(value: Any) -> bool:
    """Whether a value is a mapping of groups of settings, as `losses` is."""
    return isinstance(value, Mapping) and all(isinstance(one, Settings) for one in value.values())
