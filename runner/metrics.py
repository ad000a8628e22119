"""The counters of runners as Prometheus metrics, in vLLM's style. Needs the extra `prometheus`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runner.runner import GraphRunner

_COUNTER, _GAUGE = CounterMetricFamily, GaugeMetricFamily
_METRICS = (  # kind, name, the snapshot's key, the label that tells its entries apart, and the help
    (_COUNTER, "hits", "hits_per_bucket", "bucket", "Calls served by the replay of a bucket's graph."),
    (_COUNTER, "fallbacks", "fallbacks", "reason", "Calls that ran eagerly, by reason."),
    (_COUNTER, "replay_errors", "replay_errors", None, "Calls that raised in a replay or on the way to it."),
    (_COUNTER, "evictions", "evictions", None, "Graphs of lazy capture that were let go."),
    (_COUNTER, "padded_elements", "padded_elements", None, "Elements that replays computed and nobody asked for."),
    (_COUNTER, "computed_elements", "computed_elements", None, "Elements that replays computed."),
    (_GAUGE, "captured", "graphs_captured", None, "Graphs that were captured and not let go of since."),
    (_GAUGE, "requested", "graphs_requested", None, "Graphs that were asked for."),
    (_GAUGE, "capture_bytes", "capture_bytes", "bucket", "Bytes of reserved memory that a bucket's capture took."),
    (_GAUGE, "capture_seconds", "capture_seconds", "bucket", "Seconds that a bucket's capture took."),
)


@dataclass(frozen=True, eq=False)
class GraphCollector(Collector):
    """`REGISTRY.register(GraphCollector({"code2wav": runner}))`: `vllm:inner_cudagraph_…`, labelled by component."""

    runners: Mapping[str, GraphRunner]

    def collect(self) -> Iterator[Metric]:
        found = {component: runner.statistics.snapshot() for component, runner in self.runners.items()}
        for kind, name, key, label, what in _METRICS:
            metric = kind(f"vllm:inner_cudagraph_{name}", what, labels=["component", label] if label else ["component"])
            for component, counted in found.items():
                for value, number in counted[key].items() if label else [("", counted[key])]:
                    metric.add_metric([component, value] if label else [component], number)
            yield metric
