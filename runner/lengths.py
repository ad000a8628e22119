"""Output length contracts: how much of a captured output is the caller's. A closed set of four pure formulas."""

from collections.abc import Callable
from dataclasses import dataclass

from runner.errors import AdapterError


class LengthContract:
    """Base of the four. Lengths are in elements of the output's length axis, sizes in units of its `of` axis."""

    scale: int = 1  # elements per unit

    def __post_init__(self) -> None:
        if type(self.scale) is not int or self.scale < 1:
            raise AdapterError(f"{self}: scale must be a positive int (elements per unit), found {self.scale!r}")

    def formula(self, captured: int, actual: int, bucket: int) -> int:
        """What `actual` units keep of the `captured` elements of a graph for `bucket` units."""
        return actual * self.scale

    def trimmed(self, captured: int, actual: int, bucket: int) -> int:
        """The formula, at least 0. Raises AdapterError where it gives no int, or more than was captured."""
        length = self.formula(captured, actual, bucket)
        if type(length) is not int or length > captured:
            found = f"found {length!r} for {actual} of the bucket's {bucket}: correct its scale or the lengths given"
            raise AdapterError(f"{self} must give an int of at most the {captured} elements captured, {found}")
        return max(length, 0)


@dataclass(frozen=True)
class Nominal(LengthContract):
    """`actual × scale`: for a decoder that returns exactly `scale` samples a frame."""

    scale: int


@dataclass(frozen=True)
class CapturedMinusPadding(LengthContract):
    """`captured − (bucket − actual) × scale`: equals eager for a causal decoder that returns `scale·T − c`."""

    scale: int

    def formula(self, captured: int, actual: int, bucket: int) -> int:
        return captured - (bucket - actual) * self.scale


@dataclass(frozen=True)
class PerRowLengths(LengthContract):
    """Row i of the tensor `lengths` keeps its × `scale`: a host input, or an output, read with one synchronisation."""

    lengths: str
    scale: int = 1


@dataclass(frozen=True)
class Custom(LengthContract):
    """`fn(captured_length, actual_frames, bucket_frames) -> int`: the adapter's own pure formula."""

    fn: Callable[[int, int, int], int]

    def formula(self, captured: int, actual: int, bucket: int) -> int:
        return self.fn(captured, actual, bucket)
