"""Records of made-up calls, without a device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from conformance.capabilities import Capabilities, supported, unsupported
from conformance.catalogue import Machine
from conformance.snapshots.files import fitting_record
from conformance.snapshots.record import Record

CODES = {"codes": torch.arange(12).reshape(1, 4, 3)}


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    """A loud signal of that shape."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    return torch.randn(*shape, generator=generator)


def record_of(
    outputs: dict[str, list[torch.Tensor]],
    *,
    heard: tuple[str, ...] = ("wav",),
    inputs: dict[str, torch.Tensor] = CODES,
    device: str = "emulated",
    seed: int = 0,
    random: bool = False,
    weights: float = 1.0,
) -> Record:
    """What is kept of a call that gave `outputs`; the modules of two different `weights` differ."""
    claim = supported() if random else unsupported("draws nothing")
    capabilities = Capabilities(**(dict.fromkeys(Capabilities.__dataclass_fields__, claim)))
    module = torch.nn.Linear(2, 2)
    with torch.no_grad():
        module.weight.fill_(weights)
        module.bias.fill_(0.0)
    subject: Any = SimpleNamespace(
        spec=SimpleNamespace(name="made_up", sample_rate=16_000, capabilities=capabilities, requires=()),
        machine=Machine(device, device, "2.13.0"),
        module=module,
        seed=seed,
        lasting_outputs=lambda: list(heard),
    )
    return fitting_record(subject, "b1-f3", inputs, outputs)
