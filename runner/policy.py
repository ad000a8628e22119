"""Whether graphs are used at all, and the closed set of reasons why a call ran eagerly instead."""

from dataclasses import dataclass
from enum import Enum

import torch

from runner.config import GraphConfig, cudagraph_mode_name


class FallbackReason(Enum):
    """Why a call ran eagerly."""

    DISABLED = "disabled"
    NOT_CAPTURED = "not_captured"
    OUTER_CAPTURE = "outer_capture"
    NO_BUCKET = "no_bucket"
    CAPTURE_FAILED = "capture_failed"
    MEMORY_LIMIT = "memory_limit"
    INELIGIBLE = "ineligible"
    FORKED = "forked"
    CLOSED = "closed"


@dataclass(frozen=True)
class Fallback:
    """One eager call's reason; `detail` is a word of the adapter's or runner's, as in `ineligible:dtype`."""

    reason: FallbackReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason.value}:{self.detail}" if self.detail else self.reason.value


@dataclass(frozen=True)
class EnableDecision:
    """`overridden` where `enabled=True` won against a switch that says eager; `why` names the deciding switch."""

    enabled: bool
    why: str
    overridden: bool = False


def decide_enabled(device: torch.device | str, config: GraphConfig) -> EnableDecision:
    """Graphs or not. Pure: touches no device. `enabled=True` overrides vLLM's switches, never the device type."""
    if torch.device(device).type != "cuda":
        return EnableDecision(False, f"device is {device}, and CUDA graphs need cuda")
    if config.enabled is False:
        return EnableDecision(False, "enabled=False")
    mode = cudagraph_mode_name(config.cudagraph_mode)
    against = "enforce_eager=True" if config.enforce_eager else "cudagraph_mode=NONE" if mode == "NONE" else ""
    if against and config.enabled:
        return EnableDecision(True, f"enabled=True overrides {against}", overridden=True)
    return EnableDecision(not against, against or ("enabled=True" if config.enabled else "no switch disables graphs"))
