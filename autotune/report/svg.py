"""Small drawings as inline SVG: a canvas, scales and axes. Colours and fonts are the page's, by CSS class."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from autotune.report.plain_text import escaped_lines


@dataclass(frozen=True)
class Scale:
    """Numbers → pixels.

    Attributes:
        low, high: the numbers at ``start`` and ``end``.
        log: equal ratios are equal distances.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Pixel of ``value``."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(max(value, 1e-300)), math.log(low), math.log(high)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """Up to about ``most`` round numbers within the scale."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1, 2, 5), (1, 3), (1,)):
                ticks = [step * 10.0**decade for decade in decades for step in steps]
                ticks = [tick for tick in ticks if self.low <= tick <= self.high]
                if len(ticks) <= most:
                    break
            return ticks
        span = (self.high - self.low) or 1.0
        raw = span / max(1, most)
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw)
        first = math.ceil(self.low / step - 1e-9)
        return [step * number for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """``value`` in few digits."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


class Canvas:
    """A drawing of fixed size in CSS pixels.

    Args:
        label: what a screen reader says.
    """

    def __init__(self, width: int, height: int, label: str) -> None:
        self.width, self.height = width, height
        self._label = label
        self._items: list[str] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """A straight line of CSS class ``kind``."""
        self._items.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def path(self, points: Sequence[tuple[float, float]], kind: str, step: bool = False) -> None:
        """A line through ``points``; with ``step`` it keeps its height until the next one."""
        parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
        parts += [(f"H{x:.1f}V{y:.1f}" if step else f"L{x:.1f} {y:.1f}") for x, y in points[1:]]
        self._items.append(f'<path class="{kind}" d="{"".join(parts)}"/>')

    def rect(self, x: float, y: float, width: float, height: float, kind: str, title: str = "") -> None:
        """A filled rectangle that says ``title`` under the pointer."""
        shape = f'class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.6):.1f}" height="{height:.1f}"'
        self._items.append(_titled("rect", shape, title))

    def circle(self, x: float, y: float, radius: float, kind: str, title: str = "") -> None:
        """A disc that says ``title`` under the pointer."""
        self._items.append(_titled("circle", f'class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"', title))

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """One line of text; ``anchor`` is where of it ``x`` is: start, middle or end."""
        if not words:
            return
        self._items.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_words(words)}</text>'
        )

    def axis_x(self, scale: Scale, y: float, top: float, unit: str, most: int = 8) -> None:
        """Ticks with numbers below ``y``, thin lines up to ``top``, the unit at the end."""
        for tick in scale.ticks(most):
            x = scale(tick)
            self.line(x, top, x, y, "grid")
            self.text(x, y + 15, number(tick), "tick", "middle")
        self.text(scale.end, y + 30, unit, "unit", "end")

    def axis_y(self, scale: Scale, x: float, right: float, unit: str) -> None:
        """Ticks with numbers left of ``x``, thin lines to ``right``, the unit on top."""
        for tick in scale.ticks(6):
            y = scale(tick)
            self.line(x, y, right, y, "grid")
            self.text(x - 6, y + 4, number(tick), "tick", "end")
        self.text(0, scale.end - 9, unit, "unit")

    def render(self) -> str:
        """The SVG element."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        return f'<svg {size} role="img" aria-label="{_words(self._label)}">{"".join(self._items)}</svg>'


def _words(text: str) -> str:
    """``text``, which may hold names from elsewhere, as XML."""
    return escape(escaped_lines(text))


def _titled(tag: str, shape: str, title: str) -> str:
    return f"<{tag} {shape}><title>{_words(title)}</title></{tag}>" if title else f"<{tag} {shape}/>"
