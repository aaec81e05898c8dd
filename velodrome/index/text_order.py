"""Texts as numbers that sort as they do, so that a list can be sorted by a text as by a number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from velodrome.errors import InputError
from velodrome.index.columns import Column, Columns

_MOST_VALUES = 50_000  # sorting more of them would take longer than a page should


def text_ranks(columns: Columns, name: str, *, most: int = _MOST_VALUES) -> Column:
    """The place of each entry's text in the order of all; NaN where it has none."""
    outside = columns.outside_texts(name)
    if outside is not None:
        ranks = np.full(len(columns), np.nan)
        for place, text in reversed(list(enumerate(sorted(outside)))):  # of several the first counts
            ranks[columns.positions(outside[text])] = place
        return ranks
    if name in ("task", "key"):
        ids = [id for (id,) in columns.connection.execute("SELECT id FROM task ORDER BY name")]
        ranks = _places(ids)[columns["task"]]
        repeats = np.nan_to_num(columns["repeat"])
        return ranks if name == "task" else ranks + repeats / (repeats.max(initial=0) + 1)
    if name in ("error", "boundary"):
        column = "message" if name == "error" else "boundary"
        failures = columns.connection.execute(f"SELECT number FROM failure ORDER BY {column}, number")
        numbers = [number for (number,) in failures]
        ranks = np.full(len(columns), np.nan)
        ranks[columns.positions(numbers)] = np.arange(len(numbers))
        return ranks
    if name == "state":
        return columns["state"].astype(float)
    coded = columns.coded(name, most)
    if coded is None:
        raise InputError(f'sort: "{name:.60}" has more than {most:,} different values; sort by another field')
    values, codes = coded
    texts = [", ".join(each) for each in values]
    order = sorted(range(len(texts)), key=texts.__getitem__)
    own = np.append(np.where([text == "" for text in texts], np.nan, _places(order)[: len(texts)]), np.nan)
    return own[codes]


def _places(order: Sequence[int]) -> Column:
    """Where each of some small whole numbers is in an order."""
    places = np.full(max(order, default=0) + 1, np.nan)
    places[np.array(order, np.int64)] = np.arange(len(order))
    return places
