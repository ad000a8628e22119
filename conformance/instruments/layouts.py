"""The same kind of tensor in the memory layouts that callers hand over."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """First and last axes swapped in memory."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def sliced(tensor: torch.Tensor) -> torch.Tensor:
    """The middle of a tensor three times as long, whose other parts hold other values of the same range."""
    size = tensor.shape[-1]
    return torch.cat([tensor.flip(-1), tensor, tensor.flip(-1)], dim=-1).narrow(-1, size, size)


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """Every other element of a tensor twice as long."""
    return torch.stack([tensor, tensor.flip(-1)], dim=-1).flatten(-2)[..., ::2]


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    """One frame at every time, as a view of stride 0."""
    return tensor.narrow(-1, 0, 1).expand(tensor.shape) if tensor.numel() else tensor


def flipped(tensor: torch.Tensor) -> torch.Tensor:
    """Time reversed, by an index that runs backwards."""
    return tensor.flip(-1)


def offset(tensor: torch.Tensor) -> torch.Tensor:
    """Three elements into a larger block: contiguous, and not at the start of its storage."""
    if not tensor.numel():
        return tensor
    block = torch.cat([tensor.reshape(-1)[:1].expand(3), tensor.reshape(-1)])
    return block[3:].view(tensor.shape)


LAYOUTS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    layout.__name__: layout for layout in (transposed, sliced, strided, expanded, flipped, offset)
}
