"""Sequences of calls start from a device that the sequence before left as it found it, or not."""

from __future__ import annotations

import pytest
import torch

from conformance.device import open_device
from conformance.instruments.sequences import run_steps
from conformance.subject import open_subject
from tests.mutants.lengths import NoisySpec


def capture_what_is_refused() -> None:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.rand(1, device="cuda")
        torch.cuda.synchronize()


def test_a_sequence_after_a_broken_capture_is_judged_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    """A refusal leaves the default generator capturing, where a module that draws gets no numbers."""
    with open_device("emulated") as machine:
        subject = open_subject(NoisySpec(), machine, 0, None)
        with pytest.raises(RuntimeError):
            capture_what_is_refused()
        with pytest.raises(RuntimeError, match="Offset increment"):
            torch.rand(1, device="cuda")
        assert run_steps(subject, [("call", subject.spec.buckets[0])]) == 1
        assert "capture of bucket" not in caplog.text, "its warm-up met what the sequence before left behind"
        subject.close()
