"""A policy's episode in a rollout: the actions, the rewards, and the pictures of the world.

A row may hold anything under `episode`. The values from this module are checked and bounded; colours are `#rrggbb`.
A letter without a colour is not drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeGuard

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from velodrome.viewer.content.attached import checked_image

Json = dict[str, Any]
Frame = tuple[int, str] | tuple[list[int], str]  # a width and all cells; or the changed cells and their new letters

MOST_COLOURS = 88
MOST_AGENTS = 1_000
MOST_CELLS = 65_536  # of a picture
MOST_STEPS = 10_000
MOST_ENTRIES = 400_000  # of a column, steps times agents
MOST_LETTERS = 4_000_000  # of all pictures as sent, roughly
MOST_IMAGES = 1_000
_CHANGE_LETTERS = 6  # letters per changed cell, roughly
_LARGEST = 1e12  # of a reward
_COLUMNS = ("frames", "actions", "teacher_actions", "rewards")
_ENDS = {
    "truncated": "its time was over",
    "terminal": "it ended by the rules",
    "unfinished": "it was left before it ended",
}

Reward = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Action = Annotated[int, Field(gt=-(2**31), lt=2**31)] | Annotated[list[Reward], Field(max_length=64)]  # one or several
Letter = Annotated[str, Field(min_length=1, max_length=1)]
Colour = Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")]


class _FrameChange(BaseModel):
    model_config = ConfigDict(strict=True)
    at: list[Annotated[int, Field(ge=0, lt=MOST_CELLS)]] = Field(max_length=MOST_CELLS)
    put: str


class _FilmShape(BaseModel):
    model_config = ConfigDict(strict=True)
    every: int = Field(ge=1, le=MOST_STEPS)
    images: list[str] = Field(min_length=1, max_length=MOST_IMAGES)


class _EpisodeShape(BaseModel):
    model_config = ConfigDict(strict=True)
    agents: int = Field(ge=1, le=MOST_AGENTS)
    action_names: list[str] = Field(default=[], max_length=1000)
    palette: dict[Letter, Colour] = Field(default={}, max_length=MOST_COLOURS)
    frames: list[list[str] | _FrameChange] | None = None
    pictures: _FilmShape | None = None
    actions: list[list[Action]] | None = None
    teacher_actions: list[list[Action]] | None = None
    rewards: list[list[Reward]] | None = None


@dataclass(frozen=True, slots=True)
class Pictures:
    """One frame per step.

    A mark is the letter that is written into its cell, if another letter has the same colour.
    """

    letters: list[str]
    colours: list[str]
    marks: list[str]
    frames: list[Frame]


@dataclass(frozen=True, slots=True)
class OwnPictures:
    """Images from the environment: the k-th image is of step k times `every`, counted from 0."""

    every: int
    images: list[str]


@dataclass(frozen=True, slots=True)
class Episode:
    """The first steps of an episode. It has `steps` in all; the columns have `shown` of them."""

    agents: int
    steps: int
    ended: str
    names: list[str]
    actions: list[list[Action]] | None
    taught: list[list[Action]] | None
    rewards: list[list[float]] | None
    pictures: Pictures | None
    shown: int
    own: OwnPictures | None = None


class _Flaw(ValueError):
    """Why this is not an episode."""


def read_episode(row: Json) -> Episode | str | None:
    """The episode of a rollout, or why it cannot be shown; None if the rollout has no episode."""
    value = row.get("episode")
    if not isinstance(value, dict) or not value.keys() & {"frames", "actions"}:
        return None
    try:
        return _episode(value)
    except ValidationError as error:
        return _described(error)
    except _Flaw as flaw:
        return str(flaw)


def _described(error: ValidationError) -> str:
    """The place and the message of the first error."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    name, *rest = first["loc"] or ("episode",)
    step = next((each for each in rest if isinstance(each, int)), None) if name in _COLUMNS else None
    place = name if step is None else f"{name}, step {step + 1:,}"
    return f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def how_it_ended(value: Json) -> str:
    """A phrase for the end of the episode; "" if it is unknown."""
    ended = value.get("ended")
    return _ENDS.get(ended, "") if isinstance(ended, str) else ""


def is_reward(value: Any) -> TypeGuard[float]:
    """Whether the value is a number that a page can show."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _episode(value: Json) -> Episode:
    lengths = {len(value[name]) for name in _COLUMNS if isinstance(value.get(name), list)}
    first = {name: value[name][:MOST_STEPS] if isinstance(value[name], list) else value[name] for name in value}
    shape = _EpisodeShape.model_validate(first)
    if len(lengths) != 1 or 0 in lengths:
        raise _Flaw("its columns have no steps, or not the same number of them")
    (steps,) = lengths
    agents, shown = shape.agents, min(steps, MOST_STEPS, max(1, MOST_ENTRIES // shape.agents))
    columns: dict[str, Sequence[Sequence[Action | Reward]] | None] = {
        "actions": shape.actions,
        "teacher_actions": shape.teacher_actions,
        "rewards": shape.rewards,
    }
    for name, column in columns.items():
        for step, row in enumerate(column or (), 1):
            if len(row) != agents:
                raise _Flaw(f"{name}, step {step:,}: not one number for each agent")
    pictures = _pictures(shape.palette, shape.frames[:shown]) if shape.frames else None
    if pictures is not None:
        shown = len(pictures.frames)
    return Episode(
        agents,
        steps,
        how_it_ended(value),
        shape.action_names,
        shape.actions and shape.actions[:shown],
        shape.teacher_actions and shape.teacher_actions[:shown],
        shape.rewards and shape.rewards[:shown],
        pictures,
        shown,
        _own_pictures(shape.pictures) if shape.pictures else None,
    )


def _own_pictures(film: _FilmShape) -> OwnPictures:
    """The images, each checked by its bytes, up to a total size."""
    images: list[str] = []
    for place, data in enumerate(film.images):
        image = checked_image(data)
        if image.src is None:
            raise _Flaw(f"pictures, image {place + 1:,}: {image.note}")
        images.append(image.src)
        if sum(map(len, images)) > MOST_LETTERS and len(images) > 1:
            images.pop()
            break
    return OwnPictures(film.every, images)


def _pictures(palette: dict[str, str], frames: list[list[str] | _FrameChange]) -> Pictures:
    """The first frames, up to a total size, and at least one."""
    if not isinstance(frames[0], list):
        raise _Flaw("frame 1: there is no picture before it")
    shown: list[Frame] = []
    size = letters = 0
    for step, frame in enumerate(frames, 1):
        if isinstance(frame, list):
            width = len(frame[0]) if frame else 0
            size = width * len(frame)
            if not size or size > MOST_CELLS or any(len(row) != width for row in frame):
                raise _Flaw(f"frame {step:,}: not rows of one length, or more than {MOST_CELLS:,} cells")
            shown.append((width, "".join(frame)))
            letters += size
        else:
            if len(frame.at) != len(frame.put) or any(cell >= size for cell in frame.at):
                raise _Flaw(f"frame {step:,}: not one letter for each changed cell of the picture before it")
            shown.append((frame.at, frame.put))
            letters += _CHANGE_LETTERS * len(frame.at)
        if letters > MOST_LETTERS and len(shown) > 1:
            shown.pop()
            break
    shared = Counter(colour.lower() for colour in palette.values())
    marks = [
        letter if letter.isascii() and letter.isalnum() and shared[colour.lower()] > 1 else ""
        for letter, colour in palette.items()
    ]
    return Pictures(list(palette), list(palette.values()), marks, shown)
