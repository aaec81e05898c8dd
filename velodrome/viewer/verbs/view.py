"""`velo view` = `ng_viewer`: look at rollouts in a browser, or as a static copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from velodrome.cli.streams import say
from velodrome.cli.verb import Verb, argument, read_flags
from velodrome.errors import InputError, needs_extra
from velodrome.index.judgements import LONGEST_NAME
from velodrome.settings.model import Settings
from velodrome.settings.values import Count, FilePath, Port, Text

_SETTINGS = {"jsonl_fpath": "file", "server_host": "--host", "server_port": "--port"}


class ViewFlags(Settings):
    """The flags of `velo view`."""

    files: tuple[FilePath, ...] = argument(
        (),
        title="ROLLOUTS",
        description="rollouts files (.jsonl, .jsonl.zst), folders with runs below them, training runs [this folder]",
    )
    port: Port = Field(0, description="the port to listen on; 0 is any free port")
    host: Text = Field("127.0.0.1", title="HOST", description="the address to listen on")
    open: bool = Field(False, description="open a browser")
    person: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)] | None = Field(
        None, alias="as", title="NAME", description="who judges rollouts here [the login name]"
    )
    edit: bool = Field(False, description="let people judge rollouts of a viewer with a --host beyond this machine")
    export: FilePath | None = Field(None, title="DIR", description="write a static copy into this folder")
    where: str = Field("", title="FILTER", description='which rollouts, as in "reward<1 tools>3"')
    limit: Count | None = Field(None, description="the most rollouts in a copy [1000]")


VERB = Verb(
    usage="velo view [ROLLOUTS | DIR …] [--port N] [--host HOST] [--open] [--as NAME] [--edit]      (also: ng_viewer)\n"
    "velo view ROLLOUTS --export DIR [--where FILTER] [--limit N]",
    about="Look at rollouts in a browser, or write them as files that need no server.",
    settings={"flags": ViewFlags},
    more="""Other machines can connect with --host and a token: VELODROME_TOKEN in the environment (docs/viewer.md).

examples:
  velo view rollouts.jsonl                       a web viewer on 127.0.0.1; it follows the file while it grows
  velo view rollouts.jsonl --open --port 8123
  velo view before.jsonl after.jsonl             two runs, and how they compare
  velo view results                              every run below the folder, training runs too; pick and compare
  velo view train_dir/first_1a2b3c4d             a training run: its curves, live, and its episodes
  ng_viewer +jsonl_fpath=rollouts.jsonl
  velo view rollouts.jsonl --export copy --where "0 < pass_rate < 1" --limit 200

In a terminal, velo show prints rollouts: velo show rollouts.jsonl --where "reward<1".""",
)


def run(argv: Sequence[str]) -> int:
    """Serve or export."""
    flags = read_flags(ViewFlags, _translated(argv), "velo view")
    files = list(flags.files)
    if flags.export is not None:
        return _export(files, flags.export, flags.where, flags.limit)
    if flags.where or flags.limit is not None:
        raise InputError("--where and --limit go with --export; in the browser the filter is on the page")
    from velodrome.serving.process.listen import server_token

    with needs_extra("velo view", "viewer"):
        from velodrome.viewer.serve import serve

    serve(
        files or [Path()],
        host=flags.host,
        port=flags.port,
        token=server_token({}),
        say=say,
        look=flags.open,
        edit=flags.edit,
        person=flags.person or "",
    )
    return 0


def _translated(argv: Sequence[str]) -> list[str]:
    """The settings of `ng_viewer` as flags of `velo view`."""
    words = []
    for word in argv:
        name, equals, value = word.lstrip("+").partition("=")
        if not word.startswith("+"):
            words.append(word)
        elif name not in _SETTINGS or not equals:
            raise InputError(f"{word}: no such setting; there are +{', +'.join(_SETTINGS)} (see velo view --help)")
        else:
            option = _SETTINGS[name]
            words += [option, value] if option.startswith("--") else [value]
    return words


def _export(files: list[Path], folder: Path, where: str, limit: int | None) -> int:
    with needs_extra("velo view", "viewer"):
        from velodrome.viewer.static_copy import DEFAULT_LIMIT, write_copy
        from velodrome.viewer.viewed_file import opened

    if len(files) != 1:
        raise InputError("--export copies one file: give one, as in velo view rollouts.jsonl --export copy")
    with opened(files[0]) as source:
        copy = write_copy(source, folder, where=where, limit=limit or DEFAULT_LIMIT)
    more = "; more of them match: --limit takes more" if copy.more else ""
    rollouts = f"{copy.rollouts:,} rollout{'' if copy.rollouts == 1 else 's'}"
    say(f"{folder / 'index.html'}: {rollouts} on {copy.pages:,} pages{more}")
    return 0
