"""`velo config`: what the files, env.yaml and the command line add up to, with secrets masked."""

from __future__ import annotations

from collections.abc import Sequence

from velodrome.cli.plain import read_plain
from velodrome.cli.verb import Verb
from velodrome.settings import load

VERB = Verb(
    usage="velo config [CONFIG …] [+key=value …]",
    about="""\
Print the resolved configuration as YAML: files of config_paths, then env.yaml, then the command line. Secrets are
shown as ***. Every mistake is listed, each with its file and key. CONFIG is a name (calculator) or a .yaml file.""",
    more="""examples:
  velo config calculator my_model.yaml
  velo config +config_paths=[my.yaml] +policy_model_name=gpt-x""",
)


def run(argv: Sequence[str]) -> int:
    """Load and print."""
    config = load(read_plain(argv).words)
    import yaml

    print(yaml.safe_dump(config.masked(), sort_keys=False, allow_unicode=True), end="")
    return 0
