"""What emulated CUDA costs: replay and capture against eager, on the adapters of vllm-omni's own modules.

    python -m benchmarks.emulation [NAME ...]      or: make benchmark-emulation

One line an adapter. `eager` runs on the host with the emulation off; `on cuda` is the same under the emulation. What is
compared takes turns, so that a change of the machine's load meets them alike: replay with eager on the host once the
emulation is left (a replay needs nothing of it), and with eager on cuda inside. Medians in milliseconds, one thread.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from conformance.emulation import emulated_cuda
from conformance.registry import spec_of
from runner import GraphAdapter

NAMES = ("moss_tts", "qwen3_tts", "qwen3_omni", "mimo_audio", "indextts2_bigvgan", "minicpmo_hift", "voxtral_tts")
FULL_SIZE = "qwen3_omni-full-size"
Build = Callable[[torch.device], GraphAdapter]
Tensors = Callable[[GraphAdapter], list[torch.Tensor]]
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


def measure(build: Build, inputs: Tensors) -> Figures:
    figures = Figures()
    host = build(torch.device("cpu"))
    for _ in range(ROUNDS):
        with emulated_cuda():
            on_device = build(torch.device("cuda", 0))
            device_inputs = [tensor.cuda() for tensor in inputs(host)]

            def eager() -> Any:
                return on_device.forward(*device_inputs)  # noqa: B023

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
        host_inputs = inputs(host)
        eager_times, replay = repeat(lambda: host.forward(*host_inputs), graph.replay)  # noqa: B023
        figures.eager += eager_times
        figures.replay += replay
        del graph, output
    return figures


def of_adapter(name: str) -> tuple[Build, Tensors]:
    """How to build the adapter of `name`, and the inputs of its first bucket."""
    spec = spec_of(name)

    def build(device: torch.device) -> GraphAdapter:
        torch.manual_seed(0)
        return spec.build(device, None)

    def inputs(adapter: GraphAdapter) -> list[torch.Tensor]:
        made = spec.make_inputs(adapter, spec.buckets[0], torch.Generator().manual_seed(0))
        return [made[one.name] for one in adapter.device_inputs()]

    return build, inputs


def full_size() -> tuple[Build, Tensors]:
    """The released Qwen3-Omni Code2Wav (216 M parameters), one request of 25 frames."""
    from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeCode2WavConfig

    from adapters.qwen3_omni.spec import code2wav

    def build(device: torch.device) -> GraphAdapter:
        torch.manual_seed(0)
        module = code2wav(Qwen3OmniMoeCode2WavConfig()).to(device)
        made: GraphAdapter = spec_of("qwen3_omni").adapter(module)  # type: ignore[call-arg]
        return made

    def inputs(adapter: Any) -> list[torch.Tensor]:
        return [torch.randint(0, 2048, (1, adapter.module.config.num_quantizers, 25))]

    return build, inputs


def main(names: list[str]) -> None:
    import vllm_omni  # noqa: F401 - before the emulation starts

    torch.set_num_threads(1)
    gc.disable()  # as timeit does: a collection that walks through all of vllm takes seconds, wherever it falls
    print(HEADING, flush=True)
    for name in names or (*NAMES, FULL_SIZE):
        build, inputs = full_size() if name == FULL_SIZE else of_adapter(name)
        with torch.no_grad():
            figures = measure(build, inputs)
        print(figures.line(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
