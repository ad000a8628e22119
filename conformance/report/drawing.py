"""Figures as inline SVG: matplotlib computes the paths, and the page's own style sheet gives them their looks.

A figure has no text and stretches to the width of its place, so that a phone shows the same words as a wide screen at
the same size: labels are HTML around it. Each artist's gid becomes a class; colours are the page's, light or dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SVG = "{http://www.w3.org/2000/svg}"
_DOTS_PER_INCH = 72
_NUMBER = re.compile(r"-?\d+\.\d+")


def figure(width: float, height: float) -> Figure:
    """An empty figure of so many units."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    made = Figure(figsize=(width / _DOTS_PER_INCH, height / _DOTS_PER_INCH), dpi=_DOTS_PER_INCH, frameon=False)
    FigureCanvasSVG(made)
    return made


def panel(drawn: Figure, bottom: float, height: float) -> Axes:
    """Axes over the whole width of the figure, without ticks, frame or margin."""
    axes = drawn.add_axes((0.0, bottom, 1.0, height))
    axes.set_axis_off()
    axes.margins(0)
    return axes


def line(axes: Axes, name: str, xs: Sequence[float], ys: Sequence[float | None]) -> None:
    """A line with a gap wherever there is no value."""
    values = [float("nan") if y is None else y for y in ys]
    axes.plot(xs, values, gid=name, clip_on=False, solid_joinstyle="round")


def svg(drawn: Figure, description: str) -> Markup:
    """The figure's paths as an SVG element that a screen reader reads as `description`."""
    import matplotlib

    written = io.StringIO()
    with matplotlib.rc_context({"path.simplify": True, "svg.hashsalt": "audiograph"}):
        drawn.savefig(written, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(written.getvalue())
    paths = [
        Markup('<path class="{}" d="{}"/>').format(name, _short(path.get("d", "")))
        for group in root.iter(f"{_SVG}g")
        if (name := group.get("id", "")).startswith("g-")
        for path in group.iter(f"{_SVG}path")
    ]
    return Markup('<svg viewBox="{}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>').format(
        root.get("viewBox"), description, Markup("").join(paths)
    )


def _short(d: str) -> str:
    """A path's data with one decimal: a tenth of a unit is less than a pixel."""
    return " ".join(_NUMBER.sub(lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), d).split())


def sparkline(values: Sequence[float], description: str) -> Markup:
    """A small line over time. It spans at least a tenth of the middle to either side, so that noise stays small."""
    drawn = figure(200, 40)
    axes = panel(drawn, 0.05, 0.9)
    xs: list[float] = [float(x) for x in range(len(values))] if len(values) > 1 else [0.0, 1.0]
    line(axes, "g-spark", xs, list(values) if len(values) > 1 else [*values, *values])
    middle = sorted(values)[len(values) // 2]
    axes.set_ylim(min([*values, 0.9 * middle]), max([*values, 1.1 * middle, 1e-9]))
    return svg(drawn, description)


def keep(artist: Any, name: str) -> None:
    """Name an artist and let nothing cut it off."""
    artist.set_gid(name)
    artist.set_clip_on(False)
