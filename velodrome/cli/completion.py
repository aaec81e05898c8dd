"""`velo completion`: a script that completes verbs, options, settings, names of configs and files in a shell.

The script is made from the models of settings and holds every word, so completing starts no Python.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, get_args, get_origin

from velodrome.cli.main import MODULES, VERBS
from velodrome.cli.nemo_gym import COMMANDS
from velodrome.cli.plain import config_names, option_names
from velodrome.cli.tables import print_lines
from velodrome.cli.verb import Verb, argument, flag_words, plain_kind, read_flags
from velodrome.errors import InputError
from velodrome.settings.model import Settings, field_names, ordered_fields, setting_rows
from velodrome.settings.names import RESOURCES

SHELLS = ("bash", "zsh", "fish")
PARTS = {
    "data": ("prepare", "validate", "generate", "difficulty", "collate"),
    "model": ("pull", "list", "serve"),
    "env": ("add",),
    "completion": SHELLS,
}
WITH_CONFIGS = ("collect", "verify", "run", "config", "test", "data", "model")
WITH_ENVIRONMENTS = ("envs", "test", "data")
_WORD = re.compile(r"\w[\w.+-]*")


class CompletionFlags(Settings):
    """The arguments of `velo completion`."""

    shell: str | None = argument(None, title="SHELL", description="bash, zsh or fish")


VERB = Verb(
    usage="velo completion bash|zsh|fish",
    about="""\
Print a script that completes verbs, options, +settings and their values, names of configs, and files. It holds every
word; a newer Velodrome needs it written again.""",
    settings={"arguments": CompletionFlags},
    more="""to install, for the next shell:
  mkdir -p ~/.local/share/bash-completion/completions
  velo completion bash > ~/.local/share/bash-completion/completions/velo
  velo completion zsh > "${fpath[1]}/_velo"
  mkdir -p ~/.config/fish/completions
  velo completion fish > ~/.config/fish/completions/velo.fish

examples:
  velo completion bash
  eval "$(velo completion bash)"      in this shell only""",
)


@dataclass(frozen=True)
class Completions:
    """What can be typed after one verb: words with what they mean, values of some of them, and names."""

    verb: str
    words: dict[str, str]
    values: dict[str, tuple[str, ...]]
    names: tuple[str, ...]


def run(argv: Sequence[str]) -> int:
    """Print the script of a shell."""
    shell = read_flags(CompletionFlags, argv, "velo completion").shell
    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    if shell not in scripts:
        raise InputError(
            f"velo completion bash, zsh or fish, not {shell or 'nothing'!r:.40} (see velo completion --help)"
        )
    print_lines(scripts[shell]([completions(verb) for verb in VERBS]))
    return 0


def completions(verb: str) -> Completions:
    """The words of a verb, from its models."""
    module = import_module(f"velodrome.cli.{MODULES.get(verb, verb)}")
    declared: Verb | None = getattr(module, "VERB", None)
    words: dict[str, str] = {"--help": "what it does, its settings and examples"}
    values: dict[str, tuple[str, ...]] = {}
    for model in declared.settings.values() if declared else ():
        rows = {name: text for name, text, _ in setting_rows(model)}
        if declared is not None and declared.has_plus(model):
            words |= {f"+{name}=": text for name, text in rows.items()}
            words |= {option: rows[name] for option, (name, _) in option_names(model).items()}
            words |= {"--json": "print JSON, on a terminal too"} if verb in ("collect", "verify") else {}
        else:
            words |= dict(flag_words(model))
        values |= dict(_values(model))
    if verb in ("collect", "verify", "run", "config", "test"):
        words["+config_paths="] = "configs, as a list: [a.yaml,b.yaml]"
    return Completions(verb, words | _train_words(verb), values, tuple(sorted(_names(verb))))


def _values(model: type[Settings]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The values of settings that have a few, under each name of the setting."""
    for name, each in ordered_fields(model).items():
        kind = plain_kind(each.annotation)
        choices = tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()
        choices = choices or (("true", "false") if kind is bool else ())
        for typed in {name, *field_names(name, each)} if choices else ():
            yield f"+{typed}", choices
            if kind is not bool:
                yield f"--{typed.replace('_', '-')}", choices


def _names(verb: str) -> Iterator[str]:
    # bash and fish expand the words they complete: a file's name must not be a command.
    configs = {name: paths for name, paths in config_names(Path.cwd()).items() if _WORD.fullmatch(name)}
    yield from PARTS.get(verb, ())
    if verb in WITH_CONFIGS:
        yield from configs
    elif verb in WITH_ENVIRONMENTS:
        yield from (name for name, paths in configs.items() if any(path.startswith(RESOURCES) for path in paths))
    if verb == "export":
        from velodrome.exchange.export.formats import FORMATS

        yield from FORMATS
    if verb == "import":
        from velodrome.exchange.imports.importing import FOREIGN_FORMATS

        yield from FOREIGN_FORMATS
    if verb == "train":
        from velodrome.training.recipes import listed

        yield from (name for name, _ in listed())


def _train_words(verb: str) -> dict[str, str]:
    if verb != "train":
        return {}
    from velodrome.training.settings import RunSettings

    flags = {"--list": "list the recipes", "--sweep": "try the values of settings that a YAML file names"}
    flags |= {"--dry-run": "show the plan, train nothing", "--json": "print JSON"}
    return flags | {f"{name}=": "" for name in _dotted(RunSettings)}


def _dotted(model: type, prefix: str = "") -> Iterator[str]:
    """Every setting of a model of models, with dots."""
    for name, each in model.model_fields.items():  # type: ignore[attr-defined]
        kind = plain_kind(each.annotation)
        if hasattr(kind, "model_fields"):
            yield from _dotted(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _listed(words: Iterable[str]) -> str:
    return "\n".join(words)


def bash_script(all_verbs: Sequence[Completions]) -> str:
    """For bash, which breaks words at "=": the value of a setting is a word of its own."""
    cases, values = [], []
    for each in all_verbs:
        words, names = shlex.quote(_listed(each.words)), shlex.quote(_listed(each.names))
        cases.append(f"    {each.verb}) words={words} names={names} ;;")
        values += [
            f"    {each.verb}:{name}) words={shlex.quote(_listed(some))} ;;" for name, some in each.values.items()
        ]
    same = {name: command.opens for name, command in COMMANDS.items() if command.takes is None and name != "ng_help"}
    others = [f"    {name}) verb={verb} first=1 ;;" for name, verb in same.items()]
    return _BASH.format(
        verbs=shlex.quote(_listed([*VERBS, "--help", "--version"])),
        cases="\n".join(cases),
        values="\n".join(values),
        others="\n".join(others),
        commands=" ".join(["velo", *same]),
    )


_BASH = """\
# Completion of velo for bash, written by: velo completion bash
_velo() {{
  local IFS=$'\\n' cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
  local verb="${{COMP_WORDS[1]}}" first=2 words="" names="" setting=""
  COMPREPLY=()
  case "${{COMP_WORDS[0]##*/}}" in
{others}
  esac
  if (( COMP_CWORD < first )); then
    COMPREPLY=($(compgen -W {verbs} -- "$cur"))
    return
  fi
  if [[ $cur == = ]]; then
    setting=$prev cur=""
  elif [[ $prev == = ]]; then
    setting="${{COMP_WORDS[COMP_CWORD-2]}}"
  elif [[ $prev == --* ]]; then
    setting=$prev
  fi
  if [[ -n $setting ]]; then
    case "$verb:$setting" in
{values}
    esac
    if [[ -n $words ]]; then
      COMPREPLY=($(compgen -W "$words" -- "$cur"))
      return
    fi
  fi
  case "$verb" in
{cases}
  esac
  if [[ $cur == [+-]* || ( $verb == train && $cur == *.* ) ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    [[ ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace 2>/dev/null
    return
  fi
  [[ -n $setting && $prev != --* ]] && names=""
  COMPREPLY=($(compgen -W "$names" -- "$cur") $(compgen -f -- "$cur"))
  compopt -o filenames 2>/dev/null
}}
complete -F _velo {commands}"""


def zsh_script(all_verbs: Sequence[Completions]) -> str:
    """For zsh: a function that is loaded by its name, or evaluated."""
    verbs = " ".join(shlex.quote(f"{name}:{text}") for name, text in VERBS.items())
    cases = []
    for each in all_verbs:
        arrays = (
            ("settings", [word for word in each.words if word.endswith("=")]),
            ("flags", [word for word in each.words if not word.endswith("=")]),
            ("names", each.names),
        )
        texts = " ".join(f"{name}=({shlex.join(some)})" for name, some in arrays)
        cases.append(f"    {each.verb}) {texts} ;;")
    values = [
        f"    {each.verb}:{name}) values=({shlex.join(some)}) ;;"
        for each in all_verbs
        for name, some in each.values.items()
    ]
    return _ZSH.format(verbs=verbs, cases="\n".join(cases), values="\n".join(values))


_ZSH = """\
#compdef velo
# Completion of velo for zsh, written by: velo completion zsh
_velo() {{
  local -a verbs settings flags names values
  if (( CURRENT == 2 )); then
    verbs=({verbs})
    _describe 'verb' verbs
    return
  fi
  local setting=$words[CURRENT-1]
  [[ $PREFIX == *=* ]] && setting=${{PREFIX%%=*}}
  case "$words[2]:$setting" in
{values}
  esac
  [[ $PREFIX == *=* ]] && compset -P '*='
  if (( $#values )); then
    compadd -- $values
    return
  fi
  case "$words[2]" in
{cases}
  esac
  if [[ $PREFIX == [+-]* ]]; then
    compadd -S '' -- $settings
    compadd -- $flags
    return
  fi
  [[ $words[2] == train ]] && compadd -S '' -- $settings
  compadd -- $names
  _files
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _velo "$@"
else
  compdef _velo velo
fi"""


def fish_script(all_verbs: Sequence[Completions]) -> str:
    """For fish: one line per word."""
    lines = ["# Completion of velo for fish, written by: velo completion fish", "complete -c velo -e"]
    lines += [
        f"complete -c velo -f -n __fish_use_subcommand -a {name} -d {_fish(text)}" for name, text in VERBS.items()
    ]
    for each in all_verbs:
        begin = f"complete -c velo -n '__fish_seen_subcommand_from {each.verb}'"
        if each.names:
            lines.append(f"{begin} -a {_fish(' '.join(each.names))}")
        for word, text in each.words.items():
            about = f" -d {_fish(text)}" if text else ""
            if word.startswith("--"):
                choices = each.values.get(word)
                takes = f" -x -a {_fish(' '.join(choices))}" if choices else ""
                lines.append(f"{begin} -l {word.removeprefix('--')}{takes}{about}")
            elif word.startswith("-"):
                lines.append(f"{begin} -s {word.removeprefix('-')}{about}")
            else:
                full = [f"{word}{value}" for value in each.values.get(word.removesuffix("="), ())] or [word]
                lines.append(f"{begin} -a {_fish(' '.join(full))}{about}")
    return "\n".join(lines)


def _fish(text: str) -> str:
    """A text in fish's single quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
