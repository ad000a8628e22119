"""One configuration for every inner graph, given directly or read from a real `VllmConfig` without importing vllm."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Self

from runner.errors import ConfigError

# vllm.config.compilation.CUDAGraphMode (vllm 0.30.0): member name → value.
_MODES = {"NONE": 0, "PIECEWISE": 1, "FULL": 2, "FULL_DECODE_ONLY": (2, 0), "FULL_AND_PIECEWISE": (2, 1)}


def cudagraph_mode_name(mode: object) -> str | None:
    """The CUDAGraphMode name of a member, name (any case) or value; None for None. Raises ConfigError otherwise."""
    if mode is None:
        return None
    name = getattr(mode, "name", mode)
    for known, value in _MODES.items():
        if str(name).upper() == known or (type(name) is type(value) and name == value):
            return known
    raise ConfigError(f"cudagraph_mode must be one of {', '.join(_MODES)} or None, found {mode!r}")


MOST_ROWS = 4096  # of a capture size: beyond it a number of frames or tokens was meant


@dataclass(frozen=True)
class GraphConfig:
    """Switches of one component's graphs; a wrong one raises ConfigError with field, value and what is allowed.

    `enabled=None` follows `enforce_eager` and `cudagraph_mode`. `cudagraph_capture_sizes` are vLLM's batch sizes:
    buckets of more rows than the largest are not captured. Buckets that `memory_limit_bytes` of reserved memory do not
    hold are left to eager, those given last first. `lazy` captures at a size's second call, at most
    `max_lazy_graphs`, and lets the least recently used go. `compile` captures the forward that torch.compile makes.
    """

    enabled: bool | None = None
    enforce_eager: bool = False
    cudagraph_mode: object = None
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    warmup_iterations: int = 2
    memory_limit_bytes: int | None = None
    lazy: bool = False
    max_lazy_graphs: int | None = None
    compile: bool = False

    def __post_init__(self) -> None:
        cudagraph_mode_name(self.cudagraph_mode)
        if self.enabled is not None and not isinstance(self.enabled, bool):
            raise ConfigError(f"enabled must be True, False or None (follow vLLM's switches), found {self.enabled!r}")
        for name in ("enforce_eager", "lazy", "compile"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be True or False, found {getattr(self, name)!r}")
        for name, optional in (("warmup_iterations", False), ("memory_limit_bytes", True), ("max_lazy_graphs", True)):
            value = getattr(self, name)
            if not (optional and value is None) and (type(value) is not int or value < 1):
                raise ConfigError(f"{name} must be an int of at least 1{' or None' * optional}, found {value!r}")
        sizes = self.cudagraph_capture_sizes
        if sizes is not None:
            wrong = [size for size in sizes if type(size) is not int or not 1 <= size <= MOST_ROWS]
            if wrong or not sizes:
                found = f"found {wrong[0]!r}" if wrong else "found none"
                raise ConfigError(f"cudagraph_capture_sizes must be ints from 1 to {MOST_ROWS}, {found}")
            object.__setattr__(self, "cudagraph_capture_sizes", tuple(sizes))
        if self.lazy and self.max_lazy_graphs is None:
            raise ConfigError("max_lazy_graphs must be an int of at least 1 with lazy=True, found None")
        if self.lazy and self.memory_limit_bytes is not None:
            raise ConfigError("memory_limit_bytes goes with captures at start-up; with lazy=True give max_lazy_graphs")

    @classmethod
    def from_vllm_config(cls, vllm_config: Any, component: str) -> Self:
        """Read `compilation_config`, `model_config` and `additional_config["audiograph"][component]`, all optional."""
        additional = getattr(vllm_config, "additional_config", None)
        components: Any = additional.get("audiograph", {}) if isinstance(additional, Mapping) else {}
        section: Any = components.get(component, {}) if isinstance(components, Mapping) else components
        where = f'additional_config["audiograph"][{component!r}]'
        known = [field.name for field in fields(cls)]
        if not isinstance(section, Mapping):
            raise ConfigError(f"{where} must be a mapping of {', '.join(known)}, found {section!r}")
        for key in set(section) - set(known):
            near = "".join(f"; did you mean {name!r}?" for name in get_close_matches(str(key), known, n=1))
            raise ConfigError(f"{where}: expected one of {', '.join(known)}, found {key!r}{near}")
        compilation = getattr(vllm_config, "compilation_config", None)
        sizes = getattr(compilation, "cudagraph_capture_sizes", None)
        given = {
            "enforce_eager": bool(getattr(getattr(vllm_config, "model_config", None), "enforce_eager", False)),
            "cudagraph_mode": getattr(compilation, "cudagraph_mode", None),
            "cudagraph_capture_sizes": tuple(sizes) if sizes else None,
        }
        return cls(**{**given, **section})
