"""A graph wrapper that exists already, unmodified, as a subject: `moss_tts@vllm_omni` beside `moss_tts`.

Its spec names the wrapper's constructor, warm-up and call; the adapter beside it describes what the package computes
eagerly. Nothing of the wrapper is changed, and nothing is asked of it that its own users could not ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from conformance.spec import AdapterSpec
from runner import GraphAdapter, GraphConfig, decide_enabled


class WrapperSpec(AdapterSpec):
    """Subclass it in `adapters/NAME@PACKAGE/spec.py`: the model's own class around the wrapper, in three methods.

    `build` gives an adapter whose `forward` is the package's eager path: what its users hear without the wrapper.
    `captured` names the module's callable that the wrapper captures, and `captured_sizes` reads its arguments.
    """

    takes_pool = False

    def make_wrapper(self, adapter: GraphAdapter, device: torch.device) -> Any:
        """The wrapper as its package constructs it, with `self.buckets` as its sizes. Captures nothing yet."""
        raise NotImplementedError

    def warm(self, wrapper: Any, device: torch.device) -> None:
        """Capture, as the package does at start-up."""
        raise NotImplementedError

    def answer(self, wrapper: Any, inputs: Mapping[str, torch.Tensor]) -> Any:
        """One request through the wrapper: `inputs` by name, to what `forward` gives for them."""
        raise NotImplementedError

    def wanted(self, config: GraphConfig, device: torch.device) -> bool:
        """Whether the package makes the wrapper at all under these switches. Override it where it ignores some."""
        return decide_enabled(device, config)[0]

    def make_runner(
        self, adapter: GraphAdapter, device: torch.device, config: GraphConfig | None = None, pool: Any = None
    ) -> Any:
        return WrappedRunner(self, adapter, device, self.wanted(config or GraphConfig(), device))


class WrappedRunner:
    """The protocol of a runner, spoken for a wrapper: warm-up, calls by input name, close. It keeps no statistics.

    Without the wrapper, before it is wanted or after close, calls run eagerly, as in the package.
    """

    def __init__(self, spec: WrapperSpec, adapter: GraphAdapter, device: torch.device, wanted: bool) -> None:
        self._spec, self._adapter, self._device = spec, adapter, device
        self._wrapper = spec.make_wrapper(adapter, device) if wanted else None

    def warmup(self) -> None:
        if self._wrapper is not None:
            self._spec.warm(self._wrapper, self._device)

    def __call__(self, **inputs: torch.Tensor) -> Any:
        with torch.no_grad():
            if self._wrapper is not None:
                return self._spec.answer(self._wrapper, inputs)
            result = self._adapter.forward(*[inputs[spec.name] for spec in self._adapter.device_inputs()])
            return self._adapter.rows_of(result, inputs)

    def close(self) -> None:
        """Let the wrapper go: it has no end of its own that a server could ask for."""
        if self._wrapper is not None and not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize(self._device)
            self._wrapper = None
            torch.cuda.empty_cache()
