"""Mistakes with state in slots, class J, and around a module that refuses autocast, class I."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from conformance.capabilities import supported, unsupported
from conformance.traces import Trace
from runner import EXACT, PADDED, AxisMode, GraphAdapter, GraphRunner, InputSpec, Nominal, OutputSpec
from tests.mutants.base import HOP, Mutant, ReferenceSpec, with_adapter, with_runner
from tests.mutants.inputs import ReplaysUnderAutocast

SLOTS = 9  # what the kit calls in one batch, past the largest bucket, has room
SCRATCH = 4  # rows of the largest bucket
CONTEXT = 4  # frames that the codec hears back


class SlottedCodec(nn.Module):
    """The reference codec as a stream: the last four frames of each stream are kept in its slot.

    A slot may be -1: its row only pads the batch, and its state goes to the scratch slot of that row.
    """

    def __init__(self, codec: Any) -> None:
        super().__init__()
        self.codec = codec
        self.n_vq = codec.n_vq
        device = next(codec.parameters()).device
        self.pool = torch.randint(0, 64, (SLOTS + SCRATCH, codec.n_vq, CONTEXT), device=device)

    def forward(self, codes: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """`[batch, n_vq, frames]` and `[batch]` to `[batch, 1, 8·frames]`."""
        if slots.shape != codes.shape[:1] or not codes.shape[-1]:
            raise ValueError(f"expected frames, and a slot for each row of {tuple(codes.shape)}")
        if torch.is_autocast_enabled("cuda"):
            raise TypeError("a stream goes on in the precision that it began in")
        valid = slots >= 0
        slots = torch.where(valid, slots, SLOTS + torch.arange(len(slots), device=slots.device))
        old = self.pool.index_select(0, slots)
        history = torch.cat([old, codes], dim=-1)
        kept = torch.where(valid[:, None, None], history[..., -CONTEXT:], old)
        self.pool.index_copy_(0, slots, kept)
        wav: torch.Tensor = self.codec(history)
        return wav[..., -HOP * codes.shape[-1] :]


class SlottedAdapter(GraphAdapter):
    """Rows that pad the batch have slot -1; frames are exact, since a state would move on by padding."""

    inputs = (
        InputSpec("codes", torch.long, ("batch", "n_vq", "frames")),
        InputSpec("slots", torch.long, ("batch",), pad=-1),
    )
    outputs = (OutputSpec("wav", ("batch", 1, "samples"), length=Nominal(HOP)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": EXACT}

    def __init__(self, module: SlottedCodec) -> None:
        self.module = module
        self.sizes = {"n_vq": module.n_vq}

    def forward(self, codes: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        return self.module(codes, slots)


class SlottedSpec(ReferenceSpec):
    """The correct subject that keeps state in slots, all of them in the middle of a stream."""

    name = "correct_slotted"
    adapter = SlottedAdapter
    buckets = ({"batch": 1, "frames": 4}, {"batch": 1, "frames": 8}, {"batch": 4, "frames": 8})
    trace = Trace.of({"batch": 1, "frames": 4}, {"batch": 3, "frames": 8})
    left_context = 0
    slots_input = "slots"
    capabilities = replace(
        ReferenceSpec.capabilities,
        variable_length=unsupported("rows of a call have as many frames as one another"),
        state=supported(),
        autocast=unsupported("a stream goes on in the precision that it began in"),
        threads=unsupported("one pool of states, which calls move on in turn"),
    )

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        return self.adapter(SlottedCodec(super().build(device, checkpoint).module))

    def make_inputs(self, adapter: Any, sizes: Mapping[str, int], generator: torch.Generator) -> Any:
        codes = super().make_inputs(adapter, sizes, generator)
        return {**codes, "slots": torch.randperm(SLOTS, generator=generator)[: sizes["batch"]]}

    def state_tensors(self, adapter: Any) -> Mapping[str, torch.Tensor]:
        return {"pool": adapter.module.pool[:SLOTS]}

    def reset_slots(self, adapter: Any, slots: torch.Tensor) -> None:
        adapter.module.pool.index_fill_(0, slots, 0)


class PadsWithTheLastSlot(SlottedAdapter):
    """Slot -1 of a row that only pads the batch is taken for the last slot.

    https://github.com/vllm-project/vllm/issues/43810
    """

    def forward(self, codes: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        return super().forward(codes, torch.where(slots < 0, SLOTS - 1, slots))


class _WritesBackAPoolOfItsOwn(GraphRunner):
    """Each replay ends with the whole pool as the replay before left it, but for the slots of its own rows."""

    kept: Any = None

    def _replay(self, plan: Any, inputs: Any) -> Any:
        result = super()._replay(plan, inputs)
        adapter: Any = self._adapter
        pool, own = adapter.module.pool, self._named(inputs)["slots"]
        if self.kept is not None:
            self.kept.index_copy_(0, own, pool.index_select(0, own))
            pool.copy_(self.kept)
        self.kept = pool.clone()
        return result

    def close(self) -> None:
        super().close()
        self.kept = None


class ResetMakesANewPool(SlottedSpec):
    """A reset makes a new pool of states, and the graphs go on in the old one.

    https://github.com/sgl-project/sglang-omni/issues/801
    """

    name = "ResetMakesANewPool"

    def reset_slots(self, adapter: Any, slots: torch.Tensor) -> None:
        adapter.module.pool = adapter.module.pool.index_fill(0, slots, 0)


class ResetForgetsHalf(SlottedSpec):
    """A reset clears two of the four frames: the next stream begins in the last one's past.

    https://github.com/sgl-project/sglang/pull/30986
    """

    name = "ResetForgetsHalf"

    def reset_slots(self, adapter: Any, slots: torch.Tensor) -> None:
        adapter.module.pool[..., 2:].index_fill_(0, slots, 0)


class ResetClearsThePool(SlottedSpec):
    """A stream that ends takes the others' past with it. https://github.com/vllm-project/vllm-omni/pull/7416"""

    name = "ResetClearsThePool"

    def reset_slots(self, adapter: Any, slots: torch.Tensor) -> None:
        adapter.module.pool.zero_()


class ClaimsAutocast(SlottedSpec):
    """Nobody ran the module under autocast, which it refuses. https://github.com/vllm-project/vllm-omni/pull/4341"""

    name = "ClaimsAutocast"
    capabilities = replace(SlottedSpec.capabilities, autocast=supported())


MUTANTS = tuple(
    Mutant(spec, frozenset(codes.split()))
    for spec, codes in (
        (with_adapter(SlottedSpec, PadsWithTheLastSlot), "CG105 CG309"),
        (
            with_runner(
                _WritesBackAPoolOfItsOwn,
                "WritesBackAPoolOfItsOwn",
                "A stale pool is written over streams that are not in the batch. "
                "https://github.com/NVIDIA/TensorRT-LLM/pull/13151",
                SlottedSpec,
            ),
            "CG306 CG309 CG310",
        ),
        # The kit, too, writes its starting state into the old pool from then on.
        (ResetMakesANewPool, "CG310 CG401 CG402 CG403 CG404 CG408 CG504 CG604"),
        (ResetForgetsHalf, "CG310"),
        (ClaimsAutocast, "CG211"),
        (
            with_runner(
                ReplaysUnderAutocast,
                "ReplaysWhereEagerRefuses",
                "Nobody asks whether autocast is on. https://github.com/vllm-project/vllm-omni/pull/4341",
                SlottedSpec,
            ),
            "CG211",
        ),
        (ResetClearsThePool, "CG310"),
    )
)
