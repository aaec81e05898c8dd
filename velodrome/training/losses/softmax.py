"""The row-wise softmax the losses' kernels share."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from velodrome.training.kernels.compiled import inner

Floats = NDArray[np.float32]


@inner
def softmax_row(logits_A: Floats, probs_A: NDArray[np.float64]) -> float:
    """Write the probabilities; the logarithm of the sum that makes them one."""
    top = np.float64(logits_A[0])
    for logit in logits_A:
        top = max(top, np.float64(logit))
    total = 0.0
    for a in range(len(logits_A)):
        probs_A[a] = math.exp(logits_A[a] - top)
        total += probs_A[a]
    for a in range(len(logits_A)):
        probs_A[a] /= total
    return top + math.log(total)
