"""mettagrid's simulation behind our interface, with its tokens laid out as planes.

An agent is shown up to some hundreds of tokens (place, feature, value). Each kind of object and each action has its
plane, 255 where it is; every other feature is one plane, on a scale on which small counts differ most:
32 * log2(1 + value). What has no place (the last reward) is in the middle, with the agent.
A simulation has no state to save, so environments are reset at checkpoints, as with Gymnasium's.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from string import ascii_letters
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velodrome.errors import InputError, blame
from velodrome.settings.names import hint
from velodrome.training.compiled import kernel
from velodrome.training.envs.extractor_hub.env import PALETTE as HUB_PALETTE
from velodrome.training.envs.interface import ActionSpace, Array, Spec, VectorEnv
from velodrome.training.settings import EnvSettings

PREFIX = "mettagrid:"

_NOWHERE, _ENDS = 0xFE, 0xFF  # places: of all the world, and of the token after the last
_FILES = (".json", ".yaml", ".yml")
_CARRIED = 4  # ore an agent of `extractor_hub` has room for
_PALETTE = {**{sign: HUB_PALETTE[sign] for sign in ".#0123456789"}, "?": HUB_PALETTE["C"]}
_OTHERS = (*(HUB_PALETTE[sign] for sign in "HOGS"), "#78c8c8", "#a0522d")


@contextmanager
def _quiet() -> Iterator[None]:
    """Importing mettagrid configures the root logger, and may make IPython warn."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            root.setLevel(level)
            root.handlers[:] = handlers


with _quiet():
    from mettagrid.builder import building, envs
    from mettagrid.config import mettagrid_config as parts
    from mettagrid.config.filter import actorHas
    from mettagrid.config.game_value import InventoryValue
    from mettagrid.config.handler_config import Handler, updateActor
    from mettagrid.config.reward_config import reward
    from mettagrid.map_builder.map_builder import HasSeed
    from mettagrid.map_builder.random_map import RandomMapBuilder
    from mettagrid.simulator.simulator import Buffers, Simulation


def make(settings: EnvSettings) -> MettaGrid:
    """The environments that `mettagrid:<mission>` names; a mission is one of ours below, or a file of mettagrid's."""
    where = f"env.name={settings.name}"
    mission = settings.name.removeprefix(PREFIX)
    with blame(InputError, where):
        if mission.endswith(_FILES):
            config = _read(where, Path(mission).expanduser())
        elif mission in MISSIONS:
            config = MISSIONS[mission](settings.agents)
            config.game.max_steps = settings.max_steps
            config.game.episode_truncates = True  # otherwise the clock would look like a rule of the game
            config.game.protocol_details_obs = False  # features nothing in these missions has
            config.game.actions.change_vibe.enabled = False  # 150 actions without effect here
        else:
            known = ", ".join(MISSIONS)
            raise InputError(
                f'{where}: no mission "{mission}"{hint(mission, MISSIONS)} ({known}, or a file .json or .yaml)'
            )
        if not config.game.max_steps:
            config.game.max_steps = settings.max_steps
        return MettaGrid(settings, config)


def _read(where: str, path: Path) -> Any:
    """A MettaGridConfig as `model_dump_json` wrote it, or the same as YAML."""
    import yaml  # mettagrid brings it

    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror or error})") from error
    return parts.MettaGridConfig.model_validate(config)


def _extractor_hub(agents: int) -> Any:
    """Ore from extractors, hearts for ore at hubs: what extractor_hub is, in mettagrid's parts."""
    side = 12 + 2 * agents
    extractor = parts.GridObjectConfig(name="extractor", on_use_handler=Handler(mutations=[updateActor({"ore": 1})]))
    trade = Handler(filters=[actorHas({"ore": 1})], mutations=[updateActor({"ore": -1, "heart": 1})])
    room = parts.InventoryConfig(limits={"ore": parts.ResourceLimitsConfig(base=_CARRIED, resources=["ore"])})
    return parts.MettaGridConfig(
        label="extractor_hub",
        game=parts.GameConfig(
            num_agents=agents,
            resource_names=["ore", "heart"],
            objects={
                "wall": building.wall,
                "extractor": extractor,
                "hub": parts.GridObjectConfig(name="hub", on_use_handler=trade),
            },
            agent=parts.AgentConfig(inventory=room, rewards={"heart": reward(InventoryValue(item="heart"))}),
            map_builder=RandomMapBuilder.Config(
                agents=agents,
                width=side,
                height=side,
                border_width=1,
                objects={"extractor": 2 * agents + 2, "hub": agents + 1, "wall": side},
            ),
        ),
    )


MISSIONS: dict[str, Callable[[int], Any]] = {  # the last two as mettagrid ships them: nothing in them pays a reward
    "extractor_hub": _extractor_hub,
    "arena": envs.make_arena,
    "navigation": envs.make_navigation,
}


class TokenPlanes:
    """The plane of a token and its value there: two tables, by feature and value."""

    def __init__(self, game: Any, actions: list[str]) -> None:
        ids = game.id_map()
        self.height, self.width = int(game.obs.height), int(game.obs.width)
        self.plane_FV: NDArray[np.int16] = np.full((256, 256), -1, np.int16)
        self.worth_FV: NDArray[np.uint8] = np.zeros((256, 256), np.uint8)
        self.names: list[str] = []
        kinds = {"tag": ids.tag_names(), "last_action": actions}
        scale = np.minimum(np.rint(32 * np.log2(1 + np.arange(256))), 255)
        for feature in ids.features():
            name, _, power = feature.name.rpartition(":p")
            if feature.name.startswith(_silent(game)):
                continue
            if feature.name in kinds:
                for value, kind in enumerate(kinds[feature.name]):
                    self.plane_FV[feature.id, value] = self._plane(f"{feature.name}={kind}")
                    self.worth_FV[feature.id, value] = 255
            elif power.isdecimal() and name in self.names:  # the upper digits of a count that is beyond a byte
                self.plane_FV[feature.id] = self._plane(name)
                self.worth_FV[feature.id, 1:] = 255
            else:
                self.plane_FV[feature.id] = self._plane(feature.name)
                self.worth_FV[feature.id] = scale

    def _plane(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


def _silent(game: Any) -> tuple[str, ...]:
    """Prefixes of features that have an id in every mission, but tokens only in some."""
    shown = game.obs.global_obs
    return (*(() if shown.goal_obs else ("goal",)), *(() if shown.local_position else ("lp:",)))


def _signs(kinds: list[str]) -> dict[str, str]:
    """A letter for each kind of object: its first that is free, else any that is."""
    signs = {"wall": "#"}
    for kind in kinds:
        wanted = [*kind.upper(), *kind.lower(), *ascii_letters, "?"]
        signs[kind] = next(one for one in wanted if one in ascii_letters + "?" and one not in signs.values())
    return signs


@kernel
def lay_out(
    tokens_NKB: Array, plane_FV: Array, worth_FV: Array, planes_NCYX: Array, first: int, until: int, middle: int
) -> None:
    """Tokens of some agents onto their planes. Of several values in one cell the largest stays."""
    height, width = planes_NCYX.shape[2], planes_NCYX.shape[3]
    for n in range(first, until):
        planes_NCYX[n] = 0
        for k in range(tokens_NKB.shape[1]):
            place, feature, value = tokens_NKB[n, k, 0], tokens_NKB[n, k, 1], tokens_NKB[n, k, 2]
            if place == _ENDS:
                break
            plane = plane_FV[feature, value]
            at = middle if place == _NOWHERE else (place >> 4) * width + (place & 15)
            if plane >= 0 and at < height * width:
                y, x = at // width, at % width
                planes_NCYX[n, plane, y, x] = max(planes_NCYX[n, plane, y, x], worth_FV[feature, value])


class MettaGrid(VectorEnv):
    """One simulation for each environment; all write into arrays that were made once."""

    def __init__(self, settings: EnvSettings, config: Any) -> None:
        game = config.game
        names = [action.name for action in game.actions.actions()]
        vibes = [name for name in names if name.startswith("change_vibe_")]
        planes = self._token_planes = TokenPlanes(game, names)
        shape = (len(planes.names), planes.height, planes.width)
        num_envs, agents = settings.num_envs, int(game.num_agents)
        super().__init__(Spec(settings.name, num_envs, agents, ActionSpace((len(names),)), "planes", shape, "uint8"))
        self.action_names = [name for name in names if name not in vibes] + vibes
        self._ids: NDArray[np.int32] = np.array([names.index(name) for name in self.action_names], np.int32)
        self._acts = len(names) - len(vibes)  # actions before the vibes, which go another way
        self._config = config
        self._signs = _signs(sorted(set(game.objects) - {"wall"}))
        kinds = [sign for sign in self._signs.values() if sign != "#"]
        self.palette = _PALETTE | {sign: _OTHERS[k % len(_OTHERS)] for k, sign in enumerate(kinds)}
        self._middle = (planes.height // 2) * planes.width + planes.width // 2
        self._tokens_NKB: Array = np.zeros((self.spec.total, game.obs.num_tokens, 3), np.uint8)
        self._buffers = [self._buffer(slice(e * agents, (e + 1) * agents)) for e in range(num_envs)]
        self._sims: list[Any] = [None] * num_envs
        self._seed = 0
        self._episodes_E = np.zeros(num_envs, np.int64)

    def _buffer(self, rows: slice) -> Any:
        agents = self.spec.agents
        return Buffers(
            observations=self._tokens_NKB[rows],
            terminals=np.zeros(agents, np.bool_),
            truncations=np.zeros(agents, np.bool_),
            rewards=np.zeros(agents, np.float32),
            masks=np.ones(agents, np.bool_),
            actions=np.zeros(agents, np.int32),
            teacher_actions=np.zeros(agents, np.int32),
            vibe_actions=np.zeros(agents, np.int32),
        )

    def reset(self, seed: int) -> None:
        self._seed = seed
        self._episodes_E[:] = 0
        self._begin_counting()
        for e in range(self.spec.num_envs):
            self._begin(e)
        self._see(self.obs, 0, self.spec.total)

    def _begin(self, e: int) -> None:
        """The next episode of one environment: its map and its chances by (seed, environment, episode)."""
        drawn = np.random.SeedSequence((self._seed, e, int(self._episodes_E[e]))).generate_state(2) >> 1
        config = self._config
        if isinstance(config.game.map_builder, HasSeed):
            builder = config.game.map_builder.model_copy(update={"seed": int(drawn[0])})
            config = config.model_copy(update={"game": config.game.model_copy(update={"map_builder": builder})})
        if self._sims[e] is not None:
            self._sims[e].close()
        self._sims[e] = Simulation(config, int(drawn[1]), buffers=self._buffers[e])

    def step(self, actions_N: NDArray[np.int64]) -> None:
        agents = self.spec.agents
        ids_N = self._ids[actions_N]
        vibes_N = actions_N >= self._acts
        for e, (sim, buffers) in enumerate(zip(self._sims, self._buffers, strict=True)):
            rows = slice(e * agents, (e + 1) * agents)
            buffers.actions[:] = np.where(vibes_N[rows], 0, ids_N[rows])
            buffers.vibe_actions[:] = np.where(vibes_N[rows], ids_N[rows], 0)
            sim.step()
            self.rewards[rows] = buffers.rewards
            done = sim.is_done()
            self.terminals[rows] = done and buffers.terminals.all()
            self.truncations[rows] = done and not buffers.terminals.all()
        for e in self._count():
            self._see(self.final_obs, e * agents, (e + 1) * agents)
            self._episodes_E[e] += 1
            self._begin(e)
        self._see(self.obs, 0, self.spec.total)

    def _see(self, into: Array, first: int, until: int) -> None:
        reading = self._token_planes
        lay_out(self._tokens_NKB, reading.plane_FV, reading.worth_FV, into, first, until, self._middle)

    def letters(self, env: int) -> NDArray[np.uint8]:
        sim = self._sims[env]
        rows: NDArray[np.uint8] = np.full((sim.map_height, sim.map_width), ord("."), np.uint8)
        for thing in sim.grid_objects().values():
            agent = thing.get("agent_id")
            rows[thing["r"], thing["c"]] = ord(
                self._signs.get(thing["type_name"], "?") if agent is None else str(agent % 10)
            )
        return rows

    def close(self) -> None:
        for sim in self._sims:
            if sim is not None:
                sim.close()
        self._sims = [None] * self.spec.num_envs
