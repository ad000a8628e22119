"""Random numbers within graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from conformance.fidelity.row import Group, Program, Returns
from conformance.fidelity.stage import Stage

group = Group("random numbers")
GROUPS = (group,)

DRAWS: dict[str, Callable[[Stage], torch.Tensor]] = {
    "randn": lambda s: torch.randn(64, device="cuda"),
    "rand-like": lambda s: torch.rand_like(s.x.repeat(16)),
    "randint": lambda s: torch.randint(0, 1 << 20, (64,), device="cuda"),
    "normal-in-place": lambda s: torch.empty(64, device="cuda").normal_(),
    "uniform-in-place": lambda s: torch.empty(64, device="cuda").uniform_(),
    "exponential-in-place": lambda s: torch.empty(64, device="cuda").exponential_(),
    "bernoulli": lambda s: torch.bernoulli(torch.full((256,), 0.5, device="cuda")),
    "multinomial": lambda s: torch.multinomial(torch.ones(512, device="cuda"), 64, replacement=True),
    "randperm": lambda s: torch.randperm(256, device="cuda"),
    "dropout": lambda s: functional.dropout(torch.ones(256, device="cuda"), 0.5),
    "two-draws": lambda s: torch.cat([torch.randn(8, device="cuda"), torch.rand(8, device="cuda")]),
}


def _differ_and_equal_eager(draw: Callable[[Stage], torch.Tensor]) -> Program:
    def program(stage: Stage) -> object:
        out = stage.capture(lambda: draw(stage))
        torch.cuda.manual_seed(11)
        stage.replay()
        first = out.clone()
        stage.replay()
        second = out.clone()
        torch.cuda.manual_seed(11)
        eager = [draw(stage), draw(stage)]
        return [torch.equal(first, second), torch.equal(first, eager[0]), torch.equal(second, eager[1])]

    return program


for name, draw in DRAWS.items():
    group.add(
        f"{name}-differs-at-each-replay-and-equals-eager-under-one-seed",
        _differ_and_equal_eager(draw),
        Returns([False, True, True]),
        written_as=draw,
    )


@group.returns(True)
def reseeding_repeats_a_replay(stage: Stage) -> object:
    out = stage.capture(lambda: torch.randn(8, device="cuda"))
    seen = []
    for _ in range(2):
        torch.cuda.manual_seed(5)
        stage.replay()
        seen.append(out.tolist())
    return seen[0] == seen[1]


@group.returns(True)
def manual_seed_of_torch_reaches_the_device(stage: Stage) -> object:
    seen = []
    for _ in range(2):
        torch.manual_seed(5)
        seen.append(torch.randn(8, device="cuda").tolist())
    return seen[0] == seen[1]


@group.returns(True)
def a_capture_leaves_the_default_generators_state(stage: Stage) -> object:
    stage.warm_up(lambda: torch.randn(8, device="cuda"))
    before = torch.cuda.get_rng_state()
    stage.capture(lambda: torch.randn(8, device="cuda"), warm=False)
    return torch.equal(before, torch.cuda.get_rng_state())


@group.returns([True, False])
def a_replay_advances_the_default_generator_as_eager_does(stage: Stage) -> object:
    stage.capture(lambda: torch.randn(8, device="cuda"))
    torch.cuda.manual_seed(5)
    start = torch.cuda.get_rng_state()
    stage.replay()
    after_replay = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(5)
    torch.randn(8, device="cuda")
    return [torch.equal(after_replay, torch.cuda.get_rng_state()), torch.equal(after_replay, start)]


@group.returns(True)
def a_graph_that_draws_nothing_leaves_the_generator(stage: Stage) -> object:
    stage.capture(lambda: stage.x + 1)
    before = torch.cuda.get_rng_state()
    stage.replay()
    return torch.equal(before, torch.cuda.get_rng_state())


@group.returns(True)
def setting_the_state_back_repeats_a_replay(stage: Stage) -> object:
    out = stage.capture(lambda: torch.randn(8, device="cuda"))
    state = torch.cuda.get_rng_state()
    stage.replay()
    first = out.tolist()
    torch.cuda.set_rng_state(state)
    stage.replay()
    return out.tolist() == first


@group.returns(True)
def device_and_host_generators_are_apart(stage: Stage) -> object:
    torch.manual_seed(5)
    host = torch.rand(4).tolist()
    torch.manual_seed(5)
    torch.rand(4, device="cuda")
    return torch.rand(4).tolist() == host


@group.returns(True)
def fork_rng_keeps_the_devices_generator(stage: Stage) -> object:
    torch.cuda.manual_seed(5)
    before = torch.cuda.get_rng_state()
    with torch.random.fork_rng(devices=[0]):
        torch.randn(8, device="cuda")
    return torch.equal(before, torch.cuda.get_rng_state())


@group.refuses("Attempt to increase offset for a CUDA generator not in capture mode")
def an_unregistered_generator_is_refused(stage: Stage) -> object:
    generator = torch.Generator(device="cuda")
    return stage.capture(lambda: torch.randn(4, device="cuda", generator=generator))


@group.returns(1.5)
def a_refused_generator_does_not_invalidate_the_capture(stage: Stage) -> object:
    generator = torch.Generator(device="cuda")

    def body() -> torch.Tensor:
        try:
            torch.randn(4, device="cuda", generator=generator)
        except RuntimeError:
            return stage.x + 1
        return stage.x

    out = stage.capture(body, warm=False)
    stage.replay()
    return out[0].item()


def _registered(stage: Stage) -> tuple[torch.Generator, torch.Tensor]:
    generator: Any = torch.Generator(device="cuda")
    generator.manual_seed(3)
    stage.graph.register_generator_state(generator)
    return generator, stage.capture(lambda: torch.randn(8, device="cuda", generator=generator))


@group.returns([False, True])
def a_registered_generator_advances_and_repeats(stage: Stage) -> object:
    generator, out = _registered(stage)
    seen = []
    for seed in (7, None, 7):
        if seed is not None:
            generator.manual_seed(seed)
        stage.replay()
        seen.append(out.tolist())
    return [seen[0] == seen[1], seen[0] == seen[2]]


@group.returns(True)
def a_registered_generator_equals_eager_under_one_seed(stage: Stage) -> object:
    generator, out = _registered(stage)
    generator.manual_seed(7)
    stage.replay()
    generator.manual_seed(7)
    return torch.equal(out, torch.randn(8, device="cuda", generator=generator))


@group.returns(True)
def a_capture_leaves_a_registered_generators_state(stage: Stage) -> object:
    generator: Any = torch.Generator(device="cuda")
    generator.manual_seed(3)
    stage.graph.register_generator_state(generator)
    before = generator.get_state()
    stage.capture(lambda: torch.randn(8, device="cuda", generator=generator), warm=False)
    return torch.equal(before, generator.get_state())


@group.refuses("Expected a 'cuda' device type for generator but found 'cpu'")
def a_host_generator_for_a_device_tensor_is_refused(stage: Stage) -> object:
    return torch.randn(4, device="cuda", generator=torch.Generator())


@group.refuses("Expected a 'cpu' device type for generator but found 'cuda'")
def a_device_generator_for_a_host_tensor_is_refused(stage: Stage) -> object:
    return torch.randn(4, generator=torch.Generator(device="cuda"))


@group.refuses("only if new seed is the same as the original seed")
def seeding_anew_within_a_capture_is_refused(stage: Stage) -> object:
    torch.cuda.manual_seed(1)
    return stage.capture(lambda: torch.cuda.manual_seed(2), warm=False)


@group.returns(["cuda:0", "cuda", 3])
def a_generator_says_where_it_is(stage: Stage) -> object:
    generator = torch.Generator(device="cuda:0")
    seeded = generator.manual_seed(3)
    return [str(generator.device), generator.device.type, seeded.initial_seed()]
