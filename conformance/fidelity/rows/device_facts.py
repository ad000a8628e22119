"""What `torch.cuda` and `torch.accelerator` say of the device."""

from __future__ import annotations

import torch

from conformance.fidelity.row import REFUSED_IN_CAPTURE, Group
from conformance.fidelity.stage import Stage

api = Group("torch.cuda describes one device")
GROUPS = (api,)


@api.returns([True, True, 0])
def a_device_is_there(stage: Stage) -> object:
    return [torch.cuda.is_available(), torch.cuda.device_count() >= 1, torch.cuda.current_device()]


@api.returns([True, True, True, True])
def its_properties_are_told(stage: Stage) -> object:
    properties = torch.cuda.get_device_properties(0)
    return [
        properties.total_memory > 1 << 30,
        properties.multi_processor_count > 0,
        properties.name == torch.cuda.get_device_name(),
        torch.cuda.get_device_capability() == (properties.major, properties.minor),
    ]


@api.returns(["cuda", True, True, 0])
def the_accelerator_is_cuda(stage: Stage) -> object:
    current = torch.accelerator.current_accelerator()
    return [
        current.type if current is not None else None,
        torch.accelerator.is_available(),
        torch.accelerator.device_count() >= 1,
        torch.accelerator.current_device_index(),
    ]


@api.returns([True, None])
def the_accelerator_has_streams_and_waits(stage: Stage) -> object:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        same = torch.accelerator.current_stream().stream_id == side.stream_id
    torch.accelerator.synchronize()
    return [same, None]


@api.refuses(REFUSED_IN_CAPTURE)
def the_accelerators_synchronize_is_refused_in_a_capture(stage: Stage) -> object:
    return stage.capture(lambda: torch.accelerator.synchronize())


@api.returns([0, 0])
def a_device_may_be_entered(stage: Stage) -> object:
    with torch.cuda.device(0):
        inside = torch.cuda.current_device()
    with torch.cuda.device("cuda:0"):
        return [inside, torch.cuda.current_device()]


@api.returns([True, True])
def the_device_module_is_torch_cuda(stage: Stage) -> object:
    return [torch.get_device_module("cuda") is torch.cuda, torch.get_device_module(stage.x.device) is torch.cuda]


@api.returns(True)
def bfloat16_is_supported(stage: Stage) -> object:
    return torch.cuda.is_bf16_supported()
