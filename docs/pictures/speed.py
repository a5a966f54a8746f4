"""Draw speed.svg, speed_all.svg and peak_memory.svg from bench/results/cpu-default.json.

python docs/pictures/speed.py
"""

import sys
from pathlib import Path

import matplotlib as mpl

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import measured  # noqa: E402

# A palette for colour-blind readers (Okabe and Ito), with a marker per framework.
STYLES = {
    "jaxpool": ("#0072B2", "o"),
    "lax": ("#D55E00", "s"),
    "torch-channels-last": ("#E69F00", "^"),
    "tensorflow": ("#009E73", "D"),
}
LABELS = {
    "jaxpool": "jaxpool",
    "lax": "jax.lax",
    "torch-channels-last": "PyTorch (channels last)",
    "tensorflow": "TensorFlow",
}
INK, LINE, PAPER = "#1f2430", "#b8bfcc", "#ffffff"
# Colours on a dark page. The pictures follow the colour scheme of the page that shows them.
IN_THE_DARK = {
    "#0072b2": "#56b4e9",
    "#d55e00": "#ff7b3d",
    "#e69f00": "#f0e442",
    "#009e73": "#2fc79a",
    INK: "#e6e9ef",
    LINE: "#4a5366",
    PAPER: "#161b22",
}
SHOWN = (
    "max_pool(float32[16,128,128,32], (2, 2), (2, 2))",
    "max_pool(float32[16,112,112,64], (3, 3), (2, 2), ((1, 1), (1, 1)))",
    "max_pool(float32[8,64,64,64], (3, 3), padding='SAME')",
    "max_pool(float32[8,40,40,128], (13, 13), padding='SAME')",
    "max_pool(float32[4,128,128,32], (31, 31), padding='SAME')",
    "max_pool(bfloat16[16,128,128,32], (2, 2), (2, 2))",
    "avg_pool(float32[32,56,56,64], (3, 3), padding=((1, 1), (1, 1)))",
    "maximum(float32[16,128,128,32], float32[16,128,128,32])",
)


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def draw(name, columns, cases, unit):
    """One row of dots per case, below the label and the numbers of jaxpool and lax. Narrow enough for a phone."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(4.6, 1.1 + 0.42 * len(cases)))
    left, right = (edge(map(edge, columns.values())) for edge in (min, max))
    axes.set_xscale("log")
    axes.set_xlim(left / 2, right * 2)
    for row, case in enumerate(cases):
        axes.plot([left / 2, right * 2], [row, row], color=LINE, linewidth=0.8, zorder=1)
        above = {
            "xycoords": axes.get_yaxis_transform(),
            "textcoords": "offset points",
            "fontsize": 8.5,
        }
        axes.annotate(measured.label(case), (0, row), (0, 7), color=INK, **above)
        ours, theirs = (number(columns[peer][row]) for peer in ("jaxpool", "lax"))
        axes.annotate(f"{ours} : {theirs}", (1, row), (0, 7), ha="right", color=INK, **above)
    for peer, values in columns.items():
        colour, shape = STYLES[peer]
        axes.plot(
            values,
            range(len(cases)),
            shape,
            label=LABELS[peer],
            color=colour,
            markersize=7,
            markeredgecolor=PAPER,
            markeredgewidth=0.7,
            zorder=4 if peer == "jaxpool" else 3,
        )
    axes.set_yticks([])
    axes.set_ylim(len(cases) - 0.6, -0.75)
    axes.set_xlabel(
        f"{unit}, forward and backward (logarithmic, less is better)\nnumbers: jaxpool : jax.lax",
        fontsize=8,
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(labelsize=8.5)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.legend(loc="outside upper left", ncols=2, fontsize=8.5, frameon=False, handletextpad=0.2)
    path = HERE / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
    path.write_text(path.read_text(encoding="utf-8").replace("</style>", f"{dark_rules()}</style>"))


def dark_rules():
    rules = (
        f'[style*="{paint}: {light}"] {{ {paint}: {dark} !important; }}'
        for paint in ("fill", "stroke")
        for light, dark in IN_THE_DARK.items()
    )
    return f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"


def main():
    mpl.use("agg")
    mpl.rcParams |= {
        "svg.hashsalt": "jaxpool",
        "svg.fonttype": "none",
        "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"],
        "figure.constrained_layout.use": True,
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color"), INK),
    }
    rows = measured.rows_of(measured.DEFAULT)
    pools = tuple(case for case in rows if case != measured.STEM)
    for name, cases in (("speed", SHOWN), ("speed_all", pools)):
        columns = {
            peer: [measured.milliseconds(rows[case], peer) for case in cases] for peer in STYLES
        }
        draw(name, columns, cases, "milliseconds")
    peaks = {
        peer: [rows[case][peer].peak_bytes / 1e6 for case in SHOWN] for peer in ("jaxpool", "lax")
    }
    draw("peak_memory", peaks, SHOWN, "peak MB of results and temporaries")


if __name__ == "__main__":
    main()
