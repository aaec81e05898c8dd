"""The rules of extractor_hub, on one page. The kernels and the plain reference in the tests are both written from here.

WORLD. size x size cells, walls all around. A hub in the middle (cell size//2): 3x3 cells from size 12 on, else one.
Extractors, `per_resource(size)` of each of four resources; number i gives resource i % 4. Some straight walls.
LAYOUT. Drawn for every episode from (seed, environment, episode) alone; see `world.py` for the stream of numbers.
Every extractor, wall and hub keeps one floor cell around it (the border apart), so nothing is ever closed off.
  1. Extractors in order. Each draws x, then y, in 1..size-2, until its own and its eight neighbouring inner cells are
     floor. If one needs more than PLACE_TRIES draws, all extractors are taken away and drawn again.
  2. size*size // CELLS_PER_WALL times: draw length-2 below 3, then across (1) or down (0) below 2, then x, then y
     of its first cell. If it leaves the inner cells, or it or a cell around it is not floor, there is no such wall.
  3. Agents, on rings around the hub, from the first outside it: the 8r cells of ring r, clockwise from north-west.
     With m agents left every (8r // m)-th cell (at least every one) is offered in turn; what is floor is taken.
     Agents left after the last ring begin again at the first, and are offered every cell.
STEP. Time goes on by one; every cooldown falls by one; then the agents act one after another, in their order.
  0 noop, 1 north (y-1), 2 south, 3 west, 4 east; any other number is a noop. Moving into
  floor      moves there;
  extractor  that is ready, with room left: gives YIELD units, or PAIR_YIELD if another agent stands directly beside the
             extractor (N, S, W or E of it), at most the room left; then it cools down for COOLDOWN steps;
  hub        with something carried: all goes to the stock, 0.1 reward a unit; while the stock holds one of each
             resource, one of each is spent for a heart: +1 reward to every agent of the environment.
  A move that does none of this changes nothing, and the agent is "blocked" in its next view.
END. After max_steps the episode is cut off (a truncation), and the next one begins in the same step.
VIEW. WINDOW x WINDOW cell codes around the agent, row by row from north-west, then FEATURES bytes, named below.
The hub's lamps: a resource is scarce if none is less in stock, plenty if there are PLENTY_OVER more of it than of the
scarcest. Agent a's trade is resource a % 4. Features that tell of every resource tell of the trade first, then of the
next in turn: byte r is of resource (a + r) % 4; a cell's code names the resource itself. A place is six bytes: 255 if
it is to the north, south, west, east; then 128 + dx and 128 + dy, cut off at 127, each cell worth 127 // (size - 1), at
least 1.
A note is of the nearest extractor the agent has had in its window in this episode: fewest steps as if there were no
walls, then the lower number. It is a byte 255 and the place; all zero if none was seen, or without notes.
"""

from __future__ import annotations

from typing import Final

MIN_SIZE: Final = 8
MAX_SIZE: Final = 200
BIG_HUB_SIZE: Final = 12
CELLS_PER_RESOURCE: Final = 450
CELLS_PER_WALL: Final = 60
CELLS_PER_AGENT: Final = 8
PLACE_TRIES: Final = 40

RESOURCES: Final = 4
CAPACITY: Final = 4
COOLDOWN: Final = 5
YIELD: Final = 1
PAIR_YIELD: Final = 2
UNIT_REWARD: Final = 0.1

NOOP: Final = 0
NORTH: Final = 1
SOUTH: Final = 2
WEST: Final = 3
EAST: Final = 4
ACTIONS: Final = 5
ACTION_NAMES: Final = ("noop", "north", "south", "west", "east")

FLOOR: Final = 0
WALL: Final = 1
HUB: Final = 2
EXTRACTOR: Final = 3  # + resource
COOLING: Final = 7  # + resource
AGENT: Final = 11
CODES: Final = 12

WINDOW: Final = 11
REACH: Final = WINDOW // 2
CELLS: Final = WINDOW * WINDOW

# Features: where each begins, counted from the first byte after the window.
INVENTORY: Final = 0  # 4: units carried, as a share of CAPACITY
FULL: Final = 4  # 1: no room left
STOCK: Final = 5  # 4: the hub's stock up to 15, times 17
SCARCE: Final = 9  # 4: the hub's lamps
PLENTY: Final = 13  # 4
HUB_PLACE: Final = 17  # 6: the nearest cell of the hub
POSITION: Final = 23  # 2: x and y, as shares of size - 1
LAST_ACTION: Final = 25  # 5: one of them 255; none at the beginning
BLOCKED: Final = 30  # 1
TIME_LEFT: Final = 31  # 1: share of max_steps
INDEX: Final = 32  # 1: the agent's number, times 4
TRADE: Final = 33  # 4: one of them 255: the agent's number % 4
NOTES: Final = 37  # 4 x 7
NOTE_BYTES: Final = 7
FEATURES: Final = NOTES + RESOURCES * NOTE_BYTES
OBS_BYTES: Final = CELLS + FEATURES

STOCK_SHOWN: Final = 15
PLENTY_OVER: Final = 4
ON: Final = 255


def per_resource(size: int) -> int:
    return max(2, size * size // CELLS_PER_RESOURCE)


def hub_radius(size: int) -> int:
    return 1 if size >= BIG_HUB_SIZE else 0


def most_agents(size: int) -> int:
    return size * size // CELLS_PER_AGENT
