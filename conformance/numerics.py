"""Strict numerics: the settings under which eager and replay may be compared bit for bit.

With torch's defaults, padded eager differs from unpadded eager by 3.5e-2 of a peak of 1.0 on an H200 (Qwen3-TTS); with
these settings, by nothing at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def strict_numerics() -> Iterator[None]:
    """TF32 off for matmul and cuDNN, cuDNN deterministic and without benchmarking. Put back on exit."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
