"""Adapters whose axes are not those of the reference: no batch, or rows alone with codes for outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.outcome import Outcome
from conformance.spec import AdapterSpec
from conformance.traces import Trace
from runner import EXACT, PADDED, AxisMode, CapturedMinusPadding, GraphAdapter, InputSpec, OutputSpec
from tests.inner_run import run_suite
from tests.mutants.base import HOP, ReferenceSpec


class OneRequestAdapter(GraphAdapter):
    """The reference codec for one request a call, whose code rows vary, and neither they nor frames may be padded."""

    inputs = (InputSpec("codes", torch.long, ("code_rows", "frames")),)
    outputs = (OutputSpec("wav", (1, "samples"), length=CapturedMinusPadding(scale=HOP)),)
    axes: ClassVar[dict[str, AxisMode]] = {"code_rows": EXACT, "frames": EXACT}

    def __init__(self, module: Any) -> None:
        self.module = module

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        missing = torch.zeros(self.module.n_vq - codes.shape[0], codes.shape[1], dtype=torch.long, device=codes.device)
        return self.module(torch.cat([codes, missing])[None])[0]


class OneRequestSpec(ReferenceSpec):
    """No batch axis, and every axis exact."""

    name = "one_request"
    adapter = OneRequestAdapter
    buckets = ({"code_rows": 1, "frames": 4}, {"code_rows": 2, "frames": 4}, {"code_rows": 2, "frames": 8})
    trace = Trace.of({"code_rows": 2, "frames": 4}, {"code_rows": 2, "frames": 8})

    def make_inputs(self, adapter: Any, sizes: Mapping[str, int], generator: torch.Generator) -> Any:
        return {"codes": torch.randint(0, 64, (sizes["code_rows"], sizes["frames"]), generator=generator)}


class Chooser(nn.Module):
    """`[batch, 16]` to 4 codes of 32 a row, `[batch, 4]` int64."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.Linear(16, 4 * 32)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.heads(hidden).view(-1, 4, 32).argmax(-1)


class ChooserAdapter(GraphAdapter):
    inputs = (InputSpec("hidden", torch.float32, ("batch", "width")),)
    outputs = (OutputSpec("codes", ("batch", 4)),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED}

    def __init__(self, module: nn.Module) -> None:
        self.module, self.sizes = module, {"width": 16}
        dtype = next(module.parameters()).dtype
        self.inputs = (InputSpec("hidden", dtype, ("batch", "width")),)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.module(hidden)


class ChooserSpec(AdapterSpec):
    """Rows alone, no output with a length, and no output of floats."""

    name = "chooser"
    adapter = ChooserAdapter
    buckets = ({"batch": 1}, {"batch": 4})
    sample_rate, hop = 100, 4
    capabilities = Capabilities(
        variable_length=unsupported("a call is one frame of each request"),
        streaming=unsupported("a call is one frame of each request"),
        randomness=unsupported("draws nothing"),
        state=unsupported("keeps nothing"),
        low_precision=supported(),
        autocast=supported(),
        zero_length=supported(),
        threads=supported(),
    )

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        return ChooserAdapter(Chooser().eval().to(device))

    def cast(self, adapter: Any, dtype: torch.dtype) -> Any:
        return ChooserAdapter(adapter.module.to(dtype))

    def make_inputs(self, adapter: Any, sizes: Mapping[str, int], generator: torch.Generator) -> Any:
        hidden = torch.randn(sizes["batch"], 16, generator=generator)
        return {"hidden": hidden.to(next(adapter.module.parameters()).dtype)}


class DeafChooserSpec(ChooserSpec):
    """Its codes follow from nothing: weights of zero."""

    name = "deaf_chooser"

    def build(self, device: torch.device, checkpoint: Path | None) -> Any:
        adapter = super().build(device, checkpoint)
        with torch.no_grad():
            adapter.module.heads.weight.zero_()
        return adapter


@pytest.mark.parametrize("spec", ["OneRequestSpec", "ChooserSpec"])
def test_every_check_runs_on_any_axes(pytester: pytest.Pytester, spec: str) -> None:
    records, exit_code = run_suite(pytester, f"--adapter={__name__}:{spec}", "--graph-device=emulated")
    assert exit_code == 0
    assert {record.outcome for record in records} == {Outcome.PASS, Outcome.NOT_APPLICABLE}
    assert any(record.check == "CG201-exact-bucket" and record.evidence["replays"] for record in records)


def test_codes_that_hear_nothing_are_told(pytester: pytest.Pytester) -> None:
    records, exit_code = run_suite(
        pytester, f"--adapter={__name__}:DeafChooserSpec", "--graph-device=emulated", "-k", "CG002 or CG201"
    )
    assert exit_code == 1
    told = {record.check: record for record in records if record.outcome is Outcome.FAIL}
    assert list(told) == ["CG002-loud"]
    assert told["CG002-loud"].message.startswith("every output is the same when the whole input changes")
