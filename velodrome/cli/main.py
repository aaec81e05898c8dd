"""`velo <verb>` and the `ng_*` names: run the verb, and turn its result or error into an exit code.

A mistake in the input is one line and exit code 2. An internal error is also one line, with a traceback if `-v` is
given.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from velodrome.cli.streams import as_typed, exit_code_after_flush, help_width, mend_streams, within_page
from velodrome.errors import InputError, VelodromeError, describe

PACKAGE = Path(__file__).parent.parent


class VerbEntry(NamedTuple):
    """A verb in `velo --help`. Its module is below `velodrome`, and is imported when the verb is typed."""

    module: str
    about: str

    def is_there(self) -> bool:
        """Whether the module is installed; a wing may be left out."""
        return (PACKAGE / f"{self.module.replace('.', '/')}.py").is_file()


GROUPS = {
    "collect and score": {
        "collect": VerbEntry("cli.collect", "run tasks against an agent and keep the rollouts"),
        "verify": VerbEntry("cli.verify", "score a saved file, deferred or with another config"),
        "run": VerbEntry("cli.run", "start the servers of a config, and a head that knows them"),
        "status": VerbEntry("cli.status", "the servers that run, or how far a collection is"),
        "merge": VerbEntry("cli.merge", "several outputs as one, each rollout once"),
    },
    "look": {
        "view": VerbEntry("viewer.verbs.view", "read rollouts in a browser or a terminal, or export pages"),
        "show": VerbEntry("viewer.verbs.show", "print a rollout as a readable transcript"),
        "metrics": VerbEntry("cli.metrics", "the numbers of a rollouts file"),
        "compare": VerbEntry("cli.compare", "two runs side by side, and whether one is better"),
        "check": VerbEntry("cli.check", "what is wrong with rollouts, before anybody learns from them"),
        "judgements": VerbEntry("viewer.verbs.judgements", "what people said of rollouts: tags, notes, ratings"),
        "profile": VerbEntry("cli.profile", "where the time went, what bounds throughput, what to change"),
    },
    "exchange": {
        "data": VerbEntry("exchange.verbs.data", "prepare tasks from a data set, and look at a file of tasks"),
        "export": VerbEntry("exchange.verbs.export", "rollouts as training data: sft, dpo, grpo, verl, parquet, …"),
        "import": VerbEntry("exchange.verbs.import_", "rollouts and tasks from NeMo Gym or logs of chat completions"),
    },
    "environments": {
        "envs": VerbEntry("cli.envs", "list the environments there are, or describe one"),
        "init": VerbEntry("cli.init", "make the folder of a new environment, which works at once"),
        "test": VerbEntry("cli.test", "whether an environment keeps the rules: answers, cheats, tools"),
        "env": VerbEntry("connect.env_verb", "add an environment of another project"),
    },
    "train": {
        "train": VerbEntry("training.verbs.train", "teach a small policy by a scripted teacher, then PPO"),
        "policy": VerbEntry("training.verbs.policy", "what was trained: show, evaluate, export"),
    },
    "set up": {
        "model": VerbEntry("cli.model", "pull and list local models, serve a scripted one"),
        "config": VerbEntry("cli.config", "print the resolved configuration, secrets masked"),
    },
}
VERBS = {verb: entry for verbs in GROUPS.values() for verb, entry in verbs.items() if entry.is_there()}
leave_at_once = False  # set if a thread or a library would keep the process alive


def usage() -> str:
    """What `velo --help` prints."""
    from velodrome.timing.screen import fitted, painted, screen_width

    blocks = []
    for title, verbs in GROUPS.items():
        lines = [f"  {verb:<10} {VERBS[verb].about}" for verb in verbs if verb in VERBS]
        blocks += ["\n".join([painted(title, "bold", sys.stdout), *lines])] if lines else []
    text = "\n\n".join(
        [
            "usage: velo <verb> [arguments]",
            *blocks,
            painted("to begin", "bold", sys.stdout)
            + "\n  velo collect calculator local_model -o rollouts.jsonl"
            + "\n  velo view rollouts.jsonl",
            "Each verb has --help with examples; -v adds tracebacks and logs. A terminal gets tables,"
            " a pipe JSON; --json is JSON everywhere.",
        ]
    )
    return fitted(text, screen_width(sys.stdout), hang=0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code is 1 if its result could not be written to stdout."""
    mend_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    verbose = "-v" in words or "--verbose" in words
    words = [word for word in words if word not in ("-v", "--verbose")]
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            print(usage())
        elif words[0] == "--version":
            from importlib.metadata import version

            print(version("velodrome"))
        else:
            return exit_code_after_flush(run_verb(words[0], words[1:], verbose))
        return exit_code_after_flush(0)
    except BrokenPipeError:
        return _stdout_closed()


def run_verb(verb: str, arguments: Sequence[str], verbose: bool) -> int:
    """Run a verb and return its exit code, whether it succeeds or fails."""
    if verbose:
        import logging

        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    declared: Any = None
    try:
        module, arguments = _load(verb, arguments)
        declared = getattr(module, "VERB", None)
        return _run(module, arguments)
    except VelodromeError as error:
        _print_error(str(error) if declared is None else declared.as_typed(str(error)))
        if verbose and error.__cause__ is not None:
            _trace(error.__cause__)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt as end:
        return 143 if isinstance(end, Terminated) else 130
    except BrokenPipeError:
        return _stdout_closed()
    except Exception as error:  # noqa: BLE001 - the edge of the process
        _print_error(f"internal error: {describe(error)}; run with -v for the traceback")
        if verbose:
            _trace(error)
        return 1


def _load(verb: str, arguments: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """The module of a verb, and its arguments; a name of NeMo Gym's is translated first."""
    if verb.startswith("ng_"):
        from velodrome.cli.nemo_gym import opened

        verb, *arguments = opened(verb, arguments)
    if verb not in VERBS:
        from velodrome.settings.names import hint

        raise InputError(f"unknown verb {verb!r:.40}{hint(verb, VERBS) or '; see velo --help'}")
    return import_module(f"velodrome.{VERBS[verb].module}"), arguments


def _run(module: Any, arguments: Sequence[str]) -> int:
    """Run the verb of a module, or print its help."""
    if hasattr(module, "VERB") and ("-h" in arguments or "--help" in arguments):
        print(module.VERB.help(help_width()))
        return 0
    with within_page(), ended_by_sigterm():
        code: int = exit_code_after_flush(module.run(arguments))
    if import_module("velodrome.cli.main").leave_at_once:  # by name: this file may be running as __main__
        sys.stderr.flush()
        os._exit(code)
    return code


class Terminated(KeyboardInterrupt):
    """SIGTERM, for a verb without its own handler: it cleans up as after Ctrl-C."""


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Inside, SIGTERM raises `Terminated`; a verb may set its own handler. A forked process ends as usual."""
    own = os.getpid()

    def arrived(number: int, frame: object) -> None:
        if os.getpid() != own:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, arrived)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stdout_closed() -> int:
    """The reader of stdout has closed it; that is not an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _print_error(text: str) -> None:
    from velodrome.settings import mask_text
    from velodrome.timing.invisible import escaped
    from velodrome.timing.screen import fitted, page_width, painted

    name = painted("velo:", "red", sys.stderr)
    for line in as_typed(mask_text(text)).strip("\n").split("\n"):
        print(fitted(f"{name} {escaped(line)}", page_width(sys.stderr), hang=6), file=sys.stderr)


def _trace(error: BaseException) -> None:
    from velodrome.settings import mask_text

    print(mask_text("".join(traceback.format_exception(error))), end="", file=sys.stderr)


def other_command() -> int:
    """The entry point of NeMo Gym's commands (`ng_run`, …); the script's name says which."""
    return main([os.path.basename(sys.argv[0]).removesuffix(".exe"), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
