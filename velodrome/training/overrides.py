"""`key=value` words made into settings: a value is typed by what it is meant for, and every mistake is told at once.

Nothing is guessed: what would lose something on the way (1.5 for a whole number, text for a number) is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from velodrome.errors import InputError
from velodrome.settings.spelling import hint
from velodrome.training.settings import Settings

G = TypeVar("G", bound=BaseModel)

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_MOST = 10**18  # a larger whole number is a slip of the finger, and no JSON reader has room for it
_LIMITS = ("ge", "gt", "le", "lt", "pattern")  # as pydantic calls them
_STEPS = ("steps", "trainer.batch_size (agent steps of a rollout, of all environments)")
# what stable-baselines3 and CleanRL call it: ours, the first that there is; offered, never taken
_ELSEWHERE: dict[str, tuple[str, ...]] = {
    "batch_size": ("trainer.minibatch_size (agent steps of one gradient) or trainer.batch_size (of a rollout)",),
    "clip_coef": ("ppo.clip",),
    "clip_range": ("ppo.clip",),
    "clip_range_vf": ("ppo.value_clip",),
    "clip_vloss": ("ppo.value_clip",),
    "cuda": ("trainer.device",),
    "ent_coef": ("ppo.entropy_coef",),
    "env_id": ("env.name",),
    "eval_freq": ("evaluator.epoch_interval",),
    "exp_name": ("run",),
    "lr": ("trainer.learning_rate",),
    "n_envs": ("num_envs", "env.num_envs"),
    "n_epochs": ("ppo.epochs",),
    "n_eval_episodes": ("evaluator.episodes",),
    "n_steps": _STEPS,
    "norm_adv": ("ppo.normalize_advantages",),
    "num_minibatches": ("trainer.minibatch_size (trainer.batch_size / num_minibatches)",),
    "num_steps": _STEPS,
    "num_timesteps": ("trainer.total_timesteps",),
    "save_freq": ("trainer.checkpoint_interval",),
    "tensorboard_log": ("output.tensorboard",),
    "total_steps": ("trainer.total_timesteps",),
    "update_epochs": ("ppo.epochs",),
    "verbose": ("output.dashboard",),
    "vf_coef": ("ppo.value_coef",),
}


@dataclass(frozen=True, slots=True)
class Key:
    """One setting of a run: its dotted name, its value now, and what it may be."""

    name: str
    value: Any
    field: FieldInfo


class _Unfit(Exception):
    """A text that is no value of its type; its own text is the reason, where that is not plain to see."""


class _Malformed(_Unfit):
    """A text that was meant as JSON and is none; its own text says where."""


def parse(words: Iterable[str], problems: list[str] | None = None) -> dict[str, str]:
    """What each `key=value` word gives. Mistakes are raised, or added to `problems` if there is such a list."""
    found: list[str] = []
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            found.append(f'{_shown(word)}: no "="; write it as key=value')
        elif not _NAME.fullmatch(name):
            plain = name.lstrip("+-~")
            way = f"write {plain}=…" if plain != name and _NAME.fullmatch(plain) else 'names with dots, as in "a.b=c"'
            found.append(f"{_shown(word)}: {_shown(name)} is no name of a setting; {way}")
        elif name in given:
            found.append(f"{name} is given twice: {_shown(given[name])} and {_shown(value)}; leave one out")
        else:
            given[name] = value
    _tell(found, problems)
    return given


def apply(
    settings: Settings,
    given: Mapping[str, str],
    problems: list[str] | None = None,
    *,
    names: Iterable[str] = (),
    unread: set[str] | None = None,
) -> Settings:
    """The settings with what is given. `names` are others that a misspelt key may have been meant for.

    With `problems` told, they are as far as they could be made, unfit for a run, and `unread` is added what is not in.
    """
    found: list[str] = []
    left: set[str] = set() if unread is None else unread
    there = {key.name: key for key in keys(settings)}
    wanted: dict[str, Any] = {}
    for name, value in _spread(settings, given, found, left):
        key = there.get(name)
        if key is None:
            found.append(f"no setting {name}{_near(name, there, groups(settings), names)}")
            left.add(name)
        elif name in wanted:
            found.append(f"{name} is given twice, by its name and in a group; leave one out")
            left.add(name)
        else:
            wrong: list[str] = []
            wanted[name] = read(name, value, key.field.annotation, key.field, wrong)
            if wrong:
                found += wrong
                left.add(name)
    wanted = {name: value for name, value in wanted.items() if name not in left}
    try:
        settings = _changed(settings, wanted, checked=not found)
    except ValidationError as error:
        found += complaints(error)
        settings = _changed(settings, wanted, checked=False)
    _tell(found, problems)
    return settings


def keys(group: BaseModel, above: str = "") -> Iterator[Key]:
    """Every setting at any depth, in the order of the page it is written on."""
    for name, field in type(group).model_fields.items():
        value = getattr(group, name)
        if isinstance(value, BaseModel):
            yield from keys(value, f"{above}{name}.")
        else:
            yield Key(above + name, value, field)


def groups(group: BaseModel, above: str = "") -> dict[str, BaseModel]:
    """Every group of settings below this one, by its dotted name."""
    found: dict[str, BaseModel] = {}
    for name in type(group).model_fields:
        value = getattr(group, name)
        if isinstance(value, BaseModel):
            found[above + name] = value
            found |= groups(value, f"{above}{name}.")
    return found


def read(name: str, value: Any, kind: Any, field: FieldInfo | None, problems: list[str]) -> Any:
    """A value of this kind from a text (or from JSON inside a group); a problem and None if it is none."""
    try:
        plain = _sound(_typed(value, kind) if isinstance(value, str) else value, kind)
        return TypeAdapter(Annotated[kind, field] if field else kind).validate_python(plain, strict=True)
    except (_Unfit, ValidationError) as error:
        why = f" ({error})" if isinstance(error, _Unfit) and error.args else ""
        near = hint(value, _choices(kind), cutoff=0.75) if isinstance(value, str) else ""
        problems.append(f"{name} is {what(kind, field)}, not {_shown(value)}{why or near}")
        return None


def what(kind: Any, field: FieldInfo | None = None) -> str:
    """What a setting may be, in words: for `-h` and for whoever got it wrong."""
    choices = _choices(kind)
    if choices:
        return " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
    inner = _not_none(kind)
    if inner is not None:
        return f"{what(inner, field)} or none"
    plain = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    words = plain.get(kind) or f"JSON for {getattr(kind, '__name__', None) if get_origin(kind) is None else kind}"
    return words + _range(_limits(field))


def complaints(error: ValidationError) -> list[str]:
    """What pydantic found, a line each."""
    lines = []
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(map(str, one["loc"]))
        lines.append(f"{place}: {one['msg']}" if place else one["msg"].removeprefix("Value error, "))
    return lines


def _tell(found: list[str], problems: list[str] | None) -> None:
    if problems is not None:
        problems += found
    elif found:
        raise InputError(*found)


def _spread(
    settings: Settings, given: Mapping[str, str], problems: list[str], unread: set[str]
) -> Iterator[tuple[str, Any]]:
    """What is given, key by key; a group may be given as a JSON object."""
    there = groups(settings)
    for name, text in given.items():
        if name not in there:
            yield name, text
            continue
        keys = f"give one of its keys ({', '.join(type(there[name]).model_fields)})"
        why, value = "", None
        try:
            value = _json(text)
        except _Malformed as malformed:
            way = f"names go in double quotes, the whole word in single ones; or {keys}"
            problems.append(f"{name}: {_shown(text)} is {malformed}; {way}")
            unread.add(name)
            continue
        except _Unfit as unfit:
            why = f" ({unfit})" if unfit.args else ""
        if isinstance(value, dict):
            yield from _leaves(name, value, there)
        else:
            problems.append(f"{name} is a group of settings, not {_shown(text)}{why}; {keys}")
            unread.add(name)


def _leaves(name: str, value: Any, there: Mapping[str, BaseModel]) -> Iterator[tuple[str, Any]]:
    if name in there and isinstance(value, dict):
        for inner, one in value.items():
            yield from _leaves(f"{name}.{inner}", one, there)
    else:
        yield name, value


def _changed(group: G, wanted: Mapping[str, Any], above: str = "", *, checked: bool = True) -> G:
    """The group made anew, of the same class, whatever class a recipe has put in; not `checked`, fit or not."""
    values: dict[str, Any] = {}
    for name in type(group).model_fields:
        now = getattr(group, name)
        if isinstance(now, BaseModel):
            values[name] = _changed(now, wanted, f"{above}{name}.", checked=checked)
        else:
            values[name] = wanted.get(above + name, now)
    return type(group)(**values) if checked else type(group).model_construct(**values)


def _near(name: str, there: Iterable[str], groups: Iterable[str], names: Iterable[str]) -> str:
    """The end of the line about a key that is not there."""
    last = name.rpartition(".")[2]
    same = [key for key in there if key.rpartition(".")[2] == last]
    known = {*there, *names}
    ours = next((each for each in _ELSEWHERE.get(last, ()) if each.partition(" ")[0] in known), None)
    if ours and (name == last or not same):
        return f"; did you mean {ours}?"
    if same:
        return f"; did you mean {' or '.join(same)}?"
    return hint(name, [*there, *groups, *names]) or "; -h shows them all"


def _typed(text: str, kind: Any) -> Any:
    """A text as what it stands for."""
    inner = _not_none(kind)
    if inner is not None:
        return None if text.lower() in ("none", "null") else _typed(text, inner)
    if kind is str:
        return text
    if kind is bool:
        return _flag(text)
    if kind is int:
        return _whole(text)
    if kind is float:
        return _real(text)
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    if choices:
        return next((choice for choice in choices if str(choice) == text), text)
    return _json(text)


def _sound(value: Any, kind: Any) -> Any:
    """A value that every file of a run can hold; 1e3 in JSON is a whole number as it is on the command line."""
    if isinstance(value, float):
        if not isfinite(value):
            raise _Unfit
        if (_not_none(kind) or kind) is int and value.is_integer():
            value = int(value)
    if isinstance(value, int) and abs(value) > _MOST:
        raise _Unfit("too large")
    if isinstance(value, str) and ("\0" in value or not _is_utf8(value)):
        raise _Unfit("not valid text")
    return value


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and text.lstrip().startswith(("{", "[")):
            raise _Malformed(f"malformed JSON at character {error.pos + 1} ({error.msg})") from None
        raise _Unfit from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, none of whose names stands there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Unfit(f"{next(name for name in names if names.count(name) > 1)} stands in it twice")
    return found


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise _Unfit
    return text.lower() == "true"


def _whole(text: str) -> int:
    try:
        if _WHOLE.fullmatch(text):
            return int(text)
        number = Decimal(_ascii(text))
    except (ValueError, InvalidOperation):  # ValueError: thousands of digits
        raise _Unfit from None
    if not number.is_finite():
        raise _Unfit
    if number.adjusted() > 18:
        raise _Unfit("too large")
    if number != number.to_integral_value():
        raise _Unfit
    return int(number)


def _real(text: str) -> float:
    try:
        return float(_ascii(text))
    except ValueError:
        raise _Unfit from None


def _ascii(text: str) -> str:
    """Python reads the digits of every script; whoever pastes one of another has not meant to."""
    if not text.isascii():
        raise _Unfit
    return text


def _not_none(kind: Any) -> Any:
    """`X` of `X | None`, else None."""
    if get_origin(kind) not in (Union, UnionType):
        return None
    others = [one for one in get_args(kind) if one is not NoneType]
    return others[0] if len(others) == 1 and len(get_args(kind)) == 2 else None


def _choices(kind: Any) -> list[str]:
    return [str(choice) for choice in get_args(kind)] if get_origin(kind) is Literal else []


def _limits(field: FieldInfo | None) -> dict[str, Any]:
    """The bounds of a field, by pydantic's names for them."""
    found: dict[str, Any] = {}
    for one in field.metadata if field else ():
        for name in _LIMITS:
            limit = getattr(one, name, None)
            if limit is not None:
                found[name] = limit
    return found


def _range(limits: Mapping[str, Any]) -> str:
    if "pattern" in limits:
        return f" that matches {limits['pattern']}"
    if "ge" in limits and "le" in limits:
        return f" from {_number(limits['ge'])} to {_number(limits['le'])}"
    words = {"ge": "from {} on", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
    told = [text.format(_number(limits[name])) for name, text in words.items() if name in limits]
    return f" {' and '.join(told)}".rstrip().replace(" on and ", " and ")


def _number(value: Any) -> str:
    return f"{value:_}" if isinstance(value, int) else f"{value:g}"


def _shown(value: Any) -> str:
    """A value as a problem may print it: short, on one line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
