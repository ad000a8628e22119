"""The counters of runners as Prometheus metrics, in vLLM's style. Needs the extra `prometheus`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runner.runner import GraphRunner

_COUNTERS = {  # name: the snapshot's key, the labels that tell its entries apart, and the help
    "hits": ("hits_per_bucket", ["bucket"], "Calls served by the replay of a bucket's graph."),
    "fallbacks": ("fallbacks", ["reason"], "Calls that ran eagerly, by reason."),
    "replay_errors": ("replay_errors", [], "Replays that raised."),
    "evictions": ("evictions", [], "Graphs of lazy capture that were let go."),
    "padded_elements": ("padded_elements", [], "Elements that replays computed and nobody asked for."),
    "computed_elements": ("computed_elements", [], "Elements that replays computed."),
}
_GAUGES = {
    "captured": ("graphs_captured", [], "Graphs that were captured and not let go of since."),
    "requested": ("graphs_requested", [], "Graphs that were asked for."),
    "capture_bytes": ("capture_bytes", ["bucket"], "Bytes of reserved memory that a bucket's capture took."),
    "capture_seconds": ("capture_seconds", ["bucket"], "Seconds that a bucket's capture took."),
}


@dataclass(frozen=True, eq=False)
class GraphCollector(Collector):
    """`REGISTRY.register(GraphCollector({"code2wav": runner}))`: `vllm:inner_cudagraph_…`, labelled by component."""

    runners: Mapping[str, GraphRunner]

    def collect(self) -> Iterator[Metric]:
        found = {component: runner.statistics.snapshot() for component, runner in self.runners.items()}
        for family, metrics in ((CounterMetricFamily, _COUNTERS), (GaugeMetricFamily, _GAUGES)):
            for name, (key, labels, what) in metrics.items():
                metric = family(f"vllm:inner_cudagraph_{name}", what, labels=["component", *labels])
                for component, counted in found.items():
                    for value, number in counted[key].items() if labels else [("", counted[key])]:
                        metric.add_metric([component, value] if labels else [component], number)
                yield metric
