"""Figures as inline SVG: matplotlib computes the paths, and the page's own style sheet gives them their looks.

A figure has no text and stretches to the width of its place, so that a phone shows the same words as a wide screen at
the same size: labels are HTML around it. Each path has a class; colours are the page's, light or dark.

Of matplotlib only its paths are used. Its figures would take three times as long to import, and on a machine that never
imported them they first search the whole system for fonts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

Range = tuple[float, float]
_GAP = float("nan")


class Drawing:
    """A picture of `width` × `height` units, about pixels, made of panels."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.paths: list[Markup] = []

    def panel(self, xs: Range, ys: Range, *, bottom: float = 0.0, height: float = 1.0) -> Panel:
        """A part of it over its whole width, where these values lie. `bottom` and `height` are shares of the whole."""
        return Panel(self, xs, ys, bottom, height)

    def svg(self, description: str) -> Markup:
        """The SVG element, which a screen reader reads as `description`."""
        return Markup('<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>').format(
            self.width, self.height, description, Markup("").join(self.paths)
        )


class Panel:
    """Draws in the coordinates of its data."""

    def __init__(self, drawing: Drawing, xs: Range, ys: Range, bottom: float, height: float) -> None:
        from matplotlib.transforms import Bbox, BboxTransform

        floor, ceiling = (1 - bottom) * drawing.height, (1 - bottom - height) * drawing.height  # SVG counts from above
        place = Bbox.from_extents(0, floor, drawing.width, ceiling)
        self._drawing, self._xs, self._ys = drawing, xs, ys
        self._transform = BboxTransform(Bbox.from_extents(xs[0], ys[0], xs[1], ys[1]), place)

    def line(self, name: str, xs: Sequence[float], ys: Sequence[float | None]) -> None:
        """A line with a gap wherever there is no value."""
        self._add(name, [(x, _GAP if y is None else y) for x, y in zip(xs, ys, strict=True)])

    def area(self, name: str, xs: Sequence[float], ys: Sequence[float]) -> None:
        """What lies between the values and zero."""
        if xs:
            self._add(name, [(xs[0], 0.0), *zip(xs, ys, strict=True), (xs[-1], 0.0)])

    def span(self, name: str, first: float, last: float) -> None:
        """The whole height from `first` to `last`, with a line around it."""
        low, high = self._ys
        self._add(name, [(first, low), (first, high), (last, high), (last, low), (first, low)])

    def upright(self, name: str, x: float) -> None:
        self._add(name, [(x, y) for y in self._ys])

    def level(self, name: str, y: float) -> None:
        self._add(name, [(x, y) for x in self._xs])

    def _add(self, name: str, points: Sequence[tuple[float, float]]) -> None:
        from matplotlib.path import Path

        if points:
            path = Path(points).cleaned(self._transform, remove_nans=True, simplify=True)
            self._drawing.paths.append(Markup('<path class="g-{}" d="{}"/>').format(name, _data(path)))


def _data(path: Any) -> str:
    """A path of straight lines, as SVG has it, with one decimal: a tenth of a unit is less than a pixel."""
    steps = []
    for (x, y), code in path.iter_segments(simplify=False):
        if code in (path.MOVETO, path.LINETO):
            steps.append(f"{'M' if code == path.MOVETO else 'L'}{_short(x)} {_short(y)}")
    return "".join(steps)


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def sparkline(values: Sequence[float], description: str) -> Markup:
    """A small line over time. It spans at least a tenth of the middle to either side, so that noise stays small."""
    middle = sorted(values)[len(values) // 2]
    shown = [*values, *values] if len(values) == 1 else list(values)
    drawn = Drawing(200, 40)
    heights = (min([*values, 0.9 * middle]), max([*values, 1.1 * middle, 1e-9]))
    drawn.panel((0, len(shown) - 1), heights, bottom=0.05, height=0.9).line("spark", range(len(shown)), shown)
    return drawn.svg(description)
