"""vLLM-Omni's torch attention, for a device that its platform layer does not know.

Its implementations ask the platform for which device to compute, and without a GPU the platform is the unspecified one,
which none of them serves. Attention by `torch.nn.functional.scaled_dot_product_attention` runs on any. Imported by
vLLM-Omni alone, by the name that `vllm_platform` gives it.
"""

from __future__ import annotations

from typing import Any

from vllm_omni.diffusion.attention.backends.sdpa import SDPABackend, SDPAImpl


class EmulatedAttention(SDPAImpl):  # type: ignore[misc]
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward_cuda(*args, **kwargs)


class EmulatedAttentionBackend(SDPABackend):  # type: ignore[misc]
    @staticmethod
    def get_impl_cls() -> type[EmulatedAttention]:
        return EmulatedAttention
