"""Draws speed.svg, speed_all.svg and peak_memory.svg from the tables of docs/results.md.

python docs/pictures/speed.py
"""

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results.md"
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
    "max_pool(float32[16,128,128,32], (2, 2), (2, 2))",
    "max_pool(float32[16,112,112,64], (3, 3), (2, 2), ((1, 1), (1, 1)))",
    "max_pool(float32[8,64,64,64], (3, 3), padding='SAME')",
    "max_pool(float32[8,40,40,128], (13, 13), padding='SAME')",
    "max_pool(float32[4,128,128,32], (31, 31), padding='SAME')",
    "max_pool(bfloat16[16,128,128,32], (2, 2), (2, 2))",
    "avg_pool(float32[32,56,56,64], (3, 3), padding=((1, 1), (1, 1)))",
    "maximum(float32[16,128,128,32], float32[16,128,128,32])",
)


def section():
    """The results drawn here, and the line that says on what machine."""
    text = RESULTS.read_text().split(f"\n## {SECTION}\n")[1].split("\n## ")[0].strip()
    return text, text.split(", transparent")[0]


def table(text, column):
    """By case and column, of the first table whose second column begins with `column`."""
    header = re.search(rf"^\| case \| {column}.*$", text, re.MULTILINE)
    rows = text[header.start() :].split("\n\n")[0].splitlines()
    names, _, *lines = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {line[0]: dict(zip(names[1:], line[1:], strict=True)) for line in lines}


def milliseconds(row, peer):
    """The time of a framework; a memory format makes no difference to elementwise functions."""
    return float(row["torch"] if row[peer] == "-" else row[peer])


def draw(name, bars, cases, what, title):
    """Bars of several frameworks for each case, on a logarithmic axis."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 1.3 + 0.13 * len(cases) * len(bars)))
    thick = 0.8 / len(bars)
    for number, (peer, values) in enumerate(bars.items()):
        at = np.arange(len(cases)) + (number - (len(bars) - 1) / 2) * thick
        axes.barh(at, values, thick, label=LABELS.get(peer, peer), color=COLOURS[peer])
        for y, value in zip(at, values, strict=True):
            shown = f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
            axes.text(value * 1.05, y, shown, va="center", fontsize=7)
    axes.set_xscale("log")
    axes.set_xlim(left=10 ** np.floor(np.log10(min(map(min, bars.values())))))
    size = 8 if len(bars) > 2 else 6
    labels = [case.replace(", ", ",\n", 1) for case in cases]
    axes.set_yticks(range(len(cases)), labels, fontsize=size)
    axes.set_ylim(len(cases) - 0.5, -0.5)
    axes.set_xlabel(f"{what}, forward and backward, logarithmic: shorter is better")
    axes.set_title(title, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    legend = axes.get_legend_handles_labels()
    figure.legend(*legend, loc="outside upper center", ncols=4, fontsize=8)
    figure.savefig(HERE / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def main():
    mpl.use("agg")
    mpl.rcParams |= {"svg.hashsalt": "jaxpool", "figure.constrained_layout.use": True}
    text, machine = section()
    times, other = table(text, "jaxpool"), table(text, "MB to move")
    for name, cases in (("speed", SHOWN), ("speed_all", tuple(times))):
        bars = {peer: [milliseconds(times[case], peer) for case in cases] for peer in COLOURS}
        draw(name, bars, cases, "milliseconds", machine)
    peers = ("jaxpool", "lax")
    bars = {peer: [float(other[case][f"peak, MB: {peer}"]) for case in SHOWN] for peer in peers}
    draw("peak_memory", bars, SHOWN, "peak memory in MB", "temporaries and results, by XLA")


if __name__ == "__main__":
    main()
