"""What a failed capture leaves behind must not reach the captures after it, nor the eager calls."""

from __future__ import annotations

import torch

from conformance.device import open_device
from runner import PADDED, GraphAdapter, GraphRunner, InputSpec, OutputSpec


class Noisy(GraphAdapter):
    """Adds noise; its first capture waits for the device, which is refused."""

    inputs = (InputSpec("wav", torch.float32, ("batch", "samples")),)
    outputs = (OutputSpec("noisy", ("batch", "samples")),)
    axes = {"batch": PADDED, "samples": PADDED}  # noqa: RUF012 - the declaration

    def __init__(self) -> None:
        self.captures = 0

    def forward(self, wav: torch.Tensor) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            self.captures += 1
            if self.captures == 1:
                torch.cuda.synchronize()
        return wav + torch.randn_like(wav)


def test_a_module_that_draws_is_captured_and_drawn_from_after_another_buckets_failure() -> None:
    with open_device("auto"):
        runner = GraphRunner(Noisy(), ({"batch": 1, "samples": 8}, {"batch": 1, "samples": 4}), device="cuda")
        runner.warmup()
        assert [str(bucket) for bucket in runner.failed] == ["b1-s8"]
        assert [str(bucket) for bucket in runner.captured] == ["b1-s4"]
        assert runner(torch.zeros(1, 8, device="cuda")).abs().sum() > 0
        assert runner(torch.zeros(1, 4, device="cuda")).abs().sum() > 0
