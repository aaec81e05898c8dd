"""Episodes of a trained student as rollouts, one per line of `episodes.jsonl` in the run's folder.

The layouts are those of the evaluation, so the numbers are too. Episodes of the run at an earlier step are moved to
another file, with the same keys for `velo compare`.
"""

from __future__ import annotations

import os
import time
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from numpy.typing import NDArray

from velodrome.errors import InputError, StorageError
from velodrome.records.jsonl import MAX_LINE_BYTES
from velodrome.records.rollout import SCHEMA, encode, make_rollout
from velodrome.training.envs.interface import Array, Spec, VectorEnv
from velodrome.training.evaluate import AT_ONCE, MOST_STEPS, Actor, Student, layout_seed, layouts
from velodrome.training.network.policy import Policy
from velodrome.training.random_streams import stream
from velodrome.training.settings import RunSettings
from velodrome.training.timed import TeacherActor

Json = dict[str, Any]

EPISODES, SAMPLED = "episodes.jsonl", "episodes_sampled.jsonl"  # of greedy actions; of sampled ones

_LARGE = ("observations", "frames")  # left out of a line that is too long, in this order
_CHANGE_BYTES = 6  # of JSON, about; a cell of a whole frame is one


def write_episodes(
    settings: RunSettings,
    policy: Policy,
    device: torch.device,
    path: Path,
    *,
    step: int,
    most_steps: int = MOST_STEPS,
) -> int:
    """Write a file of the student's episodes after `step` agent steps, whole or not at all; returns how many.

    A file that has them already stays, which is 0. One of the run at another step is renamed.
    """
    episodes = settings.output.episodes
    count, of_step = _existing(path)
    if of_step == step and count >= episodes:
        return 0
    new = path.with_suffix(".new")
    try:
        if count and of_step != step:
            path.replace(path.with_name(f"{path.stem}_{of_step:012d}{path.suffix}"))
        with new.open("wb") as file:
            for first in range(0, episodes, AT_ONCE):
                name = f"evaluation/actions/{first // AT_ONCE}" if first else "evaluation/actions"
                generator = None if settings.evaluator.greedy else stream(settings.seed, name, step, device)
                with layouts(settings, first, episodes) as (env, advisor):
                    batch = _EpisodeBatch(settings, env, layout_seed(settings, first), first, step)
                    file.writelines(batch.play(Student(policy, device, generator), advisor, most_steps))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        new.unlink(missing_ok=True)
    return episodes


def _existing(path: Path) -> tuple[int, int]:
    """How many episodes the file has, and the agent step of their policy."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    try:
        return len(lines), int(orjson.loads(lines[0])["meta"]["policy_step"]) if lines else 0
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}:1: not an episode of this run; move the file away") from None


class Recording:
    """The first episode of one environment, while it is played.

    A frame is rows of letters or, where that is shorter, the change since the frame before: cells counted row by row,
    and their new letters.
    """

    def __init__(self, *, observations: bool) -> None:
        self.frames: list[list[str] | Json] = []
        self._last: NDArray[np.uint8] | None = None
        self.actions: list[list[Any]] = []
        self.teacher_actions: list[list[Any]] = []
        self.rewards: list[list[float]] = []
        self._pack = zlib.compressobj() if observations else None
        self._packed = bytearray()
        self.views = 0

    def show(self, letters: NDArray[np.uint8] | None) -> None:
        """Add a frame, if the environment draws any."""
        if letters is None:
            return
        last, self._last = self._last, letters
        if last is not None and last.shape == letters.shape:
            changed = np.flatnonzero(letters != last)
            if len(changed) * _CHANGE_BYTES < letters.size:
                self.frames.append({"at": changed.tolist(), "put": letters.ravel()[changed].tobytes().decode()})
                return
        self.frames.append([row.tobytes().decode() for row in letters])

    def see(self, obs_A: Array) -> None:
        """Keep the agents' observations, if wanted."""
        if self._pack:
            self._packed += self._pack.compress(np.ascontiguousarray(obs_A).tobytes())
            self.views += 1

    def packed_observations(self, spec: Spec) -> Json | None:
        """All observations; nothing can be added afterwards."""
        if self._pack is None:
            return None
        self._packed += self._pack.flush()
        shape = [self.views, spec.agents, *spec.obs_shape]
        return {"dtype": spec.obs_dtype, "shape": shape, "zlib_base64": b64encode(self._packed).decode()}


class _EpisodeBatch:
    """Environments whose first episodes are recorded together."""

    def __init__(self, settings: RunSettings, env: VectorEnv, seed: int, first: int, step: int) -> None:
        self._settings = settings
        self._env = env
        self._seed = seed
        self._first = first
        self._step = step
        self._spent = {"model": 0.0, "teacher": 0.0, "environment": 0.0}

    def play(self, student: Actor, advisor: TeacherActor | None, most_steps: int) -> Iterator[bytes]:
        """The first episode of every environment as a line, when it ends or at the step limit."""
        env, agents, clock = self._env, self._env.spec.agents, time.perf_counter
        starts_N: NDArray[np.bool_] = np.ones(env.spec.total, np.bool_)
        observations = self._settings.output.episode_observations
        recordings = {e: Recording(observations=observations) for e in range(env.spec.num_envs)}
        began = clock()
        env.ended()
        for left in reversed(range(most_steps)):
            start = clock()
            advised_N = advisor.act(env.obs, starts_N) if advisor else None
            taught = clock()
            actions_N = student.act(env.obs, starts_N, env.action_mask)
            acted = clock()
            for e, one in recordings.items():
                rows = slice(e * agents, (e + 1) * agents)
                one.show(env.letters(e))
                one.see(env.obs[rows])
                one.actions.append(actions_N[rows].tolist())
                if advised_N is not None:
                    one.teacher_actions.append(advised_N[rows].tolist())
            noted = clock()
            env.step(actions_N)
            stepped = clock()
            for name, seconds in zip(self._spent, (acted - taught, taught - start, stepped - noted), strict=True):
                self._spent[name] += seconds
            starts_N = env.terminals | env.truncations
            numbers, took_s = self._numbers(starts_N), stepped - began
            for e, one in list(recordings.items()):
                rows = slice(e * agents, (e + 1) * agents)
                one.rewards.append(env.rewards[rows].tolist())
                over = starts_N[rows].all()
                if over or not left:
                    one.see((env.final_obs if over else env.obs)[rows])
                    yield self._line(e, recordings.pop(e), numbers.get(e, {}), took_s)
            if not recordings:
                break

    def _numbers(self, over_N: NDArray[np.bool_]) -> dict[int, dict[str, float]]:
        """The environment's own numbers of the episodes that ended in this step, by environment."""
        over = np.flatnonzero(over_N.reshape(-1, self._env.spec.agents).all(1)).tolist()
        ended = self._env.ended().numbers if over else {}
        return {e: {name: float(numbers[k]) for name, numbers in ended.items()} for k, e in enumerate(over)}

    def _line(self, e: int, one: Recording, numbers: Mapping[str, float], took_s: float) -> bytes:
        """One episode as a line. Columns that would make it too long are left out and named."""
        settings, agents = self._settings, self._env.spec.agents
        layout, length = f"{settings.env.name}.{self._seed}.{e}", len(one.actions)
        reward = float(np.mean(np.sum(one.rewards, 0)))
        episode = self._episode(e, one)
        question = f"{settings.env.name}, layout {self._seed}.{e}: {agents} agent{'s' if agents > 1 else ''}"
        answer = f"Acted for {length:,} step{'s' if length > 1 else ''}; an agent's mean return is {reward:.4f}."
        text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer}]}
        task = {
            "id": layout,
            "env": settings.env.name,
            "responses_create_params": {"input": [{"role": "user", "content": question}]},
            "episode": episode,  # with the task: scores are shown in full everywhere
        }
        agreement = {}
        if one.teacher_actions:
            agreement["agreement_alone"] = float(np.mean(np.equal(one.actions, one.teacher_actions)))
        result: Json = {
            **task,
            "response": {"model": settings.run, "status": "completed", "output": [text]},
            "reward": reward,
            "length": length,
            **agreement,
            **numbers,
        }
        meta = {
            "key": f"{layout}/0",
            "task_index": self._first + e,
            "rollout_index": 0,
            "agent": settings.run,
            "schema": SCHEMA,
            "policy_step": self._step,
            "finished_at": time.time(),
            "timing": self._timing(took_s, length),
        }
        row = make_rollout(task, result, meta)
        line = encode(row)
        for name in _LARGE:
            if len(line) <= MAX_LINE_BYTES:
                break
            if name in episode:
                del episode[name]
                episode.setdefault("left_out", []).append(name)
                line = encode(row)
        return line

    def _episode(self, e: int, one: Recording) -> Json:
        """Columns: the k-th entry is of the k-th step; there is one more observation, the last."""
        env = self._env
        columns = {
            "action_names": env.action_names,
            "actions": one.actions,
            "teacher_actions": one.teacher_actions,
            "rewards": one.rewards,
            "observations": one.packed_observations(env.spec),
            "palette": env.palette,
            "frames": one.frames,
        }
        return {
            "agents": env.spec.agents,
            "ended": self._ended(e),
            "returns": np.sum(one.rewards, 0).tolist(),
            **{name: column for name, column in columns.items() if column},
        }

    def _ended(self, e: int) -> str:
        env, rows = self._env, slice(e * self._env.spec.agents, (e + 1) * self._env.spec.agents)
        if not (env.terminals | env.truncations)[rows].all():
            return "unfinished"
        return "truncated" if env.truncations[rows].any() else "terminal"

    def _timing(self, took_s: float, length: int) -> Json:
        """Shared by the episodes played at once."""
        spent = {name: round(seconds, 6) for name, seconds in self._spent.items()}
        total_s = round(took_s, 6)
        tree, at_us = [], 0
        for name, seconds in spent.items():
            tree.append([name, at_us, round(seconds * 1e6), {"folded": length}, []])
            at_us += round(seconds * 1e6)
        at_once = self._env.spec.num_envs
        return {
            **dict.fromkeys(("queue_s", "session_s", "tools_s", "verify_s"), 0.0),
            **{f"{name}_s": seconds for name, seconds in spent.items()},
            "other_s": round(max(total_s - sum(spent.values()), 0.0), 6),
            "total_s": total_s,
            "model_calls": length,
            "tree": tree,
            "in_flight": at_once,
            "limit": at_once,
        }
