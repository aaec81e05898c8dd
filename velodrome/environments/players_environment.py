"""Turns of several players: `reset` and `step` address observations to players by name; those players act next.

Each player has a separate conversation and reward. If several players are addressed, they act concurrently.
"""

from __future__ import annotations

from math import fsum
from typing import Any

from velodrome.resources_servers.environment import Json
from velodrome.resources_servers.turn_environment import Game, TurnEnvironment, addressed_reset, addressed_step


class PlayersEnvironment(TurnEnvironment):
    """Turns with several players. Write `reset(task, session)`, which returns `{player: observation}`, and `step`.

    `step(actions, session)` gets `{player: text}` from the players addressed last, and returns
    `{player: observation}`, `{player: reward}`, terminated, truncated, info. The score is `rewards`, the sums by
    player, and `reward`, their mean, unless there is a `verify`. A `ValueError` is reported to those who acted.
    """

    addresses_players = True
    _read_reset = staticmethod(addressed_reset)
    _read_step = staticmethod(addressed_step)

    def _illegal(self, action: Any, text: str, game: Game) -> tuple[Any, ...]:
        return dict.fromkeys(action, text), dict.fromkeys(action, 0.0), False, False, game.info

    def _total(self, game: Game) -> Json:
        names = dict.fromkeys(name for rewards in game.rewards for name in rewards)
        rewards = {name: fsum(each.get(name, 0.0) for each in game.rewards) for name in names}
        return {**game.info, "rewards": rewards, "reward": fsum(rewards.values()) / len(rewards) if rewards else 0.0}
