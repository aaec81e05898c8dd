"""Two layers and a head as one function with its gradient: the student without memory on the CPU.

The numbers are those of the modules one by one. One step of autograd's instead of eight makes an update
of 256 rows a sixth faster.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from velodrome.training.kernels.cells import add_rows, add_to_rows


class Chain(NamedTuple):
    """Weights in the order they are used. `table` is for `cells` codes before the numbers; None without codes."""

    cells: int
    table: Tensor | None
    weights: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def fits(obs_B: Tensor) -> bool:
    """Whether these kernels can be used here."""
    return obs_B.device.type == "cpu" and not (torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"))


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
        numbers_BF = obs_B[:, cells:].float().mul_(1 / 255)
        first_BH = torch.addmm(b1, numbers_BF, w1.t())
        add_rows(obs_B.numpy(), table.detach().numpy(), cells, first_BH.numpy())
        second_BH = torch.addmm(b2, first_BH.relu_(), w2.t()).relu_()
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
            back_BH = torch.ops.aten.threshold_backward(back_BH, second_BH, 0)
            to_first_BH = torch.ops.aten.threshold_backward(torch.mm(back_BH, w2), first_BH, 0)
            table = torch.zeros(ctx.table.shape)
            add_to_rows(ctx.obs.numpy(), to_first_BH.numpy(), ctx.cells, table.numpy())
        first = (torch.mm(to_first_BH.t(), numbers_BF), to_first_BH.sum(0))
        second = (torch.mm(back_BH.t(), first_BH), back_BH.sum(0))
        return None, None, table, *first, *second, torch.mm(grad.t(), second_BH), grad.sum(0)
