"""Every command on a page uses verbs and settings that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.pages import CODE, PAGES, PROGRAMS, blocks, command_lines, name_of, prose
from velodrome.cli.main import VERBS
from velodrome.cli.nemo_gym import COMMANDS
from velodrome.cli.plain import option_names as plain_options
from velodrome.exchange.data.generating import generator_of, option_names
from velodrome.settings.model import setting_names
from velodrome.settings.names import KINDS
from velodrome.settings.overrides import parse

ALIASES = {name: words[0] for name, words in COMMANDS.items()}


def commands(text: str) -> Iterator[list[str]]:
    """Every use of ours in a page, as words: in shell blocks, after `$ ` in others, and in running text."""
    typed = [line for body in blocks(text, "bash", "sh") for line in command_lines(body)]
    for body in blocks(text, "text", ""):
        joined = body.replace("\\\n", " ").splitlines()
        typed += [line.strip()[2:] for line in joined if line.strip().startswith("$ ")]
    typed += [code for code in CODE.findall(prose(text)) if code.startswith(("velo ", "ng_"))]
    for line in typed:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            words = line.split()
        if words and (words[0] == "velo" or words[0].startswith("ng_")):
            yield words


GENERATORS = ("calculator", "reasoning_gym")  # their options are those of velo data generate


def known_settings(verb: str) -> set[str] | None:
    """The settings a verb takes; None if it takes any."""
    if verb == "config":
        return None
    other = {"view": {"jsonl_fpath", "server_host", "server_port"}}
    return {*other.get(verb, known_of(verb)), "config_paths"}


def known_of(verb: str) -> set[str]:
    declared = getattr(import_module(f"velodrome.{VERBS[verb].module}"), "VERB", None)
    models = [model for model in declared.settings.values() if declared.has_plus(model)] if declared is not None else []
    names = {name for model in models for name in setting_names(model)}
    return names | {name for each in GENERATORS if verb == "data" for name in option_names(generator_of(each, Path()))}


def known_flags(verb: str) -> set[str]:
    """The flags of a verb: those that its help names, and the short names of its settings."""
    module = import_module(f"velodrome.{VERBS[verb].module}")
    declared = getattr(module, "VERB", None)
    text = declared.help() if declared is not None else module.HELP
    models = [model for model in declared.settings.values() if declared.has_plus(model)] if declared is not None else []
    short = {name for model in models for name in plain_options(model)}
    return short | {"--help", "-v"} | set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", text))


def mistakes(words: list[str]) -> list[str]:
    """What is wrong with a command; a word with `…` or `<` in it stands for something else."""
    program, *rest = words
    if program not in PROGRAMS:
        return [f"no program {program}"]
    verb = ALIASES.get(program) or (rest.pop(0) if rest else "--help")
    if verb.startswith(("-", "<", "…")):
        return []
    if verb not in VERBS:
        return [f"no verb {verb}"]
    known = known_settings(verb)
    problems: list[str] = []
    args = [word for word in rest if word[:1] in "+~" and "…" not in word and "<" not in word]
    changes, _ = parse(args, problems)
    for change in changes:
        inside_block = len(change.path) > 1 and change.path[1] in KINDS
        if known is not None and change.path[0] not in known and not inside_block:
            problems.append(f"velo {verb} has no setting {change.path[0]}")
    flags = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word) and "…" not in word]
    if program == "velo":
        known_here = known_flags(verb) | (known_flags("collect") if verb in ("profile", "data") else set())
        problems += [f"velo {verb} has no flag {flag}" for flag in flags if flag not in known_here]
    return problems


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_uses_verbs_and_settings_that_exist(page: Path):
    wrong = [(words, mistakes(words)) for words in commands(page.read_text())]
    assert [(words, problems) for words, problems in wrong if problems] == []
