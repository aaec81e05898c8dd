"""Two layers and a head as one function with its gradient, for the CPU: the student without memory.

The same sums as module by module, in fewer and larger steps; cells are added, activated and, on the way back, masked
while they are in the cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from velodrome.training.kernels.cells import rows_of, sum_rows
from velodrome.training.kernels.compiled import kernel

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


class Chain(NamedTuple):
    """Weights in the order they are used. `table` is for `cells` codes before the numbers; None without codes."""

    cells: int
    table: Tensor | None
    weights: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def fits(obs_B: Tensor) -> bool:
    """Whether these kernels can be used here."""
    return not (obs_B.is_cuda or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"))


def through(chain: Chain, obs_B: Tensor) -> Tensor:
    """The output of the head. With a table the activation is relu, without it tanh."""
    if torch.is_grad_enabled():
        out: Tensor = _Through.apply(chain.cells, obs_B, chain.table, *chain.weights)  # type: ignore[no-untyped-call]
        return out
    return _ahead(chain.cells, obs_B, chain.table, *chain.weights)[-1]


def _ahead(
    cells: int,
    obs_B: Tensor,
    table: Tensor | None,
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    w3: Tensor,
    b3: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if table is None:
        numbers_BF = obs_B
        first_BH = torch.addmm(b1, numbers_BF, w1.t()).tanh_()
        second_BH = torch.addmm(b2, first_BH, w2.t()).tanh_()
    else:
        numbers_BF = torch.empty(len(obs_B), w1.shape[1])
        codes_B = obs_B.numpy()
        _numbers(codes_B, cells, numbers_BF.numpy())
        first_BH = torch.addmm(b1, numbers_BF, w1.t())
        _add_and_bend(codes_B, table.detach().numpy(), cells, first_BH.numpy())
        second_BH = torch.addmm(b2, first_BH, w2.t()).relu_()
    return numbers_BF, first_BH, second_BH, torch.addmm(b3, second_BH, w3.t())


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cells: int, obs_B: Tensor, table: Tensor | None, *weights: Tensor) -> Tensor:
        numbers_BF, first_BH, second_BH, out = _ahead(cells, obs_B, table, *weights)
        ctx.cells, ctx.obs, ctx.table = cells, obs_B, table
        ctx.save_for_backward(numbers_BF, first_BH, second_BH, weights[2], weights[4])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        numbers_BF, first_BH, second_BH, w2, w3 = ctx.saved_tensors
        grad = grads[0]
        back_BH = torch.mm(grad, w3)
        if ctx.table is None:
            back_BH = torch.ops.aten.tanh_backward(back_BH, second_BH)
            to_first_BH = torch.ops.aten.tanh_backward(torch.mm(back_BH, w2), first_BH)
            table = None
        else:
            _mask(second_BH.numpy(), back_BH.numpy())
            to_first_BH = torch.mm(back_BH, w2)
            table = torch.zeros(ctx.table.shape)
            _mask_and_add(ctx.obs.numpy(), first_BH.numpy(), ctx.cells, to_first_BH.numpy(), table.numpy())
        first = (torch.mm(to_first_BH.t(), numbers_BF), to_first_BH.sum(0))
        second = (torch.mm(back_BH.t(), first_BH), back_BH.sum(0))
        return None, None, table, *first, *second, torch.mm(grad.t(), second_BH), grad.sum(0)


@kernel
def _numbers(obs_B: Bytes, cells: int, numbers_BF: Floats) -> None:
    scale = np.float32(1 / 255)
    for b in range(len(obs_B)):
        codes, out = obs_B[b, cells:], numbers_BF[b]
        for f in range(len(out)):
            out[f] = codes[f] * scale


@kernel
def _add_and_bend(obs_B: Bytes, table: Floats, cells: int, out_BH: Floats) -> None:
    kinds, width = len(table) // cells, table.shape[1]
    rows = np.empty(cells + 1, np.int64)
    none = np.float32(0)
    for n in range(len(obs_B)):
        count = rows_of(obs_B[n], cells, kinds, rows)
        out = out_BH[n]
        sum_rows(table, rows, count, out)
        for h in range(width):
            out[h] = max(out[h], none)


@kernel
def _mask(bent_BH: Floats, grad_BH: Floats) -> None:
    none = np.float32(0)
    for n in range(len(bent_BH)):
        bent, grad = bent_BH[n], grad_BH[n]
        for h in range(len(grad)):
            grad[h] = grad[h] if bent[h] > none else none


@kernel
def _mask_and_add(obs_B: Bytes, bent_BH: Floats, cells: int, grad_BH: Floats, table: Floats) -> None:
    kinds, width = len(table) // cells, table.shape[1]
    rows = np.empty(cells + 1, np.int64)
    none = np.float32(0)
    for n in range(len(obs_B)):
        bent, grad = bent_BH[n], grad_BH[n]
        for h in range(width):
            grad[h] = grad[h] if bent[h] > none else none
        for k in range(rows_of(obs_B[n], cells, kinds, rows)):
            row = table[rows[k]]
            for h in range(width):
                row[h] += grad[h]
