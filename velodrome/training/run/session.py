"""The state of a run while it trains: how it is made from settings, saved and resumed.

Everything that decides the next weight is saved: a run that was killed continues as if it had not been.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from velodrome.errors import InputError
from velodrome.training.advantages import RewardScaler
from velodrome.training.buffer import Buffer
from velodrome.training.envs.interface import VectorEnv
from velodrome.training.envs.make import fits_into_memory, make_env, make_teacher
from velodrome.training.losses import Loss, make_loss
from velodrome.training.network.policy import Policy
from velodrome.training.optimizer import FlatAdam
from velodrome.training.random_streams import stream, stream_seed
from velodrome.training.run import checkpoint
from velodrome.training.run.metrics_log import MetricsLog
from velodrome.training.run.sinks import Sinks
from velodrome.training.run.time_account import TimeAccount
from velodrome.training.run.torch_profiler import Tracer
from velodrome.training.run.train_folder import METRICS
from velodrome.training.schedule import env_at, horizon, phase_at
from velodrome.training.settings import EnvSettings, LossTerm, RunSettings, TrainerSettings
from velodrome.training.timed import TeacherActor

Say = Callable[[str], None]
Act = Callable[[Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor, Tensor | None]]
Learn = Callable[[Tensor, Tensor | None, Tensor | None], tuple[Tensor, Tensor]]


@dataclass(slots=True)
class Session:
    """First what stays the same during a run, then what changes."""

    settings: RunSettings
    folder: Path
    say: Say
    device: torch.device
    stage: EnvSettings  # of `env`
    env: VectorEnv
    teacher: TeacherActor | None
    policy: Policy
    act: Act  # the policy for one step, perhaps compiled
    learn: Learn  # and for segments
    optimizer: FlatAdam
    buffer: Buffer
    tracer: Tracer
    account: TimeAccount
    metrics: MetricsLog
    sinks: Sinks
    scaler: RewardScaler | None  # with trainer.normalize_rewards
    starts_N: NDArray[np.bool_]  # whose episode starts with the current observation
    step: int = 0  # agent steps so far
    epoch: int = 0
    lstm_state: Tensor | None = None  # the student's, for each agent
    reset_step: int = 0  # of the last reset
    actions_since_reset: list[NDArray[Any]] | None = None  # if the environment has no state to save
    losses: dict[LossTerm, Loss] = field(default_factory=dict)
    evaluation: dict[str, Any] | None = None  # the last one: its step, its settings, its result
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)  # best, phase_…: the step and result of its weights
    kept_before: dict[str, dict[str, Any]] = field(default_factory=dict)  # what the last checkpoint says of them

    @property
    def agents(self) -> int:
        """Agents that act at once: the axis N."""
        return self.env.spec.total

    @property
    def evaluated(self) -> bool:
        """Whether the student was evaluated at this step with these settings."""
        last = self.evaluation
        return last is not None and (last["step"], last["by"]) == (self.step, self.settings.evaluator.model_dump_json())

    def inputs(self) -> tuple[Tensor, Tensor]:
        """What the student reads now: observations, and whose episode starts with them."""
        return torch.from_numpy(self.env.obs).to(self.device), torch.from_numpy(self.starts_N).to(self.device)

    def mask(self) -> Tensor | None:
        """Which options are allowed now; None if all are."""
        mask_NA = self.env.action_mask
        return None if mask_NA is None else torch.from_numpy(mask_NA).to(self.device)

    def rewards(self) -> NDArray[np.float32]:
        """The rewards of the last step, scaled with trainer.normalize_rewards."""
        env = self.env
        return env.rewards if self.scaler is None else self.scaler.scaled(env.rewards, env.terminals | env.truncations)

    def loss(self, term: LossTerm) -> Loss:
        """The loss of a term, made on first use."""
        if term not in self.losses:
            self.losses[term] = make_loss(term)
        return self.losses[term]

    def log(self, line: dict[str, Any]) -> None:
        """Write a line of metrics."""
        self.metrics.write(line)
        self.sinks.write(line)

    def precision(self) -> AbstractContextManager[Any]:
        """The precision of forward and backward."""
        if not self.settings.trainer.mixed_precision:
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def step_env(self, actions_N: NDArray[Any]) -> None:
        """Step every environment."""
        self.env.step(actions_N)
        if self.actions_since_reset is not None:
            self.actions_since_reset.append(actions_N)

    def reset(self, step: int | None = None) -> None:
        """Reset every environment and memory, with the seed of this step."""
        self.reset_step = self.step if step is None else step
        self.env.reset(stream_seed(self.settings.seed, "environment", self.reset_step) % 2**31)
        self.actions_since_reset = [] if self.env.state() is None else None
        self.starts_N = np.ones(self.agents, np.bool_)
        self.lstm_state = self.policy.initial_state(self.agents)
        if self.scaler is not None:
            self.scaler.reset()

    def enter_stage(self) -> None:
        """Replace the environments if the curriculum has others at this step."""
        stage = env_at(self.settings, self.step)
        if stage == self.stage:
            return
        env = make_env(stage, 0)
        if replace(env.spec, name=self.env.spec.name) != self.env.spec:
            env.close()
            raise InputError(f"curriculum: {stage.name} at agent step {self.step:,} has other observations or actions")
        self.env.close()
        self.stage, self.env, self.teacher = stage, env, _teacher(self.settings, stage, env, self.tracer)
        self.reset()

    def keep_best(self, result: dict[str, Any]) -> None:
        """Keep the weights if no evaluation had a higher mean return. Greedy and sampled ones are never compared."""
        kind = "best" if result["greedy"] else "best_sampled"
        highest = self.kept[kind]["evaluation"]["mean_return"] if kind in self.kept else -math.inf
        if result["mean_return"] > highest:
            self.keep_weights(kind, evaluation=result)

    def keep_weights(self, kind: str, **facts: Any) -> None:
        """Keep the weights as they are now in a separate file beside the checkpoints."""
        self.kept = {**self.kept, kind: {"step": self.step, **facts}}
        state = {"step": self.step, **facts, **self._identity()}
        checkpoint.write(self.folder / checkpoint.name_of(self.step, kind), state)

    def _identity(self) -> dict[str, Any]:
        """The weights, and what is needed to rebuild the policy around them."""
        spec = json.dumps(asdict(self.env.spec))
        return {"policy": self.policy.state_dict(), "settings": self.settings.model_dump_json(), "spec": spec}

    def save(self) -> Path:
        """Save a checkpoint.

        An environment without a state is reset every `checkpoint_interval` epochs, now and when resumed; at other
        moments its actions since then are saved, to be repeated.
        """
        world = self.env.state()
        resets = world is None and self.epoch % self.settings.trainer.checkpoint_interval == 0
        self.metrics.flush()
        state = {
            "step": self.step,
            "epoch": self.epoch,
            "optimizer": self.optimizer.state_dict(),
            "environment": _tensors(world),
            "replay": None if world is not None or resets else self._replay_state(),
            "teacher": _tensors(self.teacher.teacher.state() if self.teacher and not resets else None),
            "scaler": _tensors(self.scaler.state() if self.scaler else None),
            "starts": torch.from_numpy(self.starts_N),
            "lstm_state": self.lstm_state,
            "evaluation": self.evaluation,
            "account": self.account.state(),
            "log": self.metrics.offset,
            "kept": self.kept,
            "phase": phase_at(self.settings, max(min(self.step, self.settings.trainer.total_timesteps) - 1, 0)).name,
            **self._identity(),
        }
        both = (*self.kept.items(), *self.kept_before.items())
        named = [checkpoint.name_of(one["step"], kind) for kind, one in both]
        path = checkpoint.save(self.folder, self.step, state, named)
        self.kept_before = self.kept
        if resets:
            self.reset()
        return path

    def _replay_state(self) -> dict[str, Any]:
        actions = torch.from_numpy(np.array(self.actions_since_reset))
        return {"step": self.reset_step, "actions": actions, "obs": torch.from_numpy(self.env.obs.copy())}

    def _replay(self, state: checkpoint.State) -> None:
        """Bring an environment without a state to where it was: the same seed, the same actions."""
        self.reset(state["step"])
        for actions_N in state["actions"].numpy():
            self.step_env(actions_N)
        self.env.ended()  # they were reported
        if not np.array_equal(self.env.obs, state["obs"].numpy(), equal_nan=True):
            effect = "the run continues, but its weights differ from those of a run that was not stopped"
            self.say(f"{self.folder}: {self.env.spec.name} does not repeat itself with the same seed: {effect}")

    def load(self, state: checkpoint.State) -> None:
        """Resume from a checkpoint."""
        self.step, self.epoch = state["step"], state["epoch"]
        try:
            self.policy.load_state_dict(state["policy"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise InputError(f"{self.folder}: the checkpoint is of another network ({type(error).__name__})") from error
        self.account.load(state["account"])
        self.evaluation = state["evaluation"]
        self.kept = self.kept_before = state["kept"]
        replay = state.get("replay")
        if replay is not None:
            self._replay(replay)
        if self.scaler is not None:
            self.scaler.load(_arrays(state["scaler"]))
        if replay is None and state["environment"] is None:
            self.reset()
            return
        if replay is None:
            self.env.load(_arrays(state["environment"]))
        if self.teacher and state["teacher"] is not None:
            self.teacher.teacher.load(_arrays(state["teacher"]))
        self.starts_N = state["starts"].numpy()
        self.lstm_state = None if state["lstm_state"] is None else state["lstm_state"].to(self.device)

    def close(self) -> None:
        """Close everything; a started trace is written."""
        self.tracer.close()
        self.sinks.close()
        self.env.close()


def make_session(settings: RunSettings, folder: Path, say: Say) -> Session:
    """A run at its start, or where its last checkpoint left it."""
    state = checkpoint.latest(folder, say)
    device = _device(settings.trainer)
    stage = env_at(settings, state["step"] if state else 0)
    with ExitStack() as undo:
        env = make_env(stage, stream_seed(settings.seed, "environment", 0) % 2**31)
        undo.callback(env.close)
        metrics = MetricsLog(folder / METRICS, state["log"] if state else 0)
        sinks = Sinks(settings, folder, state["step"] if state else 0, say)
        undo.callback(sinks.close)
        profiled = settings.supervised.profiled
        tracer = Tracer(settings.trainer.profiler, folder, device, say, profiled=profiled)
        with fits_into_memory(f"{env.spec.name} with policy.hidden={settings.policy.hidden}"):
            policy = Policy(settings.policy, env.spec, stream(settings.seed, "weights", 0)).to(device)
        steps, state_N = horizon(settings, env.spec.total), policy.initial_state(1)
        with fits_into_memory(f"{env.spec.name} with trainer.batch_size={settings.trainer.batch_size}"):
            buffer = Buffer(steps, env.spec, device, state=state_N, segment=settings.trainer.bptt_horizon)
        compiled = settings.trainer.compile
        run = Session(
            settings=settings,
            folder=folder,
            say=say,
            device=device,
            stage=stage,
            env=env,
            teacher=_teacher(settings, stage, env, tracer),
            policy=policy,
            act=torch.compile(policy.forward) if compiled else policy.forward,
            learn=torch.compile(policy.sequence) if compiled else policy.sequence,
            optimizer=FlatAdam(policy.parameters(), settings.trainer.learning_rate),
            buffer=buffer,
            tracer=tracer,
            account=TimeAccount(),
            metrics=metrics,
            sinks=sinks,
            scaler=RewardScaler(env.spec.total, settings.trainer.gamma) if settings.trainer.normalize_rewards else None,
            starts_N=np.ones(env.spec.total, np.bool_),
        )
        if state is None:
            run.reset()
        else:
            run.load(state)
        undo.pop_all()
    return run


def _teacher(settings: RunSettings, stage: EnvSettings, env: VectorEnv, tracer: Tracer) -> TeacherActor | None:
    if not any(term.needs_teacher for term in settings.loss_terms()):
        return None
    teacher = make_teacher(stage, env)
    if teacher is None:
        raise InputError(f"{stage.name}: has no teacher; set supervised.steps=0 supervised.kickstart_coef=0")
    return TeacherActor(teacher, env.spec, tracer.part)


def _device(trainer: TrainerSettings) -> torch.device:
    if trainer.device == "cuda" and not torch.cuda.is_available():
        raise InputError("trainer.device=cuda: this torch sees no CUDA device; use trainer.device=cpu or auto")
    return torch.device("cuda" if trainer.device != "cpu" and torch.cuda.is_available() else "cpu")


def _tensors(arrays: dict[str, Any] | None) -> dict[str, Tensor] | None:
    return None if arrays is None else {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _arrays(tensors: dict[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
