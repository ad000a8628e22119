"""One configuration for every inner graph, given directly or read from a `VllmConfig`, and what its switches decide."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Self

import torch

from runner.errors import ConfigError

_MODES = {"NONE": 0, "PIECEWISE": 1, "FULL": 2, "FULL_DECODE_ONLY": (2, 0), "FULL_AND_PIECEWISE": (2, 1)}
MOST_ROWS = 4096  # of a capture size: beyond it a number of frames or tokens was meant


def cudagraph_mode_name(mode: object) -> str | None:
    """Name of a member, name (any case) or value of vllm 0.30's CUDAGraphMode; None for None. Raises ConfigError."""
    if mode is None:
        return None
    name = getattr(mode, "name", mode)
    for known, value in _MODES.items():
        if str(name).upper() == known or (type(name) is type(value) and name == value):
            return known
    raise ConfigError(f"cudagraph_mode must be one of {', '.join(_MODES)} or None, found {mode!r}")


@dataclass(frozen=True)
class GraphConfig:
    """Switches of one component's graphs; a wrong one raises ConfigError with field, value and what is allowed."""

    enabled: bool | None = None  # None: as `enforce_eager` and `cudagraph_mode` say
    enforce_eager: bool = False
    cudagraph_mode: object = None
    cudagraph_capture_sizes: Sequence[int] | None = None  # batch sizes: a bucket of more rows than the largest is eager
    warmup_iterations: int = 2
    memory_limit_bytes: int | None = None  # reserved: buckets that it does not hold are eager, those given last first
    lazy: bool = False  # a bucket is captured when it is first called for
    max_lazy_graphs: int | None = None  # kept under `lazy`; the least recently used goes
    compile: bool = False  # what is captured is the forward that torch.compile makes

    def __post_init__(self) -> None:
        cudagraph_mode_name(self.cudagraph_mode)
        for name in ("enforce_eager", "lazy", "compile", "enabled"):
            if not isinstance(value := getattr(self, name), bool) and (value is not None or name != "enabled"):
                raise ConfigError(f"{name} must be True or False{' or None' * (name == 'enabled')}, found {value!r}")
        for name in ("memory_limit_bytes", "max_lazy_graphs", "warmup_iterations"):
            value = getattr(self, name)
            optional = name == "memory_limit_bytes" or (name == "max_lazy_graphs" and not self.lazy)
            if (type(value) is not int or value < 1) and (value is not None or not optional):
                raise ConfigError(f"{name} must be an int of at least 1{' or None' * optional}, found {value!r}")
        if (sizes := self.cudagraph_capture_sizes) is not None:
            right = isinstance(sizes, list | tuple) and all(type(n) is int and 1 <= n <= MOST_ROWS for n in sizes)
            if not (right and sizes):
                raise ConfigError(f"cudagraph_capture_sizes must list ints from 1 to {MOST_ROWS}, found {sizes!r}")
            object.__setattr__(self, "cudagraph_capture_sizes", tuple(sizes))
        if self.lazy and self.memory_limit_bytes is not None:
            raise ConfigError("memory_limit_bytes goes with captures at start-up; with lazy=True give max_lazy_graphs")

    @classmethod
    def from_vllm_config(cls, vllm_config: Any, component: str) -> Self:
        """Read `compilation_config`, `model_config` and `additional_config["audiograph"][component]`, all optional."""
        additional = getattr(vllm_config, "additional_config", None)
        components: Any = additional.get("audiograph", {}) if isinstance(additional, Mapping) else {}
        section: Any = components.get(component, {}) if isinstance(components, Mapping) else components
        where, known = f'additional_config["audiograph"][{component!r}]', [field.name for field in fields(cls)]
        if not isinstance(section, Mapping):
            raise ConfigError(f"{where} must be a mapping of {', '.join(known)}, found {section!r}")
        for key in set(section).difference(known):
            near = "".join(f"; did you mean {name!r}?" for name in get_close_matches(str(key), known, n=1))
            raise ConfigError(f"{where}: expected one of {', '.join(known)}, found {key!r}{near}")
        compilation, model = (getattr(vllm_config, f"{part}_config", None) for part in ("compilation", "model"))
        given = {
            "enforce_eager": bool(getattr(model, "enforce_eager", False)),
            "cudagraph_mode": getattr(compilation, "cudagraph_mode", None),
            "cudagraph_capture_sizes": getattr(compilation, "cudagraph_capture_sizes", None) or None,
        }
        return cls(**{**given, **section})


def decide_enabled(device: torch.device | str, config: GraphConfig) -> tuple[bool, str]:
    """Whether graphs are used, and the switch that decided or ""; `enabled=True` overrides vLLM's, not the device."""
    if torch.device(device).type != "cuda":
        return False, f"device is {device}, and CUDA graphs need cuda"
    if config.enabled is False:
        return False, "enabled=False"
    none = cudagraph_mode_name(config.cudagraph_mode) == "NONE"
    against = "enforce_eager=True" if config.enforce_eager else "cudagraph_mode=NONE" if none else ""
    if against and config.enabled:
        return True, f"enabled=True overrides {against}"
    return not against, against
