"""Draws speed.svg and speed_all.svg from the tables of bench/RESULTS.md.

python docs/pictures/speed.py
"""

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "bench" / "RESULTS.md"
SECTION = "forward and backward, CPU, after keep_memory()"
# Colours that colour-blind readers can tell apart (Okabe and Ito).
COLOURS = {
    "jaxpool": "#0072B2",
    "lax": "#D55E00",
    "torch-channels-last": "#E69F00",
    "tensorflow": "#009E73",
}
LABELS = {
    "lax": "jax.lax",
    "torch-channels-last": "PyTorch, channels last",
    "tensorflow": "TensorFlow",
}
SHOWN = (  # those of README's table
    "max 2x2 stride 2, 16x128x128x32",
    "max 3x3 stride 2 pad 1, 16x112x112x64",
    "max 3x3 stride 1 SAME, 8x64x64x64",
    "max 13x13 stride 1 SAME, 8x40x40x128",
    "max 31x31 stride 1 SAME, 4x128x128x32",
    "max 2x2 stride 2 bfloat16, 16x128x128x32",
    "avg 3x3 stride 1 pad 1, 32x56x56x64",
    "maximum of 2, 16x128x128x32",
)


def times(text=None):
    """Milliseconds by case and framework, and the line that says on what machine."""
    section = (text or RESULTS.read_text()).split(f"\n## {SECTION}\n")[1].split("\n## ")[0]
    header = re.search(r"^\| case \| jaxpool \|.*$", section, re.MULTILINE)
    rows = section[header.start() :].split("\n\n")[0].splitlines()
    names, *lines = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    table = {line[0]: dict(zip(names[1:], line[1:], strict=True)) for line in lines[1:]}
    return table, section.strip().split(", transparent")[0]


def milliseconds(row, peer):
    """The time of a framework; a memory format makes no difference to elementwise functions."""
    return float(row["torch"] if row[peer] == "-" else row[peer])


def draw(cases, table, machine, path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 1.3 + 0.52 * len(cases)))
    thick = 0.8 / len(COLOURS)
    for number, (peer, colour) in enumerate(COLOURS.items()):
        at = np.arange(len(cases)) + (number - (len(COLOURS) - 1) / 2) * thick
        ms = [milliseconds(table[case], peer) for case in cases]
        axes.barh(at, ms, thick, label=LABELS.get(peer, peer), color=colour)
        for y, value in zip(at, ms, strict=True):
            axes.text(
                value * 1.05,
                y,
                f"{value:.0f}" if value >= 1000 else f"{value:.3g}",
                va="center",
                fontsize=7,
            )
    axes.set_xscale("log")
    axes.set_xlim(left=0.1 if min(float(table[case]["jaxpool"]) for case in cases) < 1 else 1)
    axes.set_yticks(range(len(cases)), [case.replace(", ", "\n", 1) for case in cases], fontsize=8)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_xlabel("milliseconds, forward and backward, logarithmic: shorter is faster")
    axes.set_title(machine, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8
    )
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


if __name__ == "__main__":
    mpl.use("agg")
    mpl.rcParams |= {"svg.hashsalt": "jaxpool", "figure.constrained_layout.use": True}
    table, machine = times()
    draw(SHOWN, table, machine, HERE / "speed.svg")
    draw(tuple(table), table, machine, HERE / "speed_all.svg")
