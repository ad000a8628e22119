"""Workers of pytest-xdist share the GPUs of a machine round and round."""

import pytest

from conformance.gpus import take_own_gpu


@pytest.mark.parametrize(
    ("worker", "visible", "count", "found"),
    [
        ("gw0", None, 2, "0"),
        ("gw1", None, 2, "1"),
        ("gw2", None, 2, "0"),
        ("gw11", None, 8, "3"),
        ("gw1", "4,6", 2, "6"),
        ("gw2", "GPU-a,GPU-b", 2, "GPU-a"),
        ("gw1", None, 1, None),
        ("gw1", "5", 1, "5"),
        ("gw1", None, 0, None),
        ("master", None, 2, None),
        (None, None, 2, None),
    ],
)
def test_worker_i_takes_gpu_i_modulo_their_number(worker, visible, count, found):
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    take_own_gpu(worker, environment, count)
    assert environment.get("CUDA_VISIBLE_DEVICES") == found
