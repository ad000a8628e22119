"""What serving asks of a submodule: how a family cuts requests into calls, from a public source, as a small data file.

`trace.toml` beside a spec holds one file a family::

    source = ["https://github.com/vllm-project/vllm-omni/blob/v0.30.0/..."]
    about = "Qwen3-Omni Code2Wav, asynchronous chunks of 25 frames at 12.5 Hz"

    [chunking]                  # the calls of a request, derived: left context and new frames, chunk by chunk
    frames_axis = "frames"
    first = [4]                 # new frames of the first chunks; left out: as `steady`
    steady = 25                 # new frames of every further chunk; left out: one call for a whole request
    left_context = 25           # frames decoded again before each chunk, as many as there are
    requests = [38, 125, 300]   # frames of a typical request, equally often
    rows_axis = "batch"         # left out: one row a call
    rows = {1 = 3, 4 = 1}       # rows of a call, and how often in proportion

    [[calls]]                   # calls written out, instead or besides
    sizes = {batch = 1, frames = 7}
    count = 2
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.errors import SpecError

FILE = "trace.toml"
_FIELDS = {"source", "about", "chunking", "calls"}
_CHUNKING = {"frames_axis", "first", "steady", "left_context", "requests", "rows_axis", "rows"}


@dataclass(frozen=True)
class TracedCall:
    """`count` calls of one size of each axis."""

    sizes: Mapping[str, int]
    count: int


@dataclass(frozen=True)
class Trace:
    """The calls of typical requests, sizes once each, and where the facts come from."""

    calls: tuple[TracedCall, ...]
    source: tuple[str, ...] = ()
    about: str = ""

    @classmethod
    def of(cls, *sizes: Mapping[str, int]) -> Trace:
        """A trace of one call at each of the sizes given."""
        return cls(tuple(TracedCall(size, 1) for size in sizes))

    @property
    def total(self) -> int:
        return sum(call.count for call in self.calls)


def load_trace(beside: str | Path) -> Trace:
    """The `trace.toml` in the folder of the file `beside`. Raises :class:`SpecError` naming the file and the field."""
    path = Path(beside).with_name(FILE)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror}; expected a trace of the family's calls") from error
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: {error}") from error
    try:
        return _trace(found)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        problem = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise SpecError(f"{path}: {problem}") from error


def _trace(found: dict[str, Any]) -> Trace:
    _refuse_unknown(found, _FIELDS, "")
    sources = found["source"]
    if not sources or not all(isinstance(url, str) and url.startswith("https://") for url in sources):
        raise ValueError(f"`source` must list the public URLs that the sizes come from, found {sources!r}")
    counts: Counter[tuple[tuple[str, int], ...]] = Counter()
    for sizes, count in [*_chunked(found.get("chunking", {})), *_written(found.get("calls", []))]:
        counts[tuple(sizes.items())] += count
    if not counts:
        raise ValueError("expected [chunking] with `requests`, or [[calls]]; found no call")
    calls = tuple(TracedCall(dict(sizes), count) for sizes, count in counts.items())
    return Trace(calls, tuple(sources), found["about"])


def chunks(request: int, first: Sequence[int], steady: int | None, left_context: int) -> Iterator[int]:
    """The frames of each call that decodes `request` frames: what is new, and the left context there is by then."""
    done = 0
    planned = iter(first)
    while done < request:
        new = min(next(planned, steady or request), request - done)
        yield min(left_context, done) + new
        done += new


def _chunked(found: dict[str, Any]) -> Iterator[tuple[dict[str, int], int]]:
    _refuse_unknown(found, _CHUNKING, "chunking.")
    if not found:
        return
    steady = found.get("steady")
    first, context = found.get("first", []), found.get("left_context", 0)
    frames_axis, rows_axis = found["frames_axis"], found.get("rows_axis")
    rows = found.get("rows", {"1": 1})
    for value in (*found["requests"], *first, *rows, *rows.values(), *([] if steady is None else [steady])):
        _positive(value, "chunking")
    for request in found["requests"]:
        for frames in chunks(request, first, steady, context):
            for many, weight in rows.items():
                sizes = {rows_axis: int(many)} if rows_axis else {}
                yield {**sizes, frames_axis: frames}, weight


def _written(found: list[dict[str, Any]]) -> Iterator[tuple[dict[str, int], int]]:
    for entry in found:
        _refuse_unknown(entry, {"sizes", "count"}, "calls.")
        for size in entry["sizes"].values():
            _positive(size, "calls", or_zero=True)  # an input that this call has nothing to give for
        _positive(entry["count"], "calls")
        yield dict(entry["sizes"]), entry["count"]


def _positive(value: Any, where: str, *, or_zero: bool = False) -> None:
    if not str(value).isdecimal() or (int(value) < 1 and not or_zero):
        raise ValueError(f"{where}: sizes and counts must be positive whole numbers, found {value!r}")


def _refuse_unknown(found: dict[str, Any], known: set[str], where: str) -> None:
    for field in found:
        if field not in known:
            raise ValueError(f"unknown field {where}{field}; expected {', '.join(sorted(known))}")
