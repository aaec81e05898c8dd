"""`velo envs`: the environments there are, in this folder and in the package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from velodrome.cli.verb import Verb, read_flags
from velodrome.settings.model import Settings

_SHOWN = ("*.y*ml", "configs/*.y*ml", "data/example.jsonl")

VERB = Verb(
    usage="velo envs",
    about="List the environments in this folder and in the package.",
    more="""\
An environment of your own is a folder resources_servers/<name>/ with an app.py and a config (docs/environments.md).

examples:
  velo envs""",
)


def run(argv: Sequence[str]) -> int:
    """Print a table: name, what it is, its configs, its example tasks."""
    read_flags(Settings, argv, "velo envs")
    package = Path(__file__).parent.parent
    for root in dict.fromkeys((Path.cwd(), package)):
        for folder in environments(root):
            print(f"{folder.name}\n  {summary(folder)}")
            for path in sorted(path for pattern in _SHOWN for path in folder.glob(pattern)):
                print(f"  {path.relative_to(root)}")
    return 0


def environments(root: Path) -> Iterator[Path]:
    """Every folder below `resources_servers` that has an app."""
    for app in sorted((root / "resources_servers").glob("*/app.py")):
        yield app.parent


def summary(folder: Path) -> str:
    """The first sentence of the folder's README."""
    readme = folder / "README.md"
    if not readme.is_file():
        return "(no README.md)"
    words = [line.strip() for line in readme.read_text().split("\n\n") if line.strip() and not line.startswith("#")]
    return " ".join(words[0].split()) if words else "(README.md is empty)"
