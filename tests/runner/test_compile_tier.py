"""What the compile tier captures: Inductor's forward, which differs from the module by rounding and nothing else.

The emulation cannot hold Inductor's kernels, so they are run here without a graph, on the host.
"""

import pytest
import torch

from conformance.registry import spec_of
from runner import GraphConfig, GraphRunner


@pytest.mark.slow
def test_inductors_forward_is_eagers_within_the_allowance_of_the_checks():
    spec = spec_of("reference")
    torch.manual_seed(0)
    adapter = spec.build(torch.device("cpu"), None)
    compiled = torch.compile(adapter.forward, dynamic=False)
    with torch.no_grad():
        for frames in (4, 8):
            sizes = {"batch": 1, "frames": frames}
            codes = spec.make_inputs(adapter, sizes, torch.Generator().manual_seed(0))["codes"]
            expected = adapter.forward(codes)
            assert float((compiled(codes) - expected).abs().max()) <= 1e-4 * float(expected.abs().max())


@pytest.mark.gpu
@pytest.mark.parametrize("frames", [4, 8])
def test_a_replay_of_the_compile_tier_is_eagers_within_rounding(frames):
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    spec = spec_of("reference")
    torch.manual_seed(0)
    adapter = spec.build(torch.device("cuda", 0), None)
    buckets = [{"batch": 1, "frames": size} for size in range(1, 13)]
    runner = GraphRunner(adapter, buckets, device="cuda", config=GraphConfig(compile=True))
    runner.warmup()
    assert (len(runner.captured), runner.failed) == (12, {})
    codes = spec.make_inputs(adapter, {"batch": 1, "frames": frames}, torch.Generator().manual_seed(0))["codes"].cuda()
    with torch.no_grad():
        expected = adapter.forward(codes)
    assert float((runner(codes) - expected).abs().max()) <= 1e-4 * float(expected.abs().max())
    assert runner.statistics.snapshot()["hits"] == 1
