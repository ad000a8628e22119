"""What a refused operation of an earlier case left behind in torch, undone before the next."""

from __future__ import annotations

from typing import Any

import torch

from conformance.activity import doing
from conformance.shared_pool import renew_shared_pool, shared_pool


def settle(device: torch.device) -> None:
    """Capture a little, so that the default generator and vLLM's shared pool are as before a refusal.

    Torch leaves the default generator in capture mode, where it gives no numbers, until another capture ends; and
    the capture's pool recording, so that vLLM's shared one takes no further capture.
    """
    pool = shared_pool()
    with doing("settling"):  # apart, so that the capture is not counted as the subject's
        try:
            _capture_a_little(device, pool)
        except RuntimeError:
            if pool is None:
                raise
            renew_shared_pool()
            _capture_a_little(device, None)


def _capture_a_little(device: torch.device, pool: Any) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.cuda.graph(torch.cuda.CUDAGraph(), pool=pool, stream=side):
        torch.zeros(1, device=device)
