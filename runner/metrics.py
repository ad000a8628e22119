"""The counters of runners as Prometheus metrics. Needs prometheus-client, the extra `metrics`."""

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runner.runner import GraphRunner

_HELP = {
    "hits": "Calls served by the replay of a bucket's graph.",
    "fallbacks": "Calls that ran eagerly, by reason.",
    "replay_errors": "Replays that raised.",
    "evictions": "Graphs of lazy capture that were let go.",
    "padded_elements": "Elements that replays computed and nobody asked for.",
    "computed_elements": "Elements that replays computed.",
    "captured": "Graphs that can be replayed.",
    "requested": "Graphs that were asked for.",
    "capture_bytes": "Bytes of reserved memory that a bucket's capture took.",
    "capture_seconds": "Seconds that a bucket's capture took.",
}


class GraphCollector(Collector):
    """`REGISTRY.register(GraphCollector({"code2wav": runner}))`: `vllm:inner_cudagraph_…`, labelled by component."""

    def __init__(self, runners: Mapping[str, GraphRunner]) -> None:
        self._runners = dict(runners)

    def collect(self) -> Iterator[Metric]:
        found = {component: runner.statistics.snapshot() for component, runner in self._runners.items()}
        for name, key, label, family in (
            ("hits", "hits_per_bucket", "bucket", CounterMetricFamily),
            ("fallbacks", "fallbacks", "reason", CounterMetricFamily),
            ("replay_errors", "replay_errors", "", CounterMetricFamily),
            ("evictions", "evictions", "", CounterMetricFamily),
            ("padded_elements", "padded_elements", "", CounterMetricFamily),
            ("computed_elements", "computed_elements", "", CounterMetricFamily),
            ("captured", "graphs_captured", "", GaugeMetricFamily),
            ("requested", "graphs_requested", "", GaugeMetricFamily),
            ("capture_bytes", "capture_bytes", "bucket", GaugeMetricFamily),
            ("capture_seconds", "capture_seconds", "bucket", GaugeMetricFamily),
        ):
            labels = ["component", label] if label else ["component"]
            metric = family(f"vllm:inner_cudagraph_{name}", _HELP[name], labels=labels)
            for component, counted in found.items():
                values = counted[key].items() if label else [("", counted[key])]
                for value, number in values:
                    metric.add_metric([component, value] if label else [component], number)
            yield metric
