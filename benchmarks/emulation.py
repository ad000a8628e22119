"""What emulated CUDA costs: replay and capture against eager, on vllm-omni's own modules.

    python -m benchmarks.emulation [NAME ...]      or: make benchmark-emulation

One line a module. `eager` runs on the host with the emulation off; `on cuda` is the same under the emulation. Calls to
compare take turns, so that a change of the machine's load meets them alike: replay with eager on the host once the
emulation is left (a replay needs nothing of it), and with eager on cuda inside. Medians in milliseconds, one thread.
"""

from __future__ import annotations

import copy
import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance.emulation import emulated_cuda
from tests.upstream.modules import UPSTREAM, Tensors, Upstream, qwen3_omni

FULL_SIZE = "qwen3_omni full size"
ROUNDS = 3
SECONDS = 0.25  # a round's time for each figure


@dataclass
class Figures:
    eager: list[float] = field(default_factory=list)
    on_cuda: list[float] = field(default_factory=list)
    replay: list[float] = field(default_factory=list)
    replay_inside: list[float] = field(default_factory=list)
    capture: list[float] = field(default_factory=list)
    calls: int = 0

    def line(self, name: str) -> str:
        times = (self.eager, self.on_cuda, self.replay, self.replay_inside, self.capture)
        eager, on_cuda, replay, inside, capture = map(statistics.median, times)
        return (
            f"{name:21} {eager:9.3f} {on_cuda:9.3f} {replay:9.3f} {capture:9.3f}"
            f" {replay / eager:9.2f} {inside / on_cuda:9.2f} {capture / eager:9.2f} {capture / on_cuda:9.2f}"
            f" {self.calls:7}"
        )


TITLES = ("module", "eager", "on cuda", "replay", "capture")
RATIOS = ("rep/eager", "rep/cuda", "cap/eager", "cap/cuda", "calls")
HEADING = "{:21} {:>9} {:>9} {:>9} {:>9}".format(*TITLES) + " {:>9} {:>9} {:>9} {:>9} {:>7}".format(*RATIOS)


def milliseconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def repeat(*calls: Callable[[], Any]) -> list[list[float]]:
    """Times of `calls` in turn, until about `SECONDS` have passed for each."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    end = time.perf_counter() + SECONDS * len(calls)
    while time.perf_counter() < end or len(times[0]) < 3:
        for call, seen in zip(calls, times, strict=True):
            seen.append(milliseconds(call))
    return times


def measure(module: Any, inputs: Tensors, region: Callable[..., Any]) -> Figures:
    figures = Figures()
    pristine = copy.deepcopy(module)  # some modules keep tensors that their first call made, wherever it ran
    for _ in range(ROUNDS):
        on_device = copy.deepcopy(pristine)
        with emulated_cuda():
            on_device = on_device.to("cuda")
            device_inputs = [tensor.cuda() for tensor in inputs]

            def eager() -> Any:
                return region(on_device, *device_inputs)  # noqa: B023

            def capture() -> tuple[Any, Any]:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    output = eager()
                return graph, output

            eager()
            graph, output = capture()
            on_cuda, replay, captured = repeat(eager, graph.replay, capture)
            figures.on_cuda += on_cuda
            figures.replay_inside += replay
            figures.capture += captured
            figures.calls = graph.calls
        # A replay needs nothing of the emulation, so it can be timed side by side with eager on the host.
        eager_times, replay = repeat(lambda: region(module, *inputs), graph.replay)
        figures.eager += eager_times
        figures.replay += replay
        del graph, output
    return figures


def full_size() -> Upstream:
    """The released Qwen3-Omni Code2Wav (216 M parameters), one request of 25 frames."""
    by_name = {upstream.name: upstream for upstream in UPSTREAM}
    tiny = by_name["qwen3_omni"]
    inputs = lambda module, size: (torch.randint(0, 2048, (1, module.config.num_quantizers, size)),)  # noqa: E731
    return Upstream(FULL_SIZE, qwen3_omni, inputs, tiny.eager, tiny.wrap, tiny.call, sizes=(25, 25))


def main(names: list[str]) -> None:
    import vllm_omni  # noqa: F401 - before the emulation starts

    torch.set_num_threads(1)
    gc.disable()  # as timeit does: a collection that walks through all of vllm takes seconds, wherever it falls
    print(HEADING, flush=True)
    for upstream in (*UPSTREAM, full_size()):
        if names and upstream.name not in names:
            continue
        torch.manual_seed(0)
        module = upstream.build()
        inputs = upstream.inputs(module, upstream.sizes[0])
        with torch.no_grad():
            figures = measure(module, inputs, upstream.region or upstream.eager)
        print(figures.line(upstream.name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
