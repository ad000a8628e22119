"""Inputs are addresses."""

from __future__ import annotations

import torch

from conformance.emulation import UseAfterFree
from conformance.fidelity.row import Device, Group, Only
from conformance.fidelity.stage import Stage

group = Group("inputs are addresses")
GROUPS = (group,)

SILENT = Only(Device.EMULATED, "on a GPU freed memory is read or overwritten in silence")


@group.returns(0.5)
def rebinding_an_attribute_leaves_the_old_tensor_read(stage: Stage) -> object:
    old = stage.x
    out = stage.capture(lambda: stage.x * 1)
    stage.x = torch.full((6,), 9.0, device="cuda")
    stage.replay()
    return out[0].item() if old is not stage.x else None


@group.returns(1.0)
def rebinding_a_parameter_leaves_the_old_one_read(stage: Stage) -> object:
    layer = torch.nn.Linear(1, 1, bias=False).to("cuda").requires_grad_(False)
    layer.weight.fill_(1.0)
    source = torch.ones(1, 1, device="cuda")
    out = stage.capture(lambda: layer(source))
    old = layer.weight
    layer.weight = torch.nn.Parameter(torch.full((1, 1), 4.0, device="cuda"))
    stage.replay()
    return out.item() if old is not layer.weight else None


@group.returns(4.0)
def a_parameter_updated_in_place_is_read_anew(stage: Stage) -> object:
    layer = torch.nn.Linear(1, 1, bias=False).to("cuda").requires_grad_(False)
    source = torch.ones(1, 1, device="cuda")
    out = stage.capture(lambda: layer(source))
    layer.weight.fill_(4.0)
    stage.replay()
    return out.item()


@group.returns(4.0)
def load_state_dict_writes_where_the_graph_reads(stage: Stage) -> object:
    layer = torch.nn.Linear(1, 1, bias=False).to("cuda").requires_grad_(False)
    source = torch.ones(1, 1, device="cuda")
    out = stage.capture(lambda: layer(source))
    layer.load_state_dict({"weight": torch.full((1, 1), 4.0)})
    stage.replay()
    return out.item()


@group.returns(9.0)
def set_data_leaves_the_old_memory_read(stage: Stage) -> object:
    old = stage.x.detach()
    out = stage.capture(lambda: stage.x * 1)
    stage.x.data = torch.full((6,), 1.0, device="cuda")
    old.fill_(9.0)
    stage.replay()
    return out[0].item()


@group.returns(0.5)
def a_view_keeps_its_base_alive(stage: Stage) -> object:
    source = torch.full((4, 4), 0.5, device="cuda")
    row = source[1]
    out = stage.capture(lambda: row * 1)
    del source
    stage.replay()
    return out[0].item()


@group.returns(1.5)
def an_intermediate_that_python_dropped_is_still_the_graphs(stage: Stage) -> object:
    out = stage.capture(lambda: (stage.x * 2) * 0.5 + 1)
    torch.full((64, 1024), 77.0, device="cuda")
    stage.replay()
    return out[0].item()


@group.returns(1.5)
def the_graph_outlives_an_output_that_was_dropped(stage: Stage) -> object:
    out = stage.capture(lambda: stage.x + 1)
    del out
    stage.replay()
    return stage.x[0].item() + 1


@group.refuses("freed after capture", UseAfterFree, only=SILENT)
def replay_after_an_input_was_freed_is_an_error(stage: Stage) -> object:
    held = {"source": torch.ones(3, device="cuda")}
    stage.capture(lambda: held["source"] * 2)
    held.clear()
    stage.replay()
    return None


@group.refuses(r"addresses\.py:\d+ in", UseAfterFree, only=SILENT)
def a_use_after_free_names_the_line_that_reads(stage: Stage) -> object:
    held = {"source": torch.ones(3, device="cuda")}
    stage.capture(lambda: held["source"] * 2)
    held.clear()
    stage.replay()
    return None
