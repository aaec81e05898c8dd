"""Read a profile with a word to who waits, and write its page with care for what is there already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from velodrome.cli.streams import reassured, say
from velodrome.errors import InputError, StorageError, needs_extra
from velodrome.records.rollout import beside

Json = dict[str, Any]


def page_path(name: str, rollouts: Path) -> Path:
    """Where the page goes. What is there already and is no page of ours is left alone."""
    with needs_extra("--html", "viewer"):
        from velodrome.viewer.pages.profile_page import MARK

    path = Path(name).expanduser() if name else beside(rollouts, "profile.html")
    if not path.parent.is_dir():
        raise InputError(f"{path}: no such folder {path.parent}")
    if path.exists():
        if not path.is_file():
            raise InputError(f"{path}: not a regular file; give --html a file")
        with path.open("rb") as stream:
            ours = MARK.encode() in stream.read(200)
        if not ours:
            raise InputError(f"{path}: not a page of velo profile, so it is left alone; give --html another name")
    return path


def patient_profile(files: Sequence[Path]) -> Json:
    """The profile of files; if it takes long, a line says so."""
    from velodrome.profiling.profile import read_profile

    with reassured(f"reading {', '.join(str(path) for path in files)}"):
        return read_profile(*files)


def write_page(profile: Json, path: Path, title: str) -> None:
    """The profile as a page, whole or not at all."""
    from velodrome.records.outfile import write_whole
    from velodrome.viewer.pages.profile_page import profile_page

    try:
        write_whole(path, profile_page(profile, title=title).encode())
    except StorageError as error:
        raise InputError(str(error)) from error
    say(f"page: {path}")
