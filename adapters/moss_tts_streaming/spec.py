"""How the kit builds, feeds and judges the streaming decoder of the MOSS-TTS codec of the installed vllm-omni."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.registry import spec_of
from conformance.spec import AdapterSpec
from conformance.traces import load_trace
from runner import GraphAdapter

from .adapter import MossTTSStreamingAdapter

MOSS: Any = spec_of("moss_tts")
CONTEXT = 0.06  # s: attention looks back over six frames, so that a ring cache wraps within a call or two
STREAMS = 9  # more than any check or trace puts into one batch
ROWS = 8  # of the largest bucket that is captured, production's included


class MossTTSStreamingSpec(AdapterSpec):
    """MOSS-TTS codec decoder, streaming: a state a stream, in slots."""

    name = "moss_tts_streaming"
    adapter = MossTTSStreamingAdapter
    buckets = (
        {"batch": 1, "frames": 1},
        {"batch": 1, "frames": 5},
        {"batch": 2, "frames": 5},
        {"batch": 4, "frames": 1},
        {"batch": 4, "frames": 5},
    )
    sample_rate = MOSS.sample_rate
    hop = MOSS.hop
    slots_input = "slots"
    capabilities = Capabilities(
        variable_length=unsupported("rows of a call have as many frames as one another: padding would be remembered"),
        streaming=supported(),
        randomness=unsupported("the decoder draws nothing"),
        state=supported(),
        low_precision=unsupported("the quantizer computes in float32 whatever the weights are"),
        autocast=unsupported("the ring caches have the weights' dtype and refuse keys in another"),
        zero_length=unsupported("a chunk has at least one frame"),
        threads=unsupported("one pool of states, which calls move on in turn"),
    )
    trace = load_trace(__file__)
    serving_buckets = tuple({"batch": rows, "frames": frames} for rows in (1, 2, 4, 8) for frames in (1, 15))
    min_hit_rate = 0.9  # all but each request's last chunk
    requires = MOSS.requires
    loads_checkpoints = True

    def build(self, device: torch.device, checkpoint: Path | None) -> MossTTSStreamingAdapter:
        """All slots are in the middle of a stream, each somewhere else: states drawn, as no call has run yet."""
        codec = MOSS.codec(device, checkpoint, CONTEXT)
        self.sample_rate, self.hop = MOSS.sample_rate, MOSS.hop
        adapter = MossTTSStreamingAdapter(codec, STREAMS, ROWS)
        for name, tensor in self.state_tensors(adapter).items():
            if name == "offsets":
                tensor.copy_(3 * torch.arange(STREAMS)[:, None])
            else:
                tensor.copy_(torch.randn(tensor.shape))
        return adapter

    def make_inputs(
        self, adapter: GraphAdapter, sizes: Mapping[str, int], generator: torch.Generator
    ) -> dict[str, torch.Tensor]:
        assert isinstance(adapter, MossTTSStreamingAdapter)
        shape = (sizes["batch"], adapter.sizes["n_vq"], sizes["frames"])
        codes = torch.randint(0, adapter.module.config.codebook_size, shape, generator=generator)
        return {"codes": codes, "slots": torch.randperm(STREAMS, generator=generator)[: sizes["batch"]]}

    def state_tensors(self, adapter: GraphAdapter) -> Mapping[str, torch.Tensor]:
        """The live slots of each attention's ring cache, `[slots, 2, heads, context, width]`, and of all offsets."""
        assert isinstance(adapter, MossTTSStreamingAdapter)
        model = adapter.module
        state = {"offsets": model._decoder_slot_offsets.t()}  # `[slots, attentions]`
        for number, attention in enumerate(model._decoder_streaming_attentions):
            state[f"ring{number}"] = attention._streaming_state.kv_cache.cache.transpose(0, 1)
        return {name: tensor[:STREAMS] for name, tensor in state.items()}

    def reset_slots(self, adapter: GraphAdapter, slots: torch.Tensor) -> None:
        assert isinstance(adapter, MossTTSStreamingAdapter)
        adapter.reset(slots)
