"""The sum of one learned row for every (cell, code): a linear layer over one-hot cells that multiplies no zeros.

Code 0 is an empty cell and has no row; the layer's bias covers it. A code beyond the table counts as empty. On the CPU
kernels walk the cells; elsewhere, and when compiled by torch, it is the product with the one-hot itself (deterministic,
which adding rows on a GPU is not).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from velodrome.training.compiled import inner, kernel


def add_cells(base_NH: Tensor, obs_N: Tensor, table: Tensor, cells: int) -> Tensor:
    """Add to each row of `base_NH` (which may be changed) the rows of `table` for the codes in `obs_N[:, :cells]`."""
    if base_NH.device.type != "cpu" or torch.compiler.is_compiling():
        return base_NH + seen(obs_N[:, :cells], len(table) // cells).flatten(1).to(table.dtype) @ table
    if not torch.is_grad_enabled():
        out_NH = base_NH.float()
        add_rows(obs_N.numpy(), table.detach().numpy(), cells, out_NH.numpy())
        return out_NH
    added: Tensor = _AddCells.apply(base_NH.float(), obs_N, table, cells)  # type: ignore[no-untyped-call]
    return added


def seen(codes_NC: Tensor, kinds: int) -> Tensor:
    """N x cells x kinds: which code, from 1 to `kinds`, each cell shows."""
    return codes_NC.unsqueeze(-1) == torch.arange(1, kinds + 1, dtype=codes_NC.dtype, device=codes_NC.device)


class _AddCells(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, base_NH: Tensor, obs_N: Tensor, table: Tensor, cells: int) -> Tensor:
        ctx.mark_dirty(base_NH)
        ctx.obs, ctx.cells, ctx.table = obs_N, cells, table
        add_rows(obs_N.numpy(), table.detach().numpy(), cells, base_NH.detach().numpy())
        return base_NH

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor | None, None]:
        grad_NH, table = grads[0].contiguous(), ctx.table
        into = torch.zeros(table.shape) if table.grad is None else table.grad  # there most rows stay as they are
        add_to_rows(ctx.obs.numpy(), grad_NH.numpy(), ctx.cells, into.numpy())
        return grad_NH, None, into if table.grad is None else None, None


@inner
def rows_of(codes: NDArray[np.uint8], cells: int, kinds: int, rows: NDArray[np.int64]) -> int:
    """Write the numbers of the table's rows for one observation; returns how many there are."""
    count = 0
    for cell in range(cells):
        code = codes[cell]
        rows[count] = cell * kinds + code - 1
        count += (code != 0) & (code <= kinds)
    return count


@inner
def sum_rows(table: NDArray[np.float32], rows: NDArray[np.int64], count: int, out: NDArray[np.float32]) -> None:
    """Add so many rows of a table, by their numbers."""
    whole = count // 4 * 4
    for k in range(0, whole, 4):  # four at a time: a quarter of the stores
        a, b, c, d = table[rows[k]], table[rows[k + 1]], table[rows[k + 2]], table[rows[k + 3]]
        for h in range(len(out)):
            out[h] += (a[h] + b[h]) + (c[h] + d[h])
    for k in range(whole, count):
        a = table[rows[k]]
        for h in range(len(out)):
            out[h] += a[h]


@kernel
def add_rows(obs_N: NDArray[np.uint8], table: NDArray[np.float32], cells: int, out_NH: NDArray[np.float32]) -> None:
    kinds = len(table) // cells
    rows = np.empty(cells + 1, np.int64)
    for n in range(len(obs_N)):
        count = rows_of(obs_N[n], cells, kinds, rows)
        sum_rows(table, rows, count, out_NH[n])


@kernel
def add_to_rows(obs_N: NDArray[np.uint8], grad_NH: NDArray[np.float32], cells: int, table: NDArray[np.float32]) -> None:
    kinds = len(table) // cells
    rows = np.empty(cells + 1, np.int64)
    width = table.shape[1]
    for n in range(len(obs_N)):
        grad = grad_NH[n]
        for k in range(rows_of(obs_N[n], cells, kinds, rows)):
            row = table[rows[k]]
            for h in range(width):
                row[h] += grad[h]
