"""Figures as inline SVG: matplotlib computes the paths, and the page's own style sheet gives them their looks.

A figure has no text and stretches to the width of its place, so that a phone shows the same words as a wide screen at
the same size: labels are HTML around it. Each artist's gid becomes a class; colours are the page's, light or dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

_SVG = "{http://www.w3.org/2000/svg}"
_DOTS_PER_INCH = 72
_NUMBER = re.compile(r"-?\d+\.\d+")
_PREFIX = "g-"  # of the artists' names, and so of the classes of paths

Range = tuple[float, float]


class Drawing:
    """A figure of `width` × `height` units, which holds panels."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        size = (width / _DOTS_PER_INCH, height / _DOTS_PER_INCH)
        self.figure = Figure(figsize=size, dpi=_DOTS_PER_INCH, frameon=False)
        FigureCanvasSVG(self.figure)

    def panel(self, xs: Range, ys: Range, *, bottom: float = 0.0, height: float = 1.0) -> Panel:
        """A part of the figure over its whole width, where these values lie. `bottom` and `height` are shares of it."""
        return Panel(self.figure, xs, ys, bottom, height)

    def svg(self, description: str) -> Markup:
        """The paths as an SVG element that a screen reader reads as `description`."""
        written = io.StringIO()
        self.figure.savefig(written, format="svg", metadata={"Date": None})
        root = ElementTree.fromstring(written.getvalue())
        paths = [
            Markup('<path class="{}" d="{}"/>').format(name, _short(path.get("d", "")))
            for group in root.iter(f"{_SVG}g")
            if (name := group.get("id", "")).startswith(_PREFIX)
            for path in group.iter(f"{_SVG}path")
        ]
        return Markup('<svg viewBox="{}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>').format(
            root.get("viewBox"), description, Markup("").join(paths)
        )


class Panel:
    """Draws in the coordinates of its data. It is no matplotlib axes: nothing of theirs is seen, and they take time."""

    def __init__(self, figure: Any, xs: Range, ys: Range, bottom: float, height: float) -> None:
        from matplotlib.transforms import Bbox, BboxTransform

        data, place = Bbox.from_extents(xs[0], ys[0], xs[1], ys[1]), Bbox.from_bounds(0.0, bottom, 1.0, height)
        self._figure, self._xs, self._ys = figure, xs, ys
        self._transform = BboxTransform(data, place) + figure.transFigure

    def line(self, name: str, xs: Sequence[float], ys: Sequence[float | None]) -> None:
        """A line with a gap wherever there is no value."""
        from matplotlib.lines import Line2D

        self._add(name, Line2D(xs, [float("nan") if y is None else y for y in ys]))

    def area(self, name: str, xs: Sequence[float], ys: Sequence[float]) -> None:
        """What lies between the values and zero."""
        from matplotlib.patches import Polygon

        if xs:
            self._add(name, Polygon([(xs[0], 0.0), *zip(xs, ys, strict=True), (xs[-1], 0.0)]))

    def span(self, name: str, first: float, last: float) -> None:
        """The whole height from `first` to `last`."""
        from matplotlib.patches import Rectangle

        self._add(name, Rectangle((first, self._ys[0]), last - first, self._ys[1] - self._ys[0]))

    def upright(self, name: str, x: float) -> None:
        self.line(name, (x, x), self._ys)

    def level(self, name: str, y: float) -> None:
        self.line(name, self._xs, (y, y))

    def _add(self, name: str, artist: Any) -> None:
        artist.set_gid(f"{_PREFIX}{name}")
        artist.set_transform(self._transform)
        self._figure.add_artist(artist)


def _short(d: str) -> str:
    """A path's data with one decimal: a tenth of a unit is less than a pixel."""
    return " ".join(_NUMBER.sub(lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), d).split())


def sparkline(values: Sequence[float], description: str) -> Markup:
    """A small line over time. It spans at least a tenth of the middle to either side, so that noise stays small."""
    middle = sorted(values)[len(values) // 2]
    shown = [*values, *values] if len(values) == 1 else list(values)
    drawn = Drawing(200, 40)
    heights = (min([*values, 0.9 * middle]), max([*values, 1.1 * middle, 1e-9]))
    drawn.panel((0, len(shown) - 1), heights, bottom=0.05, height=0.9).line("spark", range(len(shown)), shown)
    return drawn.svg(description)
