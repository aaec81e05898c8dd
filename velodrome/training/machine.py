"""The kind of machine, and whether it can compute an LSTM in bfloat16.

Weights are the same bit for bit on one kind of machine only; a checkpoint records its kind.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import version

import llvmlite.binding as llvm
import torch

_LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


@cache
def lstm_in_half() -> bool:
    """Whether an LSTM, forward and backward, runs in bfloat16 on the CPU. oneDNN has none below AVX-512 and refuses."""
    size = 8
    weights = [torch.zeros(4 * size, size, requires_grad=True) for _ in range(2)]
    weights += [torch.zeros(4 * size, requires_grad=True) for _ in range(2)]
    try:
        with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
            for dtype in (torch.float32, torch.bfloat16):  # torch has a code path for each
                x_TNH, state = torch.zeros(2, 1, size, dtype=dtype), torch.zeros(1, 1, size, dtype=dtype)
                out, _, _ = torch.lstm(x_TNH, (state, state), weights, True, 1, 0.0, True, False, False)
                torch.autograd.backward(out.sum())
    except RuntimeError:
        return False
    return True


def kind_of_machine() -> dict[str, str]:
    """What the bits of a result depend on, apart from the settings."""
    return {
        "cpu": str(llvm.get_host_cpu_name()),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "torch": str(torch.__version__),
        "numba": version("numba"),
        **{name: os.environ[name] for name in _LIMITS if name in os.environ},
    }
