"""Bar chart of a run: the time of each framework as a multiple of a copy."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from bench.report import COPY, heading
from bench.results import Run

# A palette for colour-blind readers (Okabe and Ito).
_COLOURS = {
    "jaxpool": "#0072B2",
    "lax": "#D55E00",
    "torch": "#E69F00",
    "torch-channels-last": "#F0E442",
    "tensorflow": "#009E73",
    "x+1": "#999999",
}


def plot(run: Run, path: Path) -> None:
    """Draw horizontal bars on a logarithmic axis. The line at 1 is a copy of the same bytes."""
    mpl.use("agg")
    import matplotlib.pyplot as plt

    results = [r for r in run.results if r.median(COPY)]
    peers = [p for p in _COLOURS if any(r.median(p) for r in results)]
    if not results:
        raise ValueError("nothing to plot: no case has a copy to stand against")
    rows = np.arange(len(results))
    thick = 0.8 / len(peers)
    figure, axes = plt.subplots(figsize=(9, 1.5 + 0.16 * len(results) * (len(peers) + 1)))
    for number, peer in enumerate(peers):
        widths = [(r.median(peer) or np.nan) / (r.median(COPY) or np.nan) for r in results]
        axes.barh(
            rows + (number - (len(peers) - 1) / 2) * thick,
            widths,
            thick,
            label=peer,
            color=_COLOURS[peer],
        )
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(rows, [r.case.name for r in results], fontsize=8)
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.set_xlabel("time over that of a copy of the same bytes")
    axes.set_title(heading(run))
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.01 + 0.3 / len(results)), ncols=len(peers))
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)
