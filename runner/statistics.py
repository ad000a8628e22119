"""What a runner did, counted. `calls == hits + sum(fallbacks) + replay_errors` at every moment."""

import threading
from collections import Counter
from typing import Any

from runner.buckets import Bucket
from runner.policy import Fallback


class GraphStatistics:
    """Counters of one runner, safe to use from any thread; buckets are keyed by label, `b1-f8`.

    Elements are products of axis sizes: a `b1-f5` call in bucket `b1-f8` computes 8, of which 3 are padded.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.hits_per_bucket, self.fallbacks = Counter[str](), Counter[str]()
        self.replay_errors = self.padded_elements = self.computed_elements = self.graphs_requested = self.evictions = 0
        self.capture_seconds, self.capture_bytes = dict[str, float](), dict[str, int]()
        self.capture_failures = dict[str, str]()

    def record_hit(self, bucket: Bucket, elements: int) -> None:
        """A replay of `bucket` that served `elements` of the caller's."""
        with self._lock:
            self.hits_per_bucket[bucket.label] += 1
            self.computed_elements += bucket.work
            self.padded_elements += bucket.work - elements

    def record_miss(self, fallback: Fallback | None) -> None:
        """An eager call and its reason; None for a replay that raised."""
        with self._lock:
            self.replay_errors += fallback is None
            if fallback is not None:
                self.fallbacks[str(fallback)] += 1

    def snapshot(self) -> dict[str, Any]:
        """The counters as JSON-ready values; capture seconds of wall time, bytes of reserved memory."""
        with self._lock:
            counts: dict[str, Any] = {k: dict(v) if isinstance(v, dict) else v for k, v in vars(self).items()}
        del counts["_lock"]
        counts |= {"hits": sum(counts["hits_per_bucket"].values()), "graphs_captured": len(counts["capture_seconds"])}
        counts["padded_share"] = counts["padded_elements"] / max(counts["computed_elements"], 1)
        return counts | {"calls": counts["hits"] + sum(counts["fallbacks"].values()) + counts["replay_errors"]}
