"""Indexes of made files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.index_rows import Json, write
from velodrome.index import Index


@pytest.fixture
def opened() -> Callable[..., Index]:
    """Opens the index of a file."""
    return Index


@pytest.fixture
def index_of(tmp_path: Path, opened: Callable[..., Index]) -> Callable[..., Index]:
    """The index, up to date, of a file with these rows and, beside it, these failures."""

    def make(rows: list[Json | bytes], failures: list[Json] | None = None, **options: Any) -> Index:
        if failures:
            write(tmp_path / "r.failures.jsonl", failures)
        index = opened(write(tmp_path / "r.jsonl", rows), **options)
        index.refresh()
        return index

    return make
