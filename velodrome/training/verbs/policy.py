"""`velo policy`: what a run has learned, evaluated and exported."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from velodrome.cli.tables import Row, ink, next_step, pairs, print_result
from velodrome.cli.verb import JsonFlag, Verb, argument, no_verb, read_flags
from velodrome.settings.values import Count, FilePath, Text
from velodrome.training.api import load_policy
from velodrome.training.start import refuse_without_torch


class RunFlags(JsonFlag):
    """The flags of `velo policy show`."""

    run: FilePath = argument(title="RUN", description="the folder of a run, or train_dir/NAME; or one file")


class WhichFlags(RunFlags):
    """What every other verb of a policy takes."""

    which: Text = Field("last", description="last, best, the name of a phase for its end (taught: supervised), a step")


class EvalFlags(WhichFlags):
    """The flags of `velo policy eval`."""

    episodes: Count = Field(100, description="episodes to play")
    env: Text | None = Field(None, title="NAME", description="another environment that looks the same [the run's]")
    sampled: bool = Field(False, description="sample the actions; otherwise as the run's evaluator.greedy says")


class PolicyExportFlags(WhichFlags):
    """The flags of `velo policy export`."""

    output: FilePath = Field(title="FILE", description="the ONNX file to write")


VERB = Verb(
    usage="velo policy show RUN\nvelo policy eval RUN [--which best] [--episodes 100]\n"
    "velo policy export RUN -o FILE [--which best]",
    about="""\
What a run has learned: list the weights that are kept, evaluate them, or write them as ONNX.""",
    settings={
        "flags of show": RunFlags,
        "flags of eval": EvalFlags,
        "flags of export": PolicyExportFlags,
    },
    more="""docs/training.md#a-policy describes policies and exported files.

examples:
  velo policy show train_dir/first
  velo policy eval train_dir/first --which taught --episodes 512
  velo policy export train_dir/first --which best -o policy.onnx""",
)


def run(argv: Sequence[str]) -> int:
    what, *rest = argv or [""]
    verbs = {"show": _show, "eval": _eval, "export": _export}
    if what not in verbs:
        raise no_verb("velo policy", verbs, what)
    verbs[what](rest)
    return 0


def _show(words: Sequence[str]) -> None:
    flags = read_flags(RunFlags, words, "velo policy show")
    refuse_without_torch("a policy")
    from velodrome.training.evaluate import evaluation_line
    from velodrome.training.trained.loading import describe_run

    shown = describe_run(flags.run)

    def drawn() -> str:
        rows: list[Row] = [("run", shown["run"]), ("environment", shown["env"]), ("network", shown["network"])]
        for one in shown["kept"]:
            name = ink(", ".join(one["names"]), "bold") if one["names"] else "-"
            score = f": {evaluation_line(one['evaluation'])}" if one["evaluation"] else ""
            rows.append((f"{one['step']:,}", f"{name}{score}"))
        return f"{pairs(rows)}\n\n{next_step(f'velo policy eval {flags.run} --which last')}"

    print_result(shown, drawn, as_json=flags.as_json)


def _eval(words: Sequence[str]) -> None:
    flags = read_flags(EvalFlags, words, "velo policy eval")
    policy = load_policy(flags.run, flags.which)
    result = policy.evaluate(flags.episodes, env=flags.env, greedy=False if flags.sampled else None)
    from velodrome.training.evaluate import evaluation_line

    whole = {"file": str(policy.path), "step": policy.step, "env": flags.env or policy.spec.name, **result}
    print_result(whole, lambda: f"agent step {policy.step:,}: {evaluation_line(result)}", as_json=flags.as_json)


def _export(words: Sequence[str]) -> None:
    flags = read_flags(PolicyExportFlags, words, "velo policy export")
    about = load_policy(flags.run, flags.which).export(flags.output)
    inputs = ", ".join(f"{name} {' x '.join(map(str, one['shape']))}" for name, one in about["inputs"].items())
    trained = f"{about['env']}, {about['step']:,} agent steps"
    outputs = ", ".join(about["outputs"])
    rows = [("file", about["file"]), ("policy", trained), ("inputs", inputs), ("outputs", outputs)]
    print_result(about, lambda: pairs(rows), as_json=flags.as_json)
