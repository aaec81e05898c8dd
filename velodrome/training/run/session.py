"""What a run holds while it is trained, how it is made from its settings, and how it is kept and taken up again.

Everything that decides the next weight is in `state`: with it, a run that was killed goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from velodrome.errors import InputError
from velodrome.training.buffer import Buffer
from velodrome.training.envs import make_env, make_teacher
from velodrome.training.envs.interface import Environment
from velodrome.training.kernels.adam import Adam
from velodrome.training.machine import kind_of_machine
from velodrome.training.parts import Timer
from velodrome.training.policy import Policy
from velodrome.training.run import checkpoint
from velodrome.training.run.account import Account
from velodrome.training.run.board import Board
from velodrome.training.run.folder import METRICS
from velodrome.training.run.log import Log
from velodrome.training.run.profiler import Tracer
from velodrome.training.schedule import horizon
from velodrome.training.settings import Settings, TrainerSettings
from velodrome.training.streams import stream, stream_seed
from velodrome.training.teach import Lesson

Say = Callable[[str], None]
Act = Callable[[Tensor, Tensor | None, Tensor], tuple[Tensor, Tensor, Tensor | None]]
Learn = Callable[[Tensor, Tensor | None, Tensor | None], tuple[Tensor, Tensor]]


@dataclass(slots=True)
class Run:
    """Parts that are made once, and below them what changes."""

    settings: Settings
    folder: Path
    say: Say
    device: torch.device
    env: Environment
    lesson: Lesson | None
    policy: Policy
    act: Act  # the policy for one step, compiled if asked for
    learn: Learn  # and for many
    optimizer: Adam
    buffer: Buffer
    timer: Timer
    tracer: Tracer
    account: Account
    log: Log
    board: Board | None
    step: int = 0  # agent steps so far
    epoch: int = 0
    begun_N: NDArray[np.bool_] | None = None  # whose episode begins with what is seen now
    memory: Tensor | None = None  # the student's, for each agent
    evaluation: dict[str, Any] | None = None  # the last one: at which step, by which settings, and what was found

    @property
    def agents(self) -> int:
        """That act at once: the axis N."""
        return self.env.spec.total

    @property
    def evaluated(self) -> bool:
        """Whether the student as it is was evaluated as the settings ask for."""
        last = self.evaluation
        return last is not None and (last["step"], last["by"]) == (self.step, self.settings.evaluator.model_dump_json())

    def precision(self) -> AbstractContextManager[Any]:
        """What forward and backward are computed in."""
        if not self.settings.trainer.mixed_precision:
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    @property
    def lstm_precision(self) -> str | None:
        """What the LSTM is computed in with mixed precision; None without either."""
        dtype = self.policy.lstm_precision(self.device) if self.settings.trainer.mixed_precision else None
        return None if dtype is None else str(dtype).removeprefix("torch.")

    @property
    def precision_notes(self) -> list[str]:
        """Where that is not what was asked for."""
        why = "this CPU has no LSTM in bfloat16, so that layer is computed in float32"
        return [f"trainer.mixed_precision=True: {why}"] if self.lstm_precision == "float32" else []

    def begin(self) -> None:
        """Begin every environment and every memory anew, with a seed that is this step's."""
        self.env.reset(stream_seed(self.settings.seed, "environment", self.step) % 2**31)
        self.begun_N = np.ones(self.agents, np.bool_)
        self.memory = self.policy.initial_state(self.agents)

    def save(self) -> Path:
        """Keep a checkpoint. An environment that cannot tell its state is begun anew here, now and when resumed."""
        world = self.env.state()
        self.log.settle()
        if self.board:
            self.board.settle()
        state = {
            "step": self.step,
            "epoch": self.epoch,
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "environment": _tensors(world),
            "teacher": _tensors(self.lesson.teacher.state() if self.lesson and world is not None else None),
            "begun": torch.from_numpy(self.begun_N),
            "memory": self.memory,
            "evaluation": self.evaluation,
            "account": self.account.state(),
            "log": self.log.place,
            "settings": self.settings.model_dump_json(),
            "machine": kind_of_machine(),
            "lstm_precision": self.lstm_precision,
        }
        path = checkpoint.save(self.folder, self.step, state)
        if world is None:
            self.begin()
        return path

    def load(self, state: checkpoint.State) -> None:
        """Go on from a checkpoint."""
        self.step, self.epoch = state["step"], state["epoch"]
        try:
            self.policy.load_state_dict(state["policy"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError, KeyError) as error:
            raise InputError(f"{self.folder}: the checkpoint is of another network ({type(error).__name__})") from error
        self.account.load(state["account"])
        self.evaluation = state.get("evaluation")
        moved = _differences(state.get("machine"), kind_of_machine())
        if moved:
            kept = "the run continues, but its weights may differ from those of a run on one machine"
            self.say(f"{self.folder}: the checkpoint was made on another kind of machine ({moved}): {kept}")
        if state["environment"] is None:
            self.begin()
            return
        self.env.load(_arrays(state["environment"]))
        if self.lesson and state["teacher"] is not None:
            self.lesson.teacher.load(_arrays(state["teacher"]))
        self.begun_N = state["begun"].numpy()
        self.memory = None if state["memory"] is None else state["memory"].to(self.device)

    def close(self) -> None:
        """Let go of everything; a trace that has begun is written."""
        self.tracer.close()
        self.log.close()
        if self.board:
            self.board.close()
        self.env.close()


def make_run(settings: Settings, folder: Path, say: Say) -> Run:
    """A run at its beginning, or where its last checkpoint left it."""
    found = checkpoint.latest(folder, say)
    device = _device(settings.trainer)
    env = make_env(settings.env, stream_seed(settings.seed, "environment", 0) % 2**31)
    with ExitStack() as refused:
        refused.callback(env.close)
        board = Board(folder, 0 if found is None else found["step"]) if settings.output.tensorboard else None
        if board:
            refused.callback(board.close)
        log = Log(folder / METRICS, 0 if found is None else found["log"])
        refused.callback(log.close)
        run = _assembled(settings, folder, say, device, env, log, board)
        if found is None:
            run.begin()
        else:
            run.load(found)
        refused.pop_all()
    if log.lost:
        say(f"{folder / METRICS}: {log.lost:,} bytes are gone that were there; training does not need them")
    return run


def _assembled(
    settings: Settings, folder: Path, say: Say, device: torch.device, env: Environment, log: Log, board: Board | None
) -> Run:
    full = horizon(settings, env.spec.total)
    timer = Timer(device, profiled=settings.supervised.profiled)
    teacher = make_teacher(settings.env, env) if settings.supervised.asks_teacher else None
    if teacher is None and settings.supervised.asks_teacher:
        raise InputError(f"{settings.env.name}: has no teacher; give supervised.steps=0 supervised.keep_steps=0")
    policy = Policy(settings.policy, env.spec, stream(settings.seed, "weights", 0)).to(device)
    state, stretch = policy.initial_state(1), settings.trainer.bptt_horizon
    try:
        buffer = Buffer(full, env.spec, device, state=state, stretch=stretch)
    except (MemoryError, RuntimeError) as error:  # torch has no better word for it
        size = settings.trainer.batch_size
        raise InputError(f"trainer.batch_size={size}: a rollout of it does not fit into memory; give less") from error
    compiled = settings.trainer.compile
    return Run(
        settings=settings,
        folder=folder,
        say=say,
        device=device,
        env=env,
        lesson=Lesson(teacher, env, device, timer) if teacher else None,
        policy=policy,
        act=torch.compile(policy.forward) if compiled else policy.forward,
        learn=torch.compile(policy.sequence) if compiled else policy.sequence,
        optimizer=Adam(policy.parameters(), settings.trainer.learning_rate),
        buffer=buffer,
        timer=timer,
        tracer=Tracer(settings.trainer.profiler, folder, timer, device, say),
        account=Account(),
        log=log,
        board=board,
    )


def _device(given: TrainerSettings) -> torch.device:
    if given.device == "cuda" and not torch.cuda.is_available():
        raise InputError("trainer.device=cuda: this torch sees no CUDA device; give trainer.device=cpu or auto")
    device = torch.device("cuda" if given.device != "cpu" and torch.cuda.is_available() else "cpu")
    if given.mixed_precision and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise InputError("trainer.mixed_precision=True: this GPU has no bfloat16, so it would be slower; leave it off")
    return device


def _differences(before: dict[str, str] | None, now: dict[str, str]) -> str:
    """What is not as it was; nothing is known of a checkpoint that does not say where it was made."""
    before = now if before is None else before
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {before.get(name, 'unset')} -> {now.get(name, 'unset')}" for name in names)


def _tensors(arrays: dict[str, Any] | None) -> dict[str, Tensor] | None:
    return None if arrays is None else {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _arrays(tensors: dict[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
