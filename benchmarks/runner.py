"""The runner against doing it by hand, on one GPU: `python -m benchmarks.runner`. Prints ratios of one run.

Host time is what a call keeps Python busy, measured over bursts that end before the device's queue is full. Everything
that is compared runs interleaved, A B B A, and medians are compared. `--without-gpu` prints what needs none: the lookup
of a bucket, and how much longer a call takes than the same by hand on emulated CUDA.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import torch
from torch.utils._pytree import tree_flatten

from conformance.bench.by_hand import capture_by_hand
from conformance.device import open_device
from conformance.registry import spec_of
from runner import PADDED, AxisMode, BucketTable, GraphAdapter, GraphConfig, GraphRunner, InputSpec, OutputSpec
from runner.capture import Captured

Call = Callable[[], Any]
TINY = "qwen3_tts"
FULL = "qwen3_omni"
SIZE = {"batch": 1, "frames": 25}


def paired(calls: Mapping[str, Call], rounds: int, burst: int, *, wait: bool) -> dict[str, float]:
    """Median seconds a call of each, interleaved. `wait` counts the device's time too, call by call."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            call = calls[name]
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(burst):
                call()
                if wait:
                    torch.cuda.synchronize()
            times[name].append((time.perf_counter() - started) / burst)
            torch.cuda.synchronize()
    return {name: statistics.median(found) for name, found in times.items()}


def by_hand(adapter: GraphAdapter, inputs: torch.Tensor) -> Call:
    """Copy, replay and clone around one graph, with nothing else: what nobody can be faster than."""
    graph, (static,), output = capture_by_hand(adapter.forward, [inputs])

    def call() -> torch.Tensor:
        static.copy_(inputs)
        graph.replay()
        return output.clone()

    return call


def make(adapter: GraphAdapter, buckets: Any, **config: Any) -> GraphRunner:
    runner = GraphRunner(adapter, buckets, device="cuda", config=GraphConfig(**config))
    runner.warmup()
    if runner.failed:
        raise RuntimeError(f"a capture failed: {runner.failed}")
    return runner


def codes(name: str, adapter: GraphAdapter, sizes: Mapping[str, int]) -> torch.Tensor:
    made = spec_of(name).make_inputs(adapter, sizes, torch.Generator().manual_seed(0))
    return made["codes"].cuda()


def host(rows: list[dict[str, Any]], rounds: int) -> None:
    """Host time of exact, padded and eager calls of a tiny decoder."""
    adapter = spec_of(TINY).build(torch.device("cuda"), None)
    buckets = [{"batch": 1, "frames": 8}, {"batch": 1, "frames": 16}]
    runner = make(adapter, buckets)
    exact, padded = codes(TINY, adapter, {"batch": 1, "frames": 8}), codes(TINY, adapter, {"batch": 1, "frames": 5})
    large = codes(TINY, adapter, {"batch": 1, "frames": 20})
    hand = by_hand(adapter, exact)
    from vllm_omni.model_executor.models.qwen3_tts.cuda_graph_decoder_wrapper import CUDAGraphDecoderWrapper

    wrapper = CUDAGraphDecoderWrapper(adapter.module, capture_sizes=[8, 16], num_quantizers=adapter.sizes["n_vq"])
    wrapper.warmup(torch.device("cuda"))
    found = paired(
        {
            "hand": hand,
            "exact": lambda: runner(exact),
            "padded": lambda: runner(padded),
            "upstream exact": lambda: wrapper.decode(exact),
            "upstream padded": lambda: wrapper.decode(padded),
        },
        rounds,
        100,
        wait=False,
    )
    add(rows, "host time of an exact call, tiny decoder", found, "exact", "hand", 1.15)
    add(rows, "host time of a padded call", found, "padded", "hand", 1.5)
    add(rows, "(vllm-omni's wrapper, exact)", found, "upstream exact", "hand", None)
    add(rows, "(vllm-omni's wrapper, padded)", found, "upstream padded", "hand", None)
    calls = {"module": lambda: adapter.forward(large), "fallback": lambda: runner(large)}
    found = paired(calls, rounds, 10, wait=False)
    add(rows, "eager fallback", found, "fallback", "module", 1.02)
    runner.close()
    fallback(rows, rounds)


def fallback(rows: list[dict[str, Any]], rounds: int) -> None:
    """Microseconds that a fallback adds, where the module takes few of them itself."""
    adapter, tensor = Plain(), torch.ones(1, 9, device="cuda")
    runner = make(adapter, [{"batch": 1, "frames": 8}])
    calls = {"module": lambda: adapter.forward(tensor), "fallback": lambda: runner(tensor)}
    found = paired(calls, rounds, 100, wait=False)
    added = (found["fallback"] - found["module"]) * 1e6
    extra = f"{found['fallback'] * 1e6:.1f} µs against {found['module'] * 1e6:.1f} µs"
    rows.append({"what": "eager fallback of one addition, µs added", "ratio": added, "at most": 5.0, "extra": extra})


def full_module() -> GraphAdapter:
    """Qwen3-Omni's Code2Wav in the size of the released model, random weights, float32."""
    from transformers.models.qwen3_omni_moe.configuration_qwen3_omni_moe import Qwen3OmniMoeCode2WavConfig
    from vllm_omni.model_executor.models.qwen3_omni.qwen3_omni_code2wav import Qwen3OmniMoeCode2Wav

    config = Qwen3OmniMoeCode2WavConfig()  # with no arguments it has the size of the released model
    config._attn_implementation = "sdpa"
    # Its __init__ reads nothing else of a VllmConfig.
    module = Qwen3OmniMoeCode2Wav(vllm_config=SimpleNamespace(model_config=SimpleNamespace(hf_config=config)))
    made: GraphAdapter = spec_of(FULL).adapter(module.eval().cuda())  # type: ignore[call-arg]
    return made


def wall(rows: list[dict[str, Any]], rounds: int) -> None:
    """Wall time of a full-size module."""
    adapter = full_module()
    tensor = codes(FULL, adapter, SIZE)
    runner = make(adapter, [SIZE])
    calls = {
        "eager": lambda: adapter.forward(tensor),
        "hand": by_hand(adapter, tensor),
        "runner": lambda: runner(tensor),
    }
    found = paired(calls, rounds, 5, wait=True)
    add(rows, "wall time, full-size Code2Wav, B=1 T=25", found, "runner", "hand", 1.01)
    add(rows, "(eager)", found, "eager", "hand", None)


def compile_tier(rows: list[dict[str, Any]], rounds: int) -> None:
    """The same on what torch.compile makes of it, beside torch.compile's own graphs."""
    adapter = full_module()
    tensor = codes(FULL, adapter, SIZE)
    started = time.perf_counter()
    tier = make(adapter, [SIZE], compile=True)
    ours = time.perf_counter() - started
    started = time.perf_counter()
    overhead = torch.compile(adapter.forward, mode="reduce-overhead", dynamic=False)

    def reduce_overhead() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return overhead(tensor).clone()

    for _ in range(4):
        reduce_overhead()
    theirs = time.perf_counter() - started
    found = paired({"reduce-overhead": reduce_overhead, "runner": lambda: tier(tensor)}, rounds, 5, wait=True)
    add(rows, "same with the compile tier", found, "runner", "reduce-overhead", 1.0)
    rows[-1]["extra"] += f"; compile {ours:.1f} s, reduce-overhead {theirs:.1f} s"


def memory(rows: list[dict[str, Any]], rounds: int) -> None:
    """Reserved bytes of six buckets against the largest alone and everybody's static buffers."""
    adapter = full_module()
    buckets = [{"batch": 1, "frames": size} for size in (25, 50, 75, 100, 125, 150)]

    def reserved(wanted: Any) -> tuple[int, int]:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        runner = make(adapter, wanted)
        torch.cuda.empty_cache()
        taken = torch.cuda.memory_reserved() - before
        held = [
            tensor
            for captured in runner._graphs.values()
            for tensor in (*captured.static.values(), *captured.outputs.values())
        ]
        statics = sum(tensor.untyped_storage().nbytes() for tensor in held)
        runner.close()
        return taken, statics

    alone, _ = reserved(buckets[-1:])
    together, statics = reserved(buckets)
    rows.append(
        {
            "what": "reserved bytes, 6 buckets ÷ (largest alone + static buffers)",
            "ratio": together / (alone + statics),
            "at most": 1.10,
            "extra": f"{together / 2**20:.0f} MiB, largest {alone / 2**20:.0f}, static {statics / 2**20:.1f}",
        }
    )


def lookup(rows: list[dict[str, Any]], rounds: int) -> None:
    """Seconds to find a bucket among 64 on two axes: a size that was asked for before, and one that was not."""
    axes = {"batch": PADDED, "frames": PADDED}
    buckets = [{"batch": batch, "frames": 25 * frames} for batch in (1, 2, 4, 8) for frames in range(1, 17)]
    asked = [{"batch": batch, "frames": frames} for batch in range(1, 9) for frames in range(1, 401, 7)]
    first, again = [], []
    for _ in range(rounds):
        table = BucketTable(buckets, axes)
        for times in (first, again):
            started = time.perf_counter()
            for sizes in asked:
                table.lookup(sizes)
            times.append((time.perf_counter() - started) / len(asked))
    seen, unseen = statistics.median(again), statistics.median(first)
    rows.append(
        {
            "what": "bucket lookup, 64 buckets on two axes, µs",
            "ratio": seen * 1e6,
            "at most": 2.0,
            "extra": f"a size that was never asked for before: {unseen * 1e6:.1f} µs",
        }
    )


class Plain(GraphAdapter):
    """One addition, so that nothing but the way to it takes time."""

    inputs = (InputSpec("x", torch.float32, ("batch", "frames")),)
    outputs = (OutputSpec("y", ("batch", "frames")),)
    axes: ClassVar[dict[str, AxisMode]] = {"batch": PADDED, "frames": PADDED}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class NoGraph:
    def replay(self) -> None:
        pass


def python_alone(rows: list[dict[str, Any]], rounds: int) -> None:
    """What the runner adds in Python, on tensors of the host, a graph that does nothing and one stream."""
    bucket, size = {"batch": 1, "frames": 8}, (1, 8)
    runner = GraphRunner(Plain(), [bucket], device="cpu")
    static, output, tensor, part = torch.zeros(size), torch.ones(size), torch.ones(size), torch.ones(1, 5)
    (known,) = runner._requested.buckets
    structure = tree_flatten(output)[1]
    captured = Captured(known, NoGraph(), {"x": static}, {"y": output}, structure)  # type: ignore[arg-type]
    runner.enabled = runner._warm = True
    runner._stream_number = runner._index = 0
    runner._publish({known: captured})

    def hand() -> torch.Tensor:
        static.copy_(tensor)
        captured.graph.replay()
        return output.clone()

    def zero(*_: Any) -> int:
        return 0

    stubs = {
        "is_current_stream_capturing": torch.cuda,
        "synchronize": torch.cuda,
        "_cuda_getCurrentRawStream": torch._C,
        "_cuda_isCurrentStreamCapturing": torch._C,
    }
    with contextlib.ExitStack() as stack, torch.no_grad():
        for name, owner in stubs.items():
            stack.enter_context(mock.patch.object(owner, name, zero, create=True))
        calls = {"hand": hand, "exact": lambda: runner(tensor), "padded": lambda: runner(part)}
        found = paired(calls, rounds, 1000, wait=False)
    for name in ("exact", "padded"):
        rows.append(
            {
                "what": f"(Python added to a call, {name}, µs)",
                "ratio": (found[name] - found["hand"]) * 1e6,
                "at most": None,
                "extra": f"{found[name] * 1e6:.1f} µs against {found['hand'] * 1e6:.1f} µs",
            }
        )


def overhead(rows: list[dict[str, Any]], rounds: int) -> None:
    """What the runner adds to copy, replay and clone on emulated CUDA, whose own calls are Python too."""
    with open_device("emulated"), torch.no_grad():
        adapter = Plain()
        tensor, part = torch.ones(1, 8, device="cuda"), torch.ones(1, 5, device="cuda")
        runner = make(adapter, [{"batch": 1, "frames": 8}])
        calls = {"hand": by_hand(adapter, tensor), "exact": lambda: runner(tensor), "padded": lambda: runner(part)}
        found = paired(calls, rounds, 100, wait=False)
    for name in ("exact", "padded"):
        add(rows, f"(emulated CUDA: host time of a call, {name})", found, name, "hand", None)
        rows[-1]["extra"] += f": {(found[name] - found['hand']) * 1e6:+.1f} µs"


def add(
    rows: list[dict[str, Any]], what: str, found: Mapping[str, float], ours: str, other: str, most: float | None
) -> None:
    us = {name: f"{seconds * 1e6:.1f} µs" for name, seconds in found.items()}
    extra = f"{us[ours]} against {us[other]}"
    rows.append({"what": what, "ratio": found[ours] / found[other], "at most": most, "extra": extra})


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        most = row["at most"]
        said = "" if most is None else f"at most {most:g}: {'ok' if row['ratio'] <= most else 'MISSED'}"
        print(f"{row['what']:<64} {row['ratio']:6.3f}  {said:<22} {row['extra']}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--host-only", action="store_true", help="the host's time alone: seconds instead of minutes")
    parser.add_argument("--no-compile", action="store_true", help="leave out the compile tier, which takes a minute")
    parser.add_argument("--without-gpu", action="store_true", help="what needs none alone: lookup and Python overhead")
    parser.add_argument("--json", type=Path, help="write the rows there too")
    options = parser.parse_args(arguments)
    if not options.without_gpu and not torch.cuda.is_available():
        print("expected a GPU and found none: ratios of an emulation are no speed; see --without-gpu", file=sys.stderr)
        return 2
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"no GPU, {platform.processor() or 'CPU'}"
    print(f"{device}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    parts: list[Callable[[list[dict[str, Any]], int], None]] = [lookup]
    if options.without_gpu:
        parts += [python_alone, overhead]
    else:
        parts += [host, *([] if options.host_only else [memory, wall])]
        parts += [] if options.host_only or options.no_compile else [compile_tier]
    found: list[dict[str, Any]] = []
    for part in parts:  # said at once: what comes later may fail
        rows: list[dict[str, Any]] = []
        with torch.no_grad():
            part(rows, options.rounds)
        show(rows)
        found += rows
        if options.json:
            options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
