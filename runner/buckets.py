"""Buckets: the sizes that graphs are captured for, and which of them serves a call."""

from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from math import prod
from operator import call, eq, ge

from runner.adapter import EXACT, AxisMode
from runner.errors import AdapterError


class Bucket(dict[str, int]):
    """One capture size: axis → size, in the adapter's axis order; `b1-f8` is batch 1, frames 8. Never change a key."""

    def __init__(self, sizes: Iterable[tuple[str, int]]) -> None:
        super().__init__(sizes)
        self.key, self.label = tuple(self.values()), "-".join(f"{axis[0]}{size}" for axis, size in self.items())
        self.work = prod(self.key)  # the elements that a replay computes

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.key)

    def __str__(self) -> str:
        return self.label


class BucketTable:
    """The buckets of one adapter, cheapest first. Raises AdapterError for a list that could not be captured."""

    def __init__(self, buckets: Iterable[Mapping[str, int]], axes: Mapping[str, AxisMode]) -> None:
        self._fits = [eq if mode is EXACT else ge for mode in axes.values()]
        found: list[Bucket] = []
        for position, sizes in enumerate(buckets):
            if not isinstance(sizes, Mapping) or set(sizes) != set(axes):
                raise AdapterError(f"buckets[{position}] must give one size for each of {list(axes)}, found {sizes!r}")
            for axis, size in sizes.items():
                if type(size) is not int or size < (axes[axis] is not EXACT):  # an exact axis may be empty
                    raise AdapterError(f"buckets[{position}][{axis!r}] must be a positive int, found {size!r}")
            found.append(Bucket((axis, sizes[axis]) for axis in axes))
            if found[-1] in found[:-1]:
                raise AdapterError(f"buckets[{position}] is a duplicate of {found[-1]}: give each size once")
        if not found:
            raise AdapterError(f"buckets is empty: give at least one mapping of {list(axes)} to sizes to capture")
        self.axes, self.given = tuple(axes), tuple(found)
        self.buckets = tuple(sorted(found, key=lambda bucket: (bucket.work, bucket.key)))
        self._remembered = lru_cache(4096)(self._search)

    def lookup(self, sizes: Mapping[str, int], among: Container[Bucket] | None = None) -> Bucket | None:
        """The bucket of least work, of those `among` them, that holds `sizes`; exact axes are equal. None if none."""
        found = self._remembered(tuple([sizes[axis] for axis in self.axes]))
        return next((bucket for bucket in found if among is None or bucket in among), None)

    def _search(self, wanted: tuple[int, ...]) -> list[Bucket]:
        return [bucket for bucket in self.buckets if all(map(call, self._fits, bucket.key, wanted))]
