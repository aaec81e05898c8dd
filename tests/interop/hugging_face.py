"""`datasets` and what is built on it, in this process and without a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def stay_offline(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """No hub is asked for anything, and what is cached is in this folder."""
    for name, value in {**OFFLINE, "HF_HOME": str(folder / "hf")}.items():
        monkeypatch.setenv(name, value)


def loaded(path: Path) -> Any:
    """The rows of a file of JSON lines or of a Parquet file."""
    import datasets

    kind = "parquet" if path.suffix == ".parquet" else "json"
    return datasets.load_dataset(
        kind, data_files=str(path), split="train", cache_dir=str(path.parent / "cache"), keep_in_memory=True
    )
