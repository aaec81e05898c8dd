"""Random spaces: what a policy reads is what a slow, plain flattening gives, and actions are inside their space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import Env, spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.errors import InputError
from velodrome.training.envs.spaces import ActionWriter, MaskReader, ObservationReader

INF = np.inf
SIZES = st.integers(1, 4)
SEEDS = st.integers(0, 2**31)


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    shape = tuple(draw(st.lists(SIZES, max_size=4)))
    bounds = [(0, 255, np.uint8), (0, 1, np.float32), (-3, 5, np.float64), (-2, 7, np.int32), (-INF, INF, np.float32)]
    low, high, kind = draw(st.sampled_from(bounds))
    return spaces.Box(low, high, shape, kind)


CHOICES = st.one_of(
    st.builds(spaces.Discrete, SIZES, start=st.integers(-3, 3)),
    st.lists(SIZES, min_size=1, max_size=3).map(
        lambda n: spaces.MultiDiscrete(n, start=[k - 1 for k in range(len(n))])
    ),
    st.tuples(SIZES, SIZES).map(lambda shape: spaces.MultiDiscrete(np.full(shape, 3))),
    st.one_of(SIZES, st.tuples(SIZES, SIZES)).map(spaces.MultiBinary),
)
LEAVES = st.one_of(boxes(), CHOICES)
SPACES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=6,
)


def plain(space: Any, value: Any) -> tuple[list[Any], ...]:
    """Pixels of each image, other numbers, shapes of the images: one number after another."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        keys = list(space.spaces) if isinstance(space, spaces.Dict) else range(len(space.spaces))
        parts = [plain(space[key], value[key]) for key in keys]
        return tuple([each for part in parts for each in part[kind]] for kind in range(3))
    if isinstance(space, spaces.Discrete):
        return [], [float(value == space.start + k) for k in range(space.n)], []
    if isinstance(space, spaces.MultiDiscrete):
        rows = zip(np.ravel(value).tolist(), space.nvec.ravel().tolist(), space.start.ravel().tolist(), strict=True)
        return [], [float(one == start + k) for one, size, start in rows for k in range(size)], []
    rank, box = len(space.shape), isinstance(space, spaces.Box)
    unit = box and space.dtype.kind == "f" and (space.low == 0).all() and (space.high == 1).all()
    if box and ((space.dtype == np.uint8 and rank in (2, 3)) or (unit and rank == 3)):
        image = value[:, :, None] if rank == 2 else value
        last = rank == 2 or image.shape[0] >= image.shape[2]
        h, w, c = image.shape if last else (image.shape[1], image.shape[2], image.shape[0])
        at = (lambda z, y, x: image[y, x, z]) if last else (lambda z, y, x: image[z, y, x])
        pixels = [np.float32(at(z, y, x)) for z in range(c) for y in range(h) for x in range(w)]
        return [[float(p * np.float32(255)) for p in pixels] if unit else [float(p) for p in pixels]], [], [(c, h, w)]
    return [], [float(np.float32(one)) for one in np.ravel(value)], []


@settings(max_examples=100, deadline=None)
@given(SPACES, SEEDS)
def test_a_row_is_the_images_and_then_every_other_number(space: spaces.Space[Any], seed: int) -> None:
    space.seed(seed)
    value = space.sample()
    pixels, numbers, shapes = plain(space, value)
    reader = ObservationReader("here", space)
    row = np.full(reader.shape, 7, reader.dtype)

    reader.write(value, row)

    expected = [each for image in pixels for each in image] + numbers
    alone = len(shapes) == 1 and not numbers
    assert (reader.layout, reader.images) == (
        ("planes", ()) if alone else ("mixed", tuple(shapes)) if shapes else ("vector", ())
    )
    assert reader.shape == (shapes[0] if alone else (len(expected),))
    assert reader.dtype == ("uint8" if alone and row.dtype == np.uint8 else "float32")
    unit = alone and reader.dtype == "float32"  # an image of floats stays from 0 to 1
    np.testing.assert_array_equal(
        row.ravel() * np.float32(255) if unit else row.ravel(), np.array(expected, np.float32)
    )


@settings(max_examples=100, deadline=None)
@given(st.one_of(boxes(), CHOICES), SEEDS)
def test_an_action_arrives_with_the_type_the_shape_and_the_bounds_of_its_space(
    space: spaces.Space[Any], seed: int
) -> None:
    writer, random = ActionWriter("here", space, masked=False), np.random.default_rng(seed)
    acts = writer.actions
    if acts.continuous:
        low, high = (np.array(bound, np.float32) for bound in (acts.low, acts.high))
        ours = np.clip(random.normal(0, 4, acts.shape).astype(np.float32), low, high)
        assert acts.shape == (acts.width,) == (int(np.prod(space.shape)),)
    else:
        ours = np.array([random.integers(size) for size in acts.sizes], np.int64).reshape(acts.shape)

    action = writer.write(ours[()] if acts.shape == () else ours)

    assert space.contains(action)
    if isinstance(space, spaces.Discrete):
        assert type(action) is int
        assert action == ours + space.start
    elif isinstance(space, spaces.Box):
        assert (action.dtype, action.shape) == (space.dtype, space.shape)
        nearest = ours.reshape(space.shape) if space.dtype.kind == "f" else np.rint(ours).reshape(space.shape)
        np.testing.assert_array_equal(action, nearest.astype(space.dtype))
    else:
        assert (action.dtype, action.shape) == (space.dtype, space.shape)
        np.testing.assert_array_equal(action.ravel() - np.ravel(getattr(space, "start", 0)), ours)


@pytest.mark.parametrize(
    "mask",
    [[1, 0, 0, 1, 1], (np.array([1, 0]), np.array([0, 1, 1])), np.array([[True, False, False, True, True]])],
)
def test_a_mask_is_one_array_or_one_for_each_choice(mask: Any) -> None:
    actions = ActionWriter("here", spaces.MultiDiscrete([2, 3]), masked=True).actions
    row = np.zeros(actions.width, np.bool_)
    MaskReader("here", actions, "info", Env()).write(None, {"action_mask": mask}, row)
    assert row.tolist() == [True, False, False, True, True]


@pytest.mark.parametrize(("mask", "part"), [([1, 1, 0, 0, 0], "allows no action"), ([1, 1, 1], "3 entries for 5")])
def test_a_mask_that_cannot_be_is_refused_in_one_line(mask: Any, part: str) -> None:
    actions = ActionWriter("here", spaces.MultiDiscrete([2, 3]), masked=True).actions
    with pytest.raises(InputError, match=rf"^here: .*{part}"):
        MaskReader("here", actions, "info", Env()).write(None, {"action_mask": mask}, np.zeros(5, np.bool_))


UNREADABLE = [
    spaces.Text(3),
    spaces.Dict(a=spaces.Sequence(spaces.Discrete(2))),
    spaces.Dict(action_mask=spaces.MultiBinary(2)),
]
UNUSABLE = [spaces.Text(3), spaces.Tuple([spaces.Discrete(2)]), spaces.Box(0, 1, (0,)), spaces.MultiDiscrete([])]


def test_what_cannot_be_read_or_acted_on_is_refused_in_one_line() -> None:
    for space in UNREADABLE:
        with pytest.raises(InputError, match=r"^here: shows "):
            ObservationReader("here", space, "action_mask")
    for space in UNUSABLE:
        with pytest.raises(InputError, match=r"^here: acts by "):
            ActionWriter("here", space, masked=False)
