"""Replay runs no Python of the captured code, and fills the same memory each time."""

from __future__ import annotations

from typing import Any

import torch

from conformance.fidelity.row import Group
from conformance.fidelity.stage import Stage

frozen = Group("replay runs no Python")
same = Group("the same memory every replay")
GROUPS = (frozen, same)


@frozen.returns(2.5)
def a_branch_stays_as_captured(stage: Stage) -> object:
    switch = {"on": True}
    out = stage.capture(lambda: stage.x + 2 if switch["on"] else stage.x - 2)
    switch["on"] = False
    stage.replay()
    return out[0].item()


@frozen.returns(1.5)
def a_python_number_stays_as_captured(stage: Stage) -> object:
    scale = {"value": 3.0}
    out = stage.capture(lambda: stage.x * scale["value"])
    scale["value"] = 100.0
    stage.replay()
    return out[0].item()


@frozen.returns(4)
def a_shape_stays_as_captured(stage: Stage) -> object:
    length = [4]
    out = stage.capture(lambda: stage.x[: length[0]] * 1)
    length[0] = 2
    stage.replay()
    return out.numel()


@frozen.returns(1)
def a_counter_is_not_incremented_by_replay(stage: Stage) -> object:
    count = [0]

    def body() -> torch.Tensor:
        count[0] += 1
        return stage.x + 1

    stage.capture(body, warm=False)
    stage.replay()
    stage.replay()
    return count[0]


@frozen.returns(1)
def a_module_hook_is_not_run_by_replay(stage: Stage) -> object:
    seen = []
    layer = torch.nn.Linear(2, 2).to("cuda")
    stage.warm_up(lambda: layer(stage.square))
    layer.register_forward_hook(lambda *_: seen.append(1))
    stage.capture(lambda: layer(stage.square), warm=False)
    stage.replay()
    return len(seen)


@frozen.returns(2.5)
def a_host_scalar_tensor_is_baked_in(stage: Stage) -> object:
    offset = torch.tensor(2.0)
    out = stage.capture(lambda: stage.x + offset)
    offset.fill_(100.0)
    stage.replay()
    return out[0].item()


@frozen.returns([2.0, 4.0])
def a_new_value_in_a_static_input_is_read(stage: Stage) -> object:
    out = stage.capture(lambda: stage.x * 2)
    seen = []
    for value in (1.0, 2.0):
        stage.x.fill_(value)
        stage.replay()
        seen.append(out[0].item())
    return seen


@frozen.returns(0.5)
def without_a_new_input_the_old_one_is_read_again(stage: Stage) -> object:
    out = stage.capture(lambda: stage.x * 1)
    stage.replay()
    stage.replay()
    return out[0].item()


@frozen.returns([True, False])
def a_replay_follows_inference_mode_of_its_capture_not_its_caller(stage: Stage) -> object:
    with torch.inference_mode():
        out = stage.capture(lambda: stage.x * 2)
    stage.x.fill_(2.0)
    stage.replay()
    return [out[0].item() == 4.0, not out.is_inference()]


@frozen.returns(4.0)
def a_capture_without_inference_mode_replays_within_it(stage: Stage) -> object:
    out = stage.capture(lambda: stage.x * 2)
    stage.x.fill_(2.0)
    with torch.inference_mode():
        stage.replay()
    return out[0].item()


@frozen.returns(3.0)
def a_view_made_under_inference_mode_replays_outside_it(stage: Stage) -> object:
    with torch.inference_mode():
        state = torch.zeros(2, 3, device="cuda")
        stage.capture(lambda: state.transpose(0, 1)[1].add_(1), warm=False)
    for _ in range(3):
        stage.replay()
    return state[0, 1].item()


@frozen.returns(["torch.bfloat16", True])
def autocast_of_the_capture_holds_at_replay(stage: Stage) -> object:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = stage.capture(lambda: stage.square @ stage.square)
    stage.square.fill_(1.0)
    stage.replay()
    return [str(out.dtype), out.tolist() == [[2.0, 2.0], [2.0, 2.0]]]


@frozen.returns(["torch.float16", "torch.float32"])
def autocast_chooses_half_for_a_matmul_and_float_for_a_softmax(stage: Stage) -> object:
    with torch.autocast("cuda", dtype=torch.float16):
        product = stage.square @ stage.square
        return [str(product.dtype), str(product.softmax(-1).dtype)]


@frozen.returns([False, True, True, False, False])
def autocast_is_enabled_within_and_not_after(stage: Stage) -> object:
    seen = [torch.is_autocast_enabled("cuda")]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        seen += [torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda") is torch.bfloat16]
        with torch.autocast("cuda", enabled=False):
            seen.append(torch.is_autocast_enabled("cuda"))
    return [*seen, torch.is_autocast_enabled("cuda")]


@frozen.returns("torch.float16")
def autocast_takes_half_by_default(stage: Stage) -> object:
    with torch.autocast("cuda"):
        return str((stage.square @ stage.square).dtype)


@frozen.returns("torch.bfloat16")
def autocast_may_be_spelt_the_older_way(stage: Stage) -> object:
    with torch.cuda.amp.autocast(dtype=torch.bfloat16):  # type: ignore[deprecated,unused-ignore]
        return str((stage.square @ stage.square).dtype)


@frozen.returns(["torch.bfloat16", "torch.float32"])
def autocast_decorates_and_can_be_disabled_within(stage: Stage) -> object:
    def run() -> list[str]:
        with torch.autocast("cuda", enabled=False):
            exact = stage.square @ stage.square
        return [str((stage.square @ stage.square).dtype), str(exact.dtype)]

    decorated: Any = torch.autocast("cuda", dtype=torch.bfloat16)(run)
    return decorated()


@frozen.returns("torch.float32")
def autocast_of_the_caller_does_not_reach_a_replay(stage: Stage) -> object:
    out = stage.capture(lambda: stage.square @ stage.square)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        stage.replay()
    return str(out.dtype) if out.tolist() == [[5.0, 5.0], [5.0, 10.0]] else out.tolist()


def _doubled_and_more(value: torch.Tensor) -> torch.Tensor:
    return value * 2 + 1.5


@frozen.returns(2.5)
def a_scripted_function_is_captured(stage: Stage) -> object:
    scripted: Any = torch.jit.script(_doubled_and_more)
    out = stage.capture(lambda: scripted(stage.x))
    stage.replay()
    return out[0].item()


@frozen.returns([6.0, 12.0])
def a_graphed_callable_equals_the_module(stage: Stage) -> object:
    layer = torch.nn.Linear(2, 1, bias=False).to("cuda").eval()
    torch.nn.init.constant_(layer.weight, 2.0)
    sample = torch.ones(1, 2, device="cuda")
    graphed: Any = torch.cuda.make_graphed_callables(layer, (sample,))
    return [graphed(torch.full((1, 2), value, device="cuda")).item() for value in (1.5, 3.0)]


@frozen.returns([[1.5, 3.5]])
def a_graphed_callable_has_gradients(stage: Stage) -> object:
    layer = torch.nn.Linear(2, 1, bias=False).to("cuda")
    graphed: Any = torch.cuda.make_graphed_callables(layer, (torch.ones(1, 2, device="cuda"),))
    graphed(torch.tensor([[1.5, 3.5]], device="cuda")).sum().backward()
    assert layer.weight.grad is not None
    return layer.weight.grad.tolist()


@same.returns(True)
def an_output_keeps_its_address(stage: Stage) -> object:
    out = stage.capture(lambda: stage.x + 1)
    before = out.data_ptr()
    stage.replay()
    stage.replay()
    return out.data_ptr() == before


@same.returns([True, 3.0])
def an_intermediate_that_is_kept_is_filled_in_place(stage: Stage) -> object:
    kept: dict[str, torch.Tensor] = {}

    def body() -> torch.Tensor:
        kept["hidden"] = stage.x * 2
        return kept["hidden"] + 1

    stage.capture(body)
    before = kept["hidden"].data_ptr()
    stage.x.fill_(1.5)
    stage.replay()
    return [kept["hidden"].data_ptr() == before, kept["hidden"][0].item()]


@same.returns([2.0, 2.0])
def the_next_replay_overwrites_an_output_that_was_not_cloned(stage: Stage) -> object:
    out = stage.capture(lambda: stage.x * 1)
    stage.x.fill_(1.0)
    stage.replay()
    first = out
    stage.x.fill_(2.0)
    stage.replay()
    return [first[0].item(), out[0].item()]


@same.returns([1.0, 2.0])
def a_clone_survives_the_next_replay(stage: Stage) -> object:
    out = stage.capture(lambda: stage.x * 1)
    stage.x.fill_(1.0)
    stage.replay()
    first = out.clone()
    stage.x.fill_(2.0)
    stage.replay()
    return [first[0].item(), out[0].item()]


@same.returns(7.0)
def a_view_of_an_output_sees_each_replay(stage: Stage) -> object:
    view = stage.capture(lambda: (stage.x * 1).view(2, 3)[1:])
    stage.x.fill_(7.0)
    stage.replay()
    return view[0, 0].item()


@same.returns([1.5, 1.5])
def what_a_caller_writes_into_an_output_is_overwritten(stage: Stage) -> object:
    out = stage.capture(lambda: stage.x + 1)
    stage.replay()
    first = out[0].item()
    out.zero_()
    stage.replay()
    return [first, out[0].item()]


@same.returns([5.0, 5.0])
def a_part_of_a_static_buffer_that_nothing_writes_keeps_its_content(stage: Stage) -> object:
    buffer = torch.full((4,), 5.0, device="cuda")
    stage.capture(lambda: buffer[:2].copy_(stage.x[:2]))
    stage.replay()
    return buffer[2:].tolist()


@same.returns(True)
def an_input_returned_as_it_is_keeps_its_address(stage: Stage) -> object:
    out = stage.capture(lambda: stage.x.view(2, 3))
    return out.data_ptr() == stage.x.data_ptr()
