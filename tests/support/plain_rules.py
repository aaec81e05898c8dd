"""extractor_hub in plain Python, one world at a time: written from the rules page, slow, and easy to believe.

Objects and dictionaries instead of arrays; nothing is shared with the kernels but the numbers of the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from velodrome.training.envs.extractor_hub import hub_rules

Cell = tuple[int, int]  # x, y
WORD = 2**64
TOWARDS = {1: (0, -1), 2: (0, 1), 3: (-1, 0), 4: (1, 0)}


def mixed(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


class Stream:
    def __init__(self, seed: int, environment: int, episode: int) -> None:
        self.at = mixed((mixed((mixed(seed) + environment) % WORD) + episode) % WORD)

    def below(self, n: int) -> int:
        self.at = (self.at + 0x9E3779B97F4A7C15) % WORD
        return (mixed(self.at) >> 33) % n


@dataclass
class Agent:
    cell: Cell
    carried: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    last: int | None = None
    blocked: bool = False
    seen: set[int] = field(default_factory=set)


@dataclass
class Extractor:
    cell: Cell
    resource: int
    cooldown: int = 0


class PlainWorld:
    def __init__(self, size: int, agents: int, max_steps: int, notes: bool, seed: int, environment: int) -> None:
        self.size, self.count, self.max_steps, self.notes = size, agents, max_steps, notes
        self.seed, self.environment, self.episode = seed, environment, 0
        middle, radius = size // 2, 1 if size >= 12 else 0
        self.hub = {(middle + i, middle + j) for i in range(-radius, radius + 1) for j in range(-radius, radius + 1)}
        self.begin()

    def begin(self) -> None:
        self.draw = Stream(self.seed, self.environment, self.episode).below
        self.walls: set[Cell] = set()
        self.agents: list[Agent] = []
        self.extractors: list[Extractor] = []
        while len(self.extractors) < 4 * max(2, self.size**2 // 450):
            self.add_extractor()
        for _ in range(self.size**2 // 60):
            self.add_wall()
        self.add_agents()
        self.time, self.stock, self.delivered, self.hearts = 0, [0, 0, 0, 0], 0, 0

    def inner(self, cell: Cell) -> bool:
        return all(1 <= at <= self.size - 2 for at in cell)

    def standing(self) -> set[Cell]:
        return self.hub | self.walls | {x.cell for x in self.extractors} | {a.cell for a in self.agents}

    def keeps_distance(self, cells: list[Cell]) -> bool:
        around = {(x + i, y + j) for x, y in cells for i in (-1, 0, 1) for j in (-1, 0, 1)}
        return not {cell for cell in around if self.inner(cell)} & self.standing()

    def add_extractor(self) -> None:
        for _ in range(40):
            x = 1 + self.draw(self.size - 2)
            y = 1 + self.draw(self.size - 2)
            if self.keeps_distance([(x, y)]):
                self.extractors.append(Extractor((x, y), len(self.extractors) % 4))
                return
        self.extractors.clear()

    def add_wall(self) -> None:
        length = 2 + self.draw(3)
        across = self.draw(2) == 1
        x = 1 + self.draw(self.size - 2)
        y = 1 + self.draw(self.size - 2)
        cells = [(x + i, y) if across else (x, y + i) for i in range(length)]
        if all(self.inner(cell) for cell in cells) and self.keeps_distance(cells):
            self.walls.update(cells)

    def ring(self, radius: int) -> list[Cell]:
        """Clockwise from north-west."""
        low, high = self.size // 2 - radius, self.size // 2 + radius
        along = range(2 * radius)
        north, east = [(low + i, low) for i in along], [(high, low + i) for i in along]
        south, west = [(high - i, high) for i in along], [(low, high - i) for i in along]
        return north + east + south + west

    def add_agents(self) -> None:
        rings = range(2 if self.size >= 12 else 1, self.size // 2)
        for radius in rings:
            cells = self.ring(radius)
            self.offer(cells[:: max(1, len(cells) // max(1, self.count - len(self.agents)))])
        for radius in rings:
            self.offer(self.ring(radius))

    def offer(self, cells: list[Cell]) -> None:
        for cell in cells:
            if len(self.agents) < self.count and self.inner(cell) and cell not in self.standing():
                self.agents.append(Agent(cell))

    def step(self, actions: list[int]) -> tuple[list[float], bool, list[bytes]]:
        """Rewards, whether the episode was cut off, and if so what was seen last."""
        self.time += 1
        self.rewards = [0.0] * self.count
        for extractor in self.extractors:
            extractor.cooldown = max(0, extractor.cooldown - 1)
        for agent, action in zip(self.agents, actions, strict=True):
            agent.last = action if action in TOWARDS else 0
            agent.blocked = action in TOWARDS and not self.moved(agent, TOWARDS[action])
        if self.time < self.max_steps:
            return self.rewards, False, []
        last = self.views()
        self.episode += 1
        self.begin()
        return self.rewards, True, last

    def moved(self, agent: Agent, towards: Cell) -> bool:
        to = (agent.cell[0] + towards[0], agent.cell[1] + towards[1])
        if to in self.hub:
            return self.deposited(agent)
        for extractor in self.extractors:
            if extractor.cell == to:
                return self.extracted(agent, extractor)
        if not self.inner(to) or to in self.standing():
            return False
        agent.cell = to
        return True

    def extracted(self, agent: Agent, extractor: Extractor) -> bool:
        room = 4 - sum(agent.carried)
        if extractor.cooldown or not room:
            return False
        x, y = extractor.cell
        beside = {(x + i, y + j) for i, j in TOWARDS.values()}
        helped = any(other is not agent and other.cell in beside for other in self.agents)
        agent.carried[extractor.resource] += min(room, 2 if helped else 1)
        extractor.cooldown = 5
        return True

    def deposited(self, agent: Agent) -> bool:
        units = sum(agent.carried)
        if not units:
            return False
        self.stock = [a + b for a, b in zip(self.stock, agent.carried, strict=True)]
        agent.carried = [0, 0, 0, 0]
        self.delivered += units
        self.rewards[self.agents.index(agent)] += 0.1 * units
        while all(self.stock):
            self.stock = [n - 1 for n in self.stock]
            self.hearts += 1
            self.rewards = [reward + 1 for reward in self.rewards]
        return True

    def code(self, cell: Cell) -> int:
        if not self.inner(cell) or cell in self.walls:
            return hub_rules.WALL
        if cell in self.hub:
            return hub_rules.HUB
        for extractor in self.extractors:
            if extractor.cell == cell:
                return (hub_rules.COOLING if extractor.cooldown else hub_rules.EXTRACTOR) + extractor.resource
        return hub_rules.AGENT if any(agent.cell == cell for agent in self.agents) else hub_rules.FLOOR

    def views(self) -> list[bytes]:
        return [bytes(self.view(index)) for index in range(self.count)]

    def view(self, index: int) -> Iterator[int]:
        agent = self.agents[index]
        x, y = agent.cell
        yield from (self.code((x + i, y + j)) for j in range(-5, 6) for i in range(-5, 6))
        turn = [(index + r) % 4 for r in range(4)]
        least = min(self.stock)
        yield from (agent.carried[r] * 255 // 4 for r in turn)
        yield 255 * (sum(agent.carried) >= 4)
        yield from (min(15, self.stock[r]) * 17 for r in turn)
        yield from (255 * (self.stock[r] == least) for r in turn)
        yield from (255 * (self.stock[r] >= least + 4) for r in turn)
        nearest = min(self.hub, key=lambda cell: abs(cell[0] - x) + abs(cell[1] - y))
        yield from self.place(agent, nearest)
        yield from (at * 255 // (self.size - 1) for at in agent.cell)
        yield from (255 * (agent.last == action) for action in range(5))
        yield 255 * agent.blocked
        yield (self.max_steps - self.time) * 255 // self.max_steps
        yield 4 * index
        yield from (255 * (index % 4 == r) for r in range(4))
        yield from (byte for r in turn for byte in self.note(agent, r))

    def place(self, agent: Agent, cell: Cell) -> list[int]:
        dx, dy = cell[0] - agent.cell[0], cell[1] - agent.cell[1]
        scale = max(1, 127 // (self.size - 1))
        offsets = [128 + sorted((-127, d * scale, 127))[1] for d in (dx, dy)]
        return [255 * (dy < 0), 255 * (dy > 0), 255 * (dx < 0), 255 * (dx > 0), *offsets]

    def note(self, agent: Agent, resource: int) -> list[int]:
        if not self.notes:
            return [0] * 7
        x, y = agent.cell
        agent.seen |= {i for i, e in enumerate(self.extractors) if max(abs(e.cell[0] - x), abs(e.cell[1] - y)) <= 5}
        known = [self.extractors[i].cell for i in sorted(agent.seen) if self.extractors[i].resource == resource]
        if not known:
            return [0] * 7
        return [255, *self.place(agent, min(known, key=lambda cell: abs(cell[0] - x) + abs(cell[1] - y)))]
