"""Buckets: the sizes that graphs are captured for, and which of them serves a call."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from runner.adapter import EXACT, AxisMode
from runner.errors import AdapterError


@dataclass(frozen=True)
class Bucket(Mapping[str, int]):
    """One capture size: axis → size, in the adapter's axis order; `b1-f8` is batch 1, frames 8."""

    sizes: tuple[tuple[str, int], ...]

    def __getitem__(self, axis: str) -> int:
        return dict(self.sizes)[axis]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self.sizes))

    def __len__(self) -> int:
        return len(self.sizes)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.sizes)

    def __str__(self) -> str:
        return self.label

    @cached_property
    def label(self) -> str:
        return "-".join(f"{axis[0]}{size}" for axis, size in self.sizes)

    @cached_property
    def work(self) -> int:
        """Product of the sizes: the elements that a replay computes."""
        return prod(size for _, size in self.sizes)


class BucketTable:
    """The buckets of one adapter, cheapest first. Raises AdapterError for a list that could not be captured."""

    def __init__(self, buckets: Iterable[Mapping[str, int]], axes: Mapping[str, AxisMode]) -> None:
        self._axes = dict(axes)
        found: list[Bucket] = []
        for position, sizes in enumerate(buckets):
            if not isinstance(sizes, Mapping) or set(sizes) != set(axes):
                raise AdapterError(f"buckets[{position}] must give one size for each of {list(axes)}, found {sizes!r}")
            for axis, size in sizes.items():
                if type(size) is not int or size < (axes[axis] is not EXACT):  # an exact axis may be empty
                    raise AdapterError(f"buckets[{position}][{axis!r}] must be a positive int, found {size!r}")
            found.append(Bucket(tuple((axis, sizes[axis]) for axis in axes)))
            if found[-1] in found[:-1]:
                raise AdapterError(f"buckets[{position}] is a duplicate of {found[-1]}: give each size once")
        if not found:
            raise AdapterError(f"buckets is empty: give at least one mapping of {list(axes)} to sizes to capture")
        self.given = tuple(found)
        self.buckets = tuple(sorted(found, key=lambda bucket: (bucket.work, bucket.sizes)))
        self.largest_first = self.buckets[::-1]
        self._seen: dict[tuple[int, ...], Bucket | None] = {}

    def lookup(self, sizes: Mapping[str, int]) -> Bucket | None:
        """The bucket of least work that holds `sizes`; exact axes must be equal. None where no bucket does."""
        key = tuple([sizes[axis] for axis in self._axes])
        if key not in self._seen:
            self._seen = self._seen if len(self._seen) < 4096 else {}
            exact = [axis for axis, mode in self._axes.items() if mode is EXACT]
            holding = [b for b in self.buckets if all(size >= sizes[axis] for axis, size in b.sizes)]
            self._seen[key] = next((b for b in holding if all(b[axis] == sizes[axis] for axis in exact)), None)
        return self._seen[key]
