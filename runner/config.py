"""One configuration for every inner graph, given directly or read from a real `VllmConfig` without importing vllm."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Self

from runner.errors import ConfigError

# vllm.config.compilation.CUDAGraphMode (vllm 0.30.0): member name → value.
_MODES = {"NONE": 0, "PIECEWISE": 1, "FULL": 2, "FULL_DECODE_ONLY": (2, 0), "FULL_AND_PIECEWISE": (2, 1)}
_SECTION = ("enabled", "warmup_iterations")


def cudagraph_mode_name(mode: object) -> str | None:
    """The CUDAGraphMode name of a member, name (any case) or value; None for None. Raises ConfigError otherwise."""
    if mode is None:
        return None
    name = getattr(mode, "name", mode)
    for known, value in _MODES.items():
        if str(name).upper() == known or (type(name) is type(value) and name == value):
            return known
    raise ConfigError(f"cudagraph_mode must be one of {', '.join(_MODES)} or None, found {mode!r}")


@dataclass(frozen=True)
class GraphConfig:
    """Switches of one component's graphs. `enabled=None` follows `enforce_eager` and `cudagraph_mode`."""

    enabled: bool | None = None
    enforce_eager: bool = False
    cudagraph_mode: object = None
    warmup_iterations: int = 2

    def __post_init__(self) -> None:
        cudagraph_mode_name(self.cudagraph_mode)
        if self.enabled is not None and not isinstance(self.enabled, bool):
            raise ConfigError(f"enabled must be True, False or None (follow vLLM's switches), found {self.enabled!r}")
        if type(self.warmup_iterations) is not int or self.warmup_iterations < 1:
            raise ConfigError(f"warmup_iterations must be an int of at least 1, found {self.warmup_iterations!r}")

    @classmethod
    def from_vllm_config(cls, vllm_config: Any, component: str) -> Self:
        """Read `compilation_config`, `model_config` and `additional_config["audiograph"][component]`, all optional."""
        additional = getattr(vllm_config, "additional_config", None)
        components: Any = additional.get("audiograph", {}) if isinstance(additional, Mapping) else {}
        section: Any = components.get(component, {}) if isinstance(components, Mapping) else components
        where = f'additional_config["audiograph"][{component!r}]'
        if not isinstance(section, Mapping):
            raise ConfigError(f"{where} must be a mapping of {', '.join(_SECTION)}, found {section!r}")
        for key in set(section) - set(_SECTION):
            near = "".join(f"; did you mean {name!r}?" for name in get_close_matches(str(key), _SECTION, n=1))
            raise ConfigError(f"{where}: expected {' or '.join(_SECTION)}, found {key!r}{near}")
        return cls(
            enforce_eager=bool(getattr(getattr(vllm_config, "model_config", None), "enforce_eager", False)),
            cudagraph_mode=getattr(getattr(vllm_config, "compilation_config", None), "cudagraph_mode", None),
            **section,
        )
