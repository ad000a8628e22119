"""Why calls ran eagerly, and what a runner did, counted: `calls == hits + sum(fallbacks) + replay_errors`, always."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

from runner.buckets import Bucket


class FallbackReason(Enum):
    """Why a call ran eagerly."""

    DISABLED = "disabled"
    NOT_CAPTURED = "not_captured"
    OUTER_CAPTURE = "outer_capture"
    NO_BUCKET = "no_bucket"
    CAPTURE_FAILED = "capture_failed"
    MEMORY_LIMIT = "memory_limit"
    INELIGIBLE = "ineligible"
    FORKED = "forked"
    CLOSED = "closed"


@dataclass(frozen=True)
class Fallback:
    """One eager call's reason; `detail` is a word of the adapter's or runner's, as in `ineligible:dtype`."""

    reason: FallbackReason
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason.value}:{self.detail}" if self.detail else self.reason.value


class GraphStatistics:
    """Counters of one runner, safe to use from any thread; buckets are keyed by label, `b1-f8`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._served: dict[tuple[Bucket, int], list[int]] = {}  # by elements, the product of a call's sizes
        self.fallbacks = Counter[str]()
        self.replay_errors = self.graphs_requested = self.evictions = 0
        self.captures: Mapping[str, tuple[float, int]] = {}  # seconds and bytes by label
        self.failed: Mapping[Bucket, str] = {}

    def served(self, bucket: Bucket, sizes: Mapping[str, int]) -> list[int]:
        """Replays of `bucket` that served as much as `sizes`: one number, which the runner adds to under its lock."""
        with self._lock:
            return self._served.setdefault((bucket, prod(sizes.values())), [0])

    def record_miss(self, fallback: Fallback | None) -> None:
        """An eager call and its reason; None for one that raised in a replay, or on the way to it."""
        with self._lock:
            self.fallbacks.update([str(fallback)] if fallback else [])
            self.replay_errors += fallback is None

    def snapshot(self) -> dict[str, Any]:
        """The counters as JSON-ready values; capture seconds of wall time, bytes of reserved memory."""
        hits, computed, padded = Counter[str](), 0, 0
        with self._lock:
            for (bucket, elements), [calls] in self._served.items():
                hits[bucket.label] += calls
                computed, padded = computed + calls * bucket.work, padded + calls * (bucket.work - elements)
            missed, errors, made = +self.fallbacks, self.replay_errors, self.captures
        counts: dict[str, Any] = {"calls": hits.total() + missed.total() + errors, "hits": hits.total()}
        counts |= {"hits_per_bucket": dict(+hits), "fallbacks": dict(missed), "replay_errors": errors}
        counts |= {"computed_elements": computed, "padded_elements": padded, "padded_share": padded / max(computed, 1)}
        counts |= {"graphs_requested": self.graphs_requested, "graphs_captured": len(made), "evictions": self.evictions}
        counts |= {"capture_seconds": {label: seconds for label, (seconds, _) in made.items()}}
        counts |= {"capture_bytes": {label: taken for label, (_, taken) in made.items()}}
        return counts | {"capture_failures": {bucket.label: text for bucket, text in self.failed.items()}}
