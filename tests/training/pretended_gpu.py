"""A device of torch's that is none: its tensors say `cuda`, hold their numbers in the host's memory, and are as strict.

It shows which way our code takes for a GPU, that it gives the same numbers, and that nothing mixes two devices or asks
for numpy's view of another device's memory. What it cannot show: that a real one is quick, or that it rounds alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

GPU = torch.device("cuda:0")
ASKING = {Tensor.__int__, Tensor.__float__, Tensor.__setitem__}


class Far(Tensor):
    """A tensor over there; `near` is where its numbers are."""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> Far:
        made = Tensor._make_wrapper_subclass(
            cls,
            near.shape,
            strides=near.stride(),
            storage_offset=near.storage_offset(),
            dtype=near.dtype,
            device=GPU,
        )
        made.near = near
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return over_there(op, args, kwargs or {})


def over_there(op: Any, args: Any, kwargs: Any) -> Any:
    """Carry out an operator on the numbers, and say of the result where it would be."""
    given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    known = {id(each.near): each for each in given if isinstance(each, Far)}
    wanted = kwargs.get("device")
    is_far = bool(known) if wanted is None else torch.device(wanted).type == "cuda"
    if wanted is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if known and op._schema.name != "aten::_to_copy":
        mixed = [each for each in given if not isinstance(each, Far) and each.dim()]
        assert not mixed, f"{op}: tensors of two devices"
    args, kwargs = tree_map(lambda each: each.near if isinstance(each, Far) else each, (args, kwargs))
    found = op(*args, **kwargs)

    def told(each: Any) -> Any:
        if not isinstance(each, Tensor) or not is_far:
            return each
        return known[id(each)] if id(each) in known else Far(each)

    return tree_map(told, found)


class _Everywhere(TorchDispatchMode):
    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return over_there(op, args, kwargs or {})


class _Called(TorchFunctionMode):
    """What torch asks of a device's library before it gets to an operator."""

    def __torch_function__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if called in ASKING and isinstance(args[0], Far):
            return called(*tree_map(near, args))
        if called is Tensor.copy_:
            near(args[0]).copy_(near(args[1]))
            return args[0]
        if called in (Tensor.__getitem__, Tensor.__invert__) and isinstance(args[0], Far):
            return Far(called(*tree_map(near, args)))
        args, kwargs = tree_map(
            lambda each: GPU if isinstance(each, torch.device) and each.type == "cuda" else each, (args, kwargs or {})
        )
        return called(*args, **kwargs)


@contextmanager
def pretended_gpu(patch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """Inside, tensors can be made on the device and moved to it."""
    patch.setattr(torch.cuda, "_lazy_init", lambda: None)  # it would say that this torch has none
    with _Everywhere(), _Called():
        yield GPU


def near(given: Any) -> Any:
    """The numbers of a tensor, back here; anything else as it is."""
    return given.near if isinstance(given, Far) else given
