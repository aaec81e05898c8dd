"""What `velo train` shows without training: the recipes, a recipe's settings, and the plan of a run. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import orjson
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from velodrome.training.envs.env_names import kind_of
from velodrome.training.recipes import Recipe, ResolvedRun, listed
from velodrome.training.run.train_folder import run_folder
from velodrome.training.schedule import TrainingPlan, make_plan
from velodrome.training.settings import RunSettings, leaves

Json = dict[str, Any]

_WIDEST = 40  # columns; a longer cell shifts only its own line
_KINDS = {"boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "text"}
_LIMITS = {"minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "to {}", "exclusiveMaximum": "below {}"}


def recipe_list() -> str:
    """Every recipe with a line about it."""
    return _table(listed())


def recipe_help(recipe: Recipe) -> str:
    """The arguments of a recipe, and every setting with its value in this recipe."""
    arguments = [
        (name, allowed(field), "required" if field.is_required() else written(field.default), field.description or "")
        for name, field in recipe.arguments.model_fields.items()
    ]
    parts = [f"usage: velo train {recipe.name} [name=value ...] [--dry-run [--json]]", recipe.text]
    if arguments:
        parts.append("arguments:\n" + _table(arguments, indent=2))
    settings = recipe.defaults()
    if settings is not None:
        parts.append("settings, with the recipe's values:\n" + _table(setting_rows(settings), indent=2))
    return "\n\n".join(part for part in parts if part)


def setting_rows(settings: RunSettings) -> list[tuple[str, str, str, str]]:
    """Of every setting: its key, the values allowed, its value, its meaning."""
    return [
        (leaf.name, allowed(leaf.field), written(leaf.value), leaf.field.description or "") for leaf in leaves(settings)
    ]


def allowed(field: FieldInfo) -> str:
    """The values a setting accepts, in words."""
    kind: Any = Annotated[field.annotation, field]
    schema = TypeAdapter(kind).json_schema()
    return " or ".join(_in_words(option) for option in schema.get("anyOf", [schema]))


def _in_words(schema: Json) -> str:
    if "enum" in schema:
        *choices, last = map(str, schema["enum"])
        return f"{', '.join(choices)} or {last}" if choices else last
    kind = schema.get("type")
    if kind == "null":
        return "none"
    limits = [words.format(_number(schema[name])) for name, words in _LIMITS.items() if name in schema]
    limits += [f"matching {schema['pattern']}"] if "pattern" in schema else []
    return " ".join([_KINDS.get(str(kind), f"a JSON {kind}"), *limits])


def _number(value: float) -> str:
    return f"{value:_}" if isinstance(value, int) else f"{value:g}"


def written(value: Any) -> str:
    """A value as it would be typed."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:_}"
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def plan_text(resolved: ResolvedRun) -> str:
    """The settings with what was changed, and the plan."""
    changed = resolved.changed()
    rows = [
        (leaf.name, written(leaf.value), f"was {written(changed[leaf.name][0])}" if leaf.name in changed else "")
        for leaf in leaves(resolved.settings)
    ]
    return f"{_table(rows)}\n\n{_table(_plan_rows(resolved.settings))}"


def _plan_rows(settings: RunSettings) -> Iterator[tuple[str, str]]:
    plan = _plan(settings)
    if plan is None:
        yield "agents", "known once the environment is loaded; so are the phases"
    else:
        envs = settings.env.num_envs
        yield "agents", f"{plan.agents:,} = {envs:,} environments x {plan.agents // envs}"
        yield "rollout", f"{plan.horizon:,} steps of all agents = {settings.trainer.batch_size:,} agent steps"
        for each in plan.phases:
            steps = f"{each.agent_steps:,} agent steps: {each.rollouts:,} rollouts, {each.updates:,} updates"
            yield each.title, f"{steps}{', with the teacher' if each.asks_teacher else ''}"
    yield "folder", str(run_folder(settings))
    for note in plan.notes if plan else ():
        yield "note", note


def opening(resolved: ResolvedRun) -> str:
    """The first lines of a run, for which nothing large is imported."""
    plan = _plan(resolved.settings)
    total = resolved.settings.trainer.total_timesteps
    words = plan.words if plan else f"{total:,} agent steps; the phases are known once the environment is loaded"
    return f"{run_folder(resolved.settings)}: {resolved.recipe.name}, {words}\nloading torch and the environment"


def plan_json(resolved: ResolvedRun) -> Json:
    """The same as data."""
    settings = resolved.settings
    return {
        "recipe": resolved.recipe.name,
        "settings": settings.model_dump(
            exclude={each for each in ("losses", "curriculum") if not getattr(settings, each)}
        ),
        "changed": {name: {"from": old, "to": new} for name, (old, new) in resolved.changed().items()},
        "plan": _plan(settings),
        "folder": str(run_folder(settings)),
    }


def _plan(settings: RunSettings) -> TrainingPlan | None:
    each = kind_of(settings.env.name).agents(settings.env.agents)
    return None if each is None else make_plan(settings, settings.env.num_envs * each)


def _table(rows: Iterable[Sequence[str]], *, indent: int = 0) -> str:
    lines = [tuple(row) for row in rows]
    widths = [min(_WIDEST, max(map(len, column))) for column in zip(*lines, strict=True)]
    padded = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in lines)
    return "\n".join(f"{'':<{indent}}{line}".rstrip() for line in padded)
