"""Why calls ran eagerly, and what a runner did, counted: `calls == hits + sum(fallbacks) + replay_errors`, always."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
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
    """Counters of one runner, safe to use from any thread; buckets are keyed by label, `b1-f8`.

    Elements are products of axis sizes: a `b1-f5` call in bucket `b1-f8` computes 8, of which 3 are padded.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.hits_per_bucket, self.fallbacks = Counter[str](), Counter[str]()
        self.replay_errors = self.padded_elements = self.computed_elements = self.graphs_requested = self.evictions = 0
        self.captures: Mapping[str, tuple[float, int]] = {}  # seconds and bytes by label
        self.failed: Mapping[Bucket, str] = {}

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
        _, captures, failed = [counts.pop(name) for name in ("_lock", "captures", "failed")]
        counts["hits"], counts["graphs_captured"] = sum(counts["hits_per_bucket"].values()), len(captures)
        counts["capture_seconds"] = {label: seconds for label, (seconds, _) in captures.items()}
        counts["capture_bytes"] = {label: taken for label, (_, taken) in captures.items()}
        counts["capture_failures"] = {bucket.label: text for bucket, text in failed.items()}
        counts["padded_share"] = counts["padded_elements"] / max(counts["computed_elements"], 1)
        return counts | {"calls": counts["hits"] + sum(counts["fallbacks"].values()) + counts["replay_errors"]}
