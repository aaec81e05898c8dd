"""`velo view` = `ng_viewer`: look at rollouts in a browser, in a terminal, or as files to hand on."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from velodrome.cli.collect import say
from velodrome.cli.parsing import Parser, count, place
from velodrome.errors import InputError
from velodrome.records.other_files import refuse_other_file

EXAMPLES = """examples:
  velo view rollouts.jsonl                       a web viewer on 127.0.0.1; it follows the file while it grows
  velo view rollouts.jsonl --open --port 8123
  velo view before.jsonl after.jsonl             two runs, and how they compare
  ng_viewer +jsonl_fpath=rollouts.jsonl
  velo view rollouts.jsonl --terminal --where "reward<1"
  velo view rollouts.jsonl --export copy --where "0 < pass_rate < 1" --limit 200

Other machines are let in with --host and a token: VELODROME_TOKEN in the environment. docs/viewer.md says more."""
_SETTINGS = {"jsonl_fpath": "file", "server_host": "--host", "server_port": "--port"}


def run(argv: Sequence[str]) -> int:
    """Find out which of the three it is, and do it."""
    given = _parser().parse_args(_translated(argv))
    files = [Path(word).expanduser() for word in given.files]
    if not files:
        raise InputError("no rollouts: give a file, as in velo view rollouts.jsonl (see velo view --help)")
    for file in files:
        if file.is_file():
            refuse_other_file(file)
    if given.terminal and given.export is not None:
        raise InputError("--terminal and --export: give one of them")
    if given.export is not None:
        return _export(files, given.export, given.where, given.limit)
    if given.terminal and given.limit is not None:
        raise InputError("--limit goes with --export; in the terminal the list is browsed page by page")
    if given.terminal:
        return _terminal(files, given.where)
    if given.where or given.limit is not None:
        raise InputError("--where and --limit go with --export or --terminal; in the browser the filter is on the page")
    from velodrome.serving.process.listen import server_token
    from velodrome.viewer.serve import serve

    serve(files, host=given.host, port=given.port, token=server_token({}), tell=say, look=given.open)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="velo view",
        usage="velo view ROLLOUTS [ROLLOUTS …] [--port N] [--host HOST] [--open]      (also: ng_viewer)\n"
        "       velo view ROLLOUTS --terminal [--where FILTER]\n"
        "       velo view ROLLOUTS --export DIR [--where FILTER] [--limit N]",
        description="Look at rollouts: in a browser, in this terminal, or as files that need no server.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="*", metavar="ROLLOUTS", help="rollouts files (.jsonl or .jsonl.zst)")
    parser.add_argument("--port", type=_port, default=0, metavar="N", help="where to listen [any free port]")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on [127.0.0.1]")
    parser.add_argument("--open", action="store_true", help="open a browser")
    parser.add_argument("--terminal", action="store_true", help="browse here instead")
    parser.add_argument("--export", type=place, metavar="DIR", help="write a static copy into this folder")
    parser.add_argument("--where", default="", metavar="FILTER", help='which rollouts, as in "reward<1 tools>3"')
    parser.add_argument("--limit", type=count, metavar="N", help="at most so many rollouts in a copy [1000]")
    return parser


def _translated(argv: Sequence[str]) -> list[str]:
    """The settings of `ng_viewer` under the names they have here."""
    found = []
    for word in argv:
        name, equals, value = word.lstrip("+").partition("=")
        if not word.startswith("+"):
            found.append(word)
        elif name not in _SETTINGS or not equals:
            raise InputError(f"{word}: no such setting; there are +{', +'.join(_SETTINGS)} (see velo view --help)")
        else:
            option = _SETTINGS[name]
            found += [option, value] if option.startswith("--") else [value]
    return found


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port from 0 to 65535, not {text!r:.40}")
    return int(text)


def _export(files: list[Path], folder: Path, where: str, limit: int | None) -> int:
    from velodrome.viewer.static_copy import DEFAULT_LIMIT, write_copy
    from velodrome.viewer.viewed_file import opened

    if len(files) > 1:
        raise InputError("--export copies one file; give one")
    with opened(files[0]) as source:
        done = write_copy(source, folder, where=where, limit=limit or DEFAULT_LIMIT)
    more = "; more of them match: --limit takes more" if done.more else ""
    rollouts = f"{done.rollouts:,} rollout{'' if done.rollouts == 1 else 's'}"
    say(f"{folder / 'index.html'}: {rollouts} on {done.pages:,} pages{more}")
    return 0


def _terminal(files: list[Path], where: str) -> int:
    from velodrome.viewer.terminal import Terminal
    from velodrome.viewer.viewed_file import opened

    if len(files) > 1:
        raise InputError("--terminal browses one file; give one")
    size = shutil.get_terminal_size((100, 30))
    with opened(files[0]) as source:
        source.read_on()
        source.follow()
        Terminal(source, _asked, print, width=size.columns, height=size.lines, where=where).run()
    return 0


def _asked(prompt: str) -> str | None:
    if sys.stdin.isatty():
        try:
            return input(prompt)
        except EOFError:
            print()
            return None
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None
