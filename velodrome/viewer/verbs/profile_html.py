"""`velo profile --html`: write the page of a profile. A file that is not such a page is not overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from velodrome.cli.streams import say
from velodrome.errors import InputError, StorageError
from velodrome.records.outfile import write_whole
from velodrome.records.rollout import beside
from velodrome.viewer.pages.profile_page import MARK, profile_page

Json = dict[str, Any]


def page_path(name: str, rollouts: Path) -> Path:
    """The path of the page. Any other existing file there is an error."""
    path = Path(name).expanduser() if name else beside(rollouts, "profile.html")
    if not path.parent.is_dir():
        raise InputError(f"{path}: no such folder {path.parent}")
    if path.exists():
        if not path.is_file():
            raise InputError(f"{path}: not a regular file; give --html a file")
        with path.open("rb") as stream:
            is_profile_page = MARK.encode() in stream.read(200)
        if not is_profile_page:
            raise InputError(f"{path}: not a page of velo profile, so it is left alone; give --html another name")
    return path


def write_page(profile: Json, path: Path, title: str) -> None:
    """Write the page of a profile, whole or not at all."""
    try:
        write_whole(path, profile_page(profile, title=title).encode())
    except StorageError as error:
        raise InputError(str(error)) from error
    say(f"page: {path}")
