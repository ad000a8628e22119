"""Stand-ins for functions of torch whose C++ makes tensors on the host, since below Python that is where they are.

`torch.nn.functional.one_hot` scatters into zeros made "where its input is", which for C++ is the host, and on a host it
looks at the values even when the number of classes is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from conformance.emulation.device import EmulatedDevice

_real_one_hot = torch._C._nn.one_hot


def functions(device: EmulatedDevice) -> list[tuple[Any, str, Any]]:
    """`(owner, name, value)` of every function to set."""

    def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
        if tensor not in device.marks:
            return _real_one_hot(tensor, num_classes)
        classes = num_classes if num_classes >= 0 else int(tensor.max().item()) + 1
        return (tensor.unsqueeze(-1) == torch.arange(classes, device="cuda")).long()

    return [(functional, "one_hot", one_hot), (torch._C._nn, "one_hot", one_hot)]
