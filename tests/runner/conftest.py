"""Run the runner's tests on the emulation, or on a real GPU where there is one."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def cuda():
    """CUDA, real where there is a GPU and emulated elsewhere."""
    if torch.cuda.is_available():
        yield torch.device("cuda", torch.cuda.current_device())
        return
    from conformance.emulation import emulated_cuda

    with emulated_cuda():
        yield torch.device("cuda", 0)


@pytest.fixture
def adapter(cuda):
    from codecs_for_tests import CodecAdapter

    return CodecAdapter(cuda)


@pytest.fixture
def runner(adapter, cuda):
    from codecs_for_tests import warm

    return warm(adapter, cuda)
