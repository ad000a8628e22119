"""Operators and layouts that a tape could get wrong. Each is captured, fed anew, replayed, and compared with eager."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from conformance.fidelity.row import Group, Program, Returns
from conformance.fidelity.stage import Stage

group = Group("replay equals eager")
GROUPS = (group,)


def _in_place(s: Stage) -> torch.Tensor:
    hidden = s.x * 2
    hidden[1:4] += 1
    hidden.mul_(s.x)
    return hidden


def _scattered(s: Stage) -> torch.Tensor:
    return torch.zeros(6, device="cuda").scatter_(0, s.index, s.x[:3]).index_add_(0, s.index, s.x[3:])


def _copied(s: Stage) -> torch.Tensor:
    target = torch.zeros(6, device="cuda")
    target.index_copy_(0, s.index, s.x[:3])
    target[:2].copy_(s.x[4:])
    return target


def _conjugated(s: Stage) -> torch.Tensor:
    z = torch.complex(s.x, s.x * 3)
    return torch.view_as_real((z.conj() * z.flip(0)).resolve_conj()).flatten() + z.conj().imag.sum()


def _attention(s: Stage) -> torch.Tensor:
    q = s.x.view(1, 1, 3, 2)
    return functional.scaled_dot_product_attention(q, q, q, is_causal=True)


def _chained_views(s: Stage) -> torch.Tensor:
    return s.x.view(2, 3).t().contiguous().view(3, 2)[:, 1].expand(4, 3).permute(1, 0).reshape(-1)


def _reused(s: Stage) -> torch.Tensor:
    hidden = s.x
    for _ in range(4):
        hidden = (hidden * 0.5 + 1).sin()
    return hidden


def _several(s: Stage) -> torch.Tensor:
    value, index = s.x.max(0)
    parts = s.x.chunk(3)
    return torch.cat([value.view(1), index.float().view(1), *parts])


def _out_argument(s: Stage) -> torch.Tensor:
    return torch.add(s.x, 1, out=torch.empty(6, device="cuda"))


def _cast(s: Stage) -> torch.Tensor:
    return s.x.to(torch.bfloat16).mul(2).float() + s.x.half().float() + s.x.long()


def _viewed_as_another_type(s: Stage) -> torch.Tensor:
    return (s.x * 1).view(torch.int32).bitwise_and(0x7FFF0000).view(torch.float32)


OPERATORS: dict[str, Callable[[Stage], torch.Tensor]] = {
    "in-place-on-an-intermediate": _in_place,
    "scatter-and-index-add": _scattered,
    "index-copy-and-copy-into-a-view": _copied,
    "complex-and-conjugate-views": _conjugated,
    "attention": _attention,
    "chained-views": _chained_views,
    "a-long-chain": _reused,
    "several-results": _several,
    "an-out-argument": _out_argument,
    "casts": _cast,
    "a-view-as-another-type": _viewed_as_another_type,
    "rolled-and-padded": lambda s: functional.pad(s.x.roll(2), (1, 2), value=7.0),
    "matrix-product": lambda s: s.x.view(2, 3) @ s.x.view(3, 2),
    "einsum": lambda s: torch.einsum("i,j->ij", s.x, s.x),
    "layer-norm": lambda s: functional.layer_norm(s.x, (6,)),
    "softmax": lambda s: s.x.softmax(0),
    "gelu-and-snake": lambda s: functional.gelu(s.x) + s.x.sin().square() / 2,
    "interpolate": lambda s: functional.interpolate(s.x.view(1, 1, 6), scale_factor=2.0, mode="linear"),
    "unfold": lambda s: s.x.unfold(0, 3, 1).sum(-1),
    "fft": lambda s: torch.fft.irfft(torch.fft.rfft(s.x) * 0.5),
    "clamp-by-device-scalars": lambda s: torch.clamp(s.x, min=s.x.min() / 2, max=s.x.max() / 2),
    "a-mask-by-comparison": lambda s: s.x.masked_fill(torch.arange(6, device="cuda") >= s.scalar, 0.0),
}


def _program(body: Callable[[Stage], torch.Tensor]) -> Program:
    return lambda stage: stage.agrees(lambda: body(stage))


for name, body in OPERATORS.items():
    group.add(f"{name}-replays-as-eager", _program(body), Returns(True), written_as=body)


def _module_program(make: Callable[[], torch.nn.Module], shape: tuple[int, ...], *, inference: bool) -> Program:
    def program(stage: Stage) -> object:
        torch.manual_seed(0)
        module = make().to("cuda").eval()
        with torch.inference_mode() if inference else torch.no_grad():
            return stage.agrees(lambda: _first(module(stage.x.view(shape))))

    return program


def _first(result: object) -> torch.Tensor:
    tensor = result[0] if isinstance(result, tuple) else result
    assert isinstance(tensor, torch.Tensor)
    return tensor


MODULES: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "a-convolution": (lambda: torch.nn.Conv1d(2, 4, 2), (1, 2, 3)),
    "a-transposed-convolution": (lambda: torch.nn.ConvTranspose1d(2, 4, 4, stride=2), (1, 2, 3)),
    "an-lstm": (lambda: torch.nn.LSTM(2, 4, num_layers=2, batch_first=True), (1, 3, 2)),
    "a-gru": (lambda: torch.nn.GRU(2, 4, batch_first=True), (1, 3, 2)),
    "a-transformer-layer": (lambda: torch.nn.TransformerEncoderLayer(2, 1, 4, batch_first=True), (1, 3, 2)),
    "a-weight-normed-convolution": (
        lambda: torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(2, 4, 2)),
        (1, 2, 3),
    ),
}
for name, (make, shape) in MODULES.items():
    for inference in (False, True):
        group.add(
            f"{name}-replays-as-eager-under-{'inference-mode' if inference else 'no-grad'}",
            _module_program(make, shape, inference=inference),
            Returns(True),
            written_as=make,
        )
