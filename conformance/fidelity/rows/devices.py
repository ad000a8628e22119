"""Which device a tensor is on, and how it moves."""

from __future__ import annotations

import copy
import io

import torch

from conformance.fidelity.row import Group
from conformance.fidelity.stage import Stage

place = Group("host and device are apart")
GROUPS = (place,)

TWO_DEVICES = "same device|at least two devices"


@place.returns(["cuda:0", True, False, 0, "cuda"])
def a_tensor_says_where_it_is(stage: Stage) -> object:
    x = stage.x
    return [str(x.device), x.is_cuda, x.is_cpu, x.get_device(), x.device.type]


@place.returns(["cpu", False, True, -1])
def a_host_tensor_says_so_too(stage: Stage) -> object:
    return [str(stage.host.device), stage.host.is_cuda, stage.host.is_cpu, stage.host.get_device()]


@place.returns(["cuda:0"] * 4)
def a_device_may_be_given_in_many_ways(stage: Stage) -> object:
    given: list[str | torch.device] = ["cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0)]
    return [str(torch.zeros(2, device=device).device) for device in given]


@place.returns(["cuda:0"] * 6)
def to_takes_a_device_in_many_ways(stage: Stage) -> object:
    host = torch.zeros(2)
    moved = [host.to("cuda"), host.to(0), host.to(stage.x), host.cuda(), host.cuda(0), host.to(device="cuda:0")]
    return [str(tensor.device) for tensor in moved]


@place.refuses("invalid device ordinal")
def a_device_that_is_not_there_is_refused(stage: Stage) -> object:
    return torch.zeros(2, device="cuda:63")


@place.returns(True)
def to_the_same_device_is_the_same_object(stage: Stage) -> object:
    return stage.x.to("cuda") is stage.x and stage.x.cuda() is stage.x and stage.host.cpu() is stage.host


@place.returns([False, "torch.float64", "cuda:0"])
def to_with_copy_or_dtype_is_a_new_tensor(stage: Stage) -> object:
    copied, cast = stage.x.to("cuda", copy=True), stage.x.to(torch.float64)
    return [copied.data_ptr() == stage.x.data_ptr(), str(cast.dtype), str(cast.device)]


@place.returns([0.5, 8.0])
def cpu_copies(stage: Stage) -> object:
    host = stage.x.cpu()
    stage.x.fill_(8.0)
    return [host[0].item(), stage.x[0].item()]


@place.returns([0.0, 4.0])
def cuda_copies(stage: Stage) -> object:
    moved = stage.host.cuda()
    stage.host.fill_(4.0)
    return [moved[0].item(), stage.host[0].item()]


@place.refuses(TWO_DEVICES)
def adding_host_and_device_is_refused(stage: Stage) -> object:
    return stage.x + stage.host


@place.refuses(TWO_DEVICES)
def multiplying_matrices_of_two_devices_is_refused(stage: Stage) -> object:
    return stage.square @ torch.ones(2, 2)


@place.refuses(TWO_DEVICES)
def concatenating_host_and_device_is_refused(stage: Stage) -> object:
    return torch.cat([stage.x, stage.host])


@place.refuses(TWO_DEVICES)
def a_module_on_the_host_refuses_a_device_input(stage: Stage) -> object:
    return torch.nn.Linear(2, 2)(stage.square)


@place.refuses(TWO_DEVICES)
def a_device_index_into_an_embedding_on_the_host_is_refused(stage: Stage) -> object:
    return torch.nn.Embedding(4, 2)(stage.codes)


@place.refuses("indices should be either on cpu or on the same device")
def a_device_index_into_a_host_tensor_is_refused(stage: Stage) -> object:
    return stage.host[stage.index]


@place.returns([2.5, "cuda:0"])
def a_host_scalar_may_join_device_tensors(stage: Stage) -> object:
    result = stage.x + stage.host_scalar
    return [result[0].item(), str(result.device)]


@place.returns(-4.5)
def a_host_index_into_a_device_tensor_is_allowed_in_eager(stage: Stage) -> object:
    return stage.x[stage.host_index][0].item()


@place.returns([0.5, 6])
def copy_between_devices_works_in_eager(stage: Stage) -> object:
    stage.host.copy_(stage.x)
    return [stage.host[0].item(), stage.host.numel()]


@place.refuses("can't convert cuda:0 device type tensor to numpy", TypeError)
def numpy_of_a_device_tensor_is_refused(stage: Stage) -> object:
    return stage.x.numpy()


@place.returns(0.5)
def numpy_after_cpu_is_allowed(stage: Stage) -> object:
    return float(stage.x.cpu().numpy()[0])


@place.returns(["cuda:0"] * 8)
def what_is_made_from_a_device_tensor_is_there_too(stage: Stage) -> object:
    x = stage.x
    made = [
        torch.zeros_like(x),
        torch.empty_like(x),
        torch.randn_like(x),
        x.new_zeros(3),
        x.new_empty(3),
        x.new_tensor([1.0]),
        x.new_full((2,), 1.0),
        torch.full_like(x, 2.0),
    ]
    return [str(tensor.device) for tensor in made]


@place.returns(["cuda:0"] * 6)
def views_and_results_stay_on_the_device(stage: Stage) -> object:
    x = stage.x
    parts = x.view(2, 3).t(), x[1:], x.detach(), x.split(3)[1], x.sum(), torch.stack([x, x])
    return [str(tensor.device) for tensor in parts]


@place.returns("cpu")
def zeros_like_may_be_asked_for_on_the_host(stage: Stage) -> object:
    return str(torch.zeros_like(stage.x, device="cpu").device)


@place.returns(["cuda:0", "cuda:0", "cuda:0"])
def a_module_moves_with_its_parameters_and_buffers(stage: Stage) -> object:
    norm = torch.nn.BatchNorm1d(2).to("cuda")
    assert norm.running_mean is not None
    return [str(norm.weight.device), str(norm.running_mean.device), str(torch.nn.Linear(1, 1).cuda().weight.device)]


@place.returns(["cpu", 1.0])
def a_module_moves_back(stage: Stage) -> object:
    layer = torch.nn.Linear(1, 1, bias=False).cuda().requires_grad_(False)
    layer.weight.fill_(1.0)
    layer.cpu()
    return [str(layer.weight.device), layer.weight.item()]


@place.returns(["cuda:0", False])
def a_deep_copy_stays_on_the_device(stage: Stage) -> object:
    layer = torch.nn.Linear(1, 1).cuda()
    copied = copy.deepcopy(layer)
    return [str(copied.weight.device), copied.weight.data_ptr() == layer.weight.data_ptr()]


@place.returns(["cuda:0", "cuda:0", "cpu"])
def a_device_context_is_the_default_for_factories(stage: Stage) -> object:
    with torch.device("cuda"):
        inside = torch.zeros(2), torch.tensor([1.0])
    return [*(str(tensor.device) for tensor in inside), str(torch.zeros(2).device)]


@place.returns(["cuda:0", "cuda:0"])
def a_module_built_in_a_device_context_is_there(stage: Stage) -> object:
    with torch.device("cuda"):
        layer = torch.nn.Linear(2, 2)
    return [str(layer.weight.device), str(layer(stage.square).device)]


@place.returns(["cpu", "cuda:0", 0.5])
def a_saved_tensor_loads_where_it_was_or_where_asked(stage: Stage) -> object:
    file = io.BytesIO()
    torch.save({"x": stage.x}, file)
    file.seek(0)
    on_host = torch.load(file, map_location="cpu", weights_only=True)["x"]
    file.seek(0)
    where_it_was = torch.load(file, weights_only=True)["x"]
    return [str(on_host.device), str(where_it_was.device), where_it_was[0].item()]


@place.returns([False, True, False])
def pinning_is_of_host_memory_alone(stage: Stage) -> object:
    return [stage.host.is_pinned(), stage.pinned.is_pinned(), stage.x.is_pinned()]


@place.refuses("only dense CPU tensors can be pinned")
def pinning_a_device_tensor_is_refused(stage: Stage) -> object:
    return stage.x.pin_memory()


@place.returns([True, True])
def pinned_memory_is_asked_for_at_creation(stage: Stage) -> object:
    made = torch.empty(4, pin_memory=True), torch.zeros(4, pin_memory=True)
    return [tensor.is_pinned() for tensor in made]


@place.returns(["torch.cuda.FloatTensor", "torch.FloatTensor"])
def the_type_of_a_tensor_names_its_device(stage: Stage) -> object:
    return [stage.x.type(), stage.host.type()]


@place.returns(True)
def the_text_of_a_device_tensor_names_its_device(stage: Stage) -> object:
    return "device='cuda:0'" in repr(stage.x) and "device" not in repr(stage.host)


@place.returns([[2.0, 4.0], "cuda:0"])
def gradients_are_on_the_device(stage: Stage) -> object:
    x = torch.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    (x * x).sum().backward()
    assert x.grad is not None
    return [x.grad.tolist(), str(x.grad.device)]


@place.returns([True, "cuda:0"])
def an_untyped_storage_says_where_it_is(stage: Stage) -> object:
    storage = stage.x.untyped_storage()
    return [storage.is_cuda, str(storage.device)]
