"""The reference adapter under a memory limit: two buckets that its runner is asked for do not fit beside the others."""

from __future__ import annotations

from runner import GraphConfig

from .spec import ReferenceSpec


class LimitedSpec(ReferenceSpec):
    """Bytes are those of emulated CUDA, which has no segments: `--graph-device=emulated`."""

    name = "reference_limited"
    config = GraphConfig(memory_limit_bytes=20_000)
    left_out = ({"batch": 8, "frames": 64}, {"batch": 16, "frames": 64})
