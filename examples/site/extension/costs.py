"""A plot of the stored run of the benchmarks, for the page on costs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from extension.files import write

__all__ = ["make"]

# Libraries that do the same, and their colors.
PEERS = {
    "torch": "#e4572e",
    "HIPS autograd": "#e3a008",
    "jax": "#8e6bd8",
    "jax, from its cache": "#b39ae6",
    "plum": "#5b9bd5",
    "singledispatch": "#9aa5b1",
    "torch.compile": "#f29479",
    "PyTensor": "#d36fae",
}
_OURS = "#2a9d76"
_MODES = {"light": ("#1f2933", "#cbd2d9"), "dark": ("#d9dee3", "#4b5560")}

_PEER_PLOT = """\
How long other libraries take for the same work, as a multiple of what customop takes, which is
the line at 1. A point to the right of it is slower than customop. Measured on {date}:
{machine}
"""


def make(stored: Path, target: Path) -> str:
    """Draw the plot in both modes; return the Markdown that shows it."""
    run = json.loads(stored.read_text(encoding="utf-8"))
    peers = _peers(run["rows"])
    for mode, (text, line) in _MODES.items():
        with rc_context(_style(text, line)):
            write(target / f"costs_peers_{mode}.svg", _as_svg(_draw_peers(peers)))
    words = "Times of other libraries, as multiples of customop's"
    return "\n".join([_PEER_PLOT.format(**run), *_shown("costs_peers", words)])


def _shown(name: str, words: str) -> list[str]:
    return [f"![{words}]({name}_{mode}.svg){{.wide .only-{mode}}}\n" for mode in _MODES]


# ---- what the plots show ----


def _timings(row: dict[str, Any]) -> dict[str, float]:
    found = dict(row["others"])
    form, against, most = (row["limit"][key] for key in ("form", "against", "most"))
    # A budget of many times the other is not one for the same work.
    if row["other"] is not None and form != "over" and (most or 1) < 2:
        found[against] = row["other"]
    return found


def _peers(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the name of a row -> peer -> its time over ours; the slowest peers first."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        times = {n: t / row["ours"] for n, t in _timings(row).items() if n in PEERS}
        if times and row["unit"] == "s":
            found.setdefault(row["what"], {}).update(times)
    return dict(sorted(found.items(), key=lambda item: -max(item[1].values())))


# ---- drawing ----


def _style(text: str, line: str) -> dict[str, Any]:
    keys = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys(keys, text),
        "axes.edgecolor": line,
        "grid.color": line,
        "font.size": 9,
        "svg.hashsalt": "customop",
    }


def _axes(count: int, each: float) -> tuple[Figure, Any]:
    figure = Figure(figsize=(8.2, 0.6 + each * count), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.subplots()
    axes.patch.set_alpha(0.0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(axis="x", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_xscale("log")
    return figure, axes


def _label_rows(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), [name.replace("`", "") for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.axvline(1.0, color=_OURS, linewidth=1.6)


def _draw_peers(rows: dict[str, dict[str, float]]) -> Figure:
    figure, axes = _axes(len(rows), 0.235)
    for place, times in enumerate(rows.values()):
        axes.hlines(
            place, min(1.0, *times.values()), max(1.0, *times.values()), "gray", lw=0.6
        )
    for name, color in PEERS.items():
        found = [(t[name], y) for y, t in enumerate(rows.values()) if name in t]
        if found:
            axes.plot(*zip(*found, strict=True), "o", color=color, label=name, ms=5.5)
    _label_rows(axes, [*rows])
    axes.set_xlabel("times as long as customop")
    figure.legend(loc="outside upper right", frameon=False, ncols=4)
    return figure


def _as_svg(figure: Figure) -> str:
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()
