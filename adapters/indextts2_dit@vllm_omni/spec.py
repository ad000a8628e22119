"""IndexTTS2's DiT runner that vllm-omni 0.30.0 ships, unmodified: `CUDAGraphDiTRunner` around the transformer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.registry import spec_of
from conformance.wrapped import WrapperSpec
from runner import EXACT, AxisMode, GraphAdapter, GraphConfig, InputSpec, Nominal, OutputSpec

DIT = spec_of("indextts2_dit")


class DiTTransformer(GraphAdapter):
    """The transformer inside the estimator, called as the estimator calls it: every frame attends to every other."""

    inputs = (
        InputSpec("x", torch.float32, ("batch", "frames", "dim")),
        InputSpec("c", torch.float32, ("batch", 1, "dim")),
    )
    outputs = (OutputSpec("hidden", ("batch", "hidden_frames", "dim"), length=Nominal(scale=1)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": EXACT, "frames": EXACT}

    def __init__(self, module: Any) -> None:
        self.module = module
        self.sizes = {"dim": module.config.dim}
        dtype = next(module.parameters()).dtype
        self.inputs = tuple(InputSpec(spec.name, dtype, spec.axes) for spec in type(self).inputs)
        for layer in module.layers:  # as the decoder does wherever it switches the graphs on
            layer.attention._assume_full_mask = True

    def arguments(self, x: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """With positions and the mask, which follow from the number of frames."""
        rows, frames = x.shape[:2]
        positions = torch.arange(frames, device=x.device)
        return x, c, positions, torch.ones(rows, 1, frames, frames, dtype=torch.bool, device=x.device)

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        """`[batch, frames, dim]` and `[batch, 1, dim]` to `[batch, frames, dim]`."""
        hidden: torch.Tensor = self.module(*self.arguments(x, c))
        return hidden


class DiTWrapper(WrapperSpec):
    """IndexTTS2's DiT behind vllm-omni's own graphs: one for each shape, captured at its first call."""

    name = "indextts2_dit@vllm_omni"
    adapter = DiTTransformer
    buckets = ({"batch": 2, "frames": 5}, {"batch": 2, "frames": 12}, {"batch": 4, "frames": 9})
    sample_rate = DIT.sample_rate
    hop = DIT.hop
    capabilities = Capabilities(
        variable_length=unsupported("graphs are used where every row has every frame"),
        streaming=unsupported("every frame attends to every other"),
        randomness=unsupported("the transformer draws nothing"),
        state=unsupported("the transformer keeps nothing between calls"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=unsupported("a request has at least the frames of its reference"),
        threads=unsupported("a worker of vllm-omni solves in one thread"),
    )
    requires = DIT.requires

    def build(self, device: torch.device, checkpoint: Path | None) -> DiTTransformer:
        estimator: Any = DIT.module(DIT.build(device, checkpoint))
        return DiTTransformer(estimator.transformer)

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        rows, dim = sizes["batch"], adapter.sizes["dim"]
        x = torch.randn(rows, sizes["frames"], dim, generator=generator)
        c = torch.randn(rows, 1, dim, generator=generator)
        dtype = adapter.inputs[0].dtype
        return {"x": x.to(dtype), "c": c.to(dtype)}

    def cast(self, adapter: GraphAdapter, dtype: torch.dtype) -> DiTTransformer:
        return DiTTransformer(self.module(adapter).to(dtype))

    def make_wrapper(self, adapter: GraphAdapter, device: torch.device) -> Any:
        from vllm_omni.model_executor.models.indextts2.dit_cuda_graph import CUDAGraphDiTRunner

        return adapter, CUDAGraphDiTRunner(self.module(adapter), max_graphs=len(self.buckets) + 1)

    def warm(self, wrapper: Any, device: torch.device) -> None:
        """There is no warm-up: the first step of the first request of a shape captures it."""
        adapter, runner = wrapper
        dtype = next(adapter.module.parameters()).dtype
        for bucket in self.buckets:
            x = torch.zeros(bucket["batch"], bucket["frames"], adapter.sizes["dim"], device=device, dtype=dtype)
            runner(*adapter.arguments(x, x[:, :1].clone()))

    def answer(self, wrapper: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        adapter, runner = wrapper
        return runner(*adapter.arguments(inputs["x"], inputs["c"]))

    def wanted(self, config: GraphConfig, device: torch.device) -> bool:
        """The decoder reads `s2mel_dit_cuda_graph` of its own configuration, and none of vLLM's switches."""
        return config.enabled is not False

    def captured(self, adapter: GraphAdapter) -> tuple[Any, str]:
        return self.module(adapter), "forward"

    def captured_sizes(self, adapter: GraphAdapter, arguments: tuple[Any, ...]) -> dict[str, int]:
        rows, frames = arguments[0].shape[:2]
        return {"batch": rows, "frames": frames}
