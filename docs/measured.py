"""Write measured numbers into the documentation. All numbers come from docs/results.md.

The script replaces the text between the marks `<!-- measured: NAME -->` and `<!-- end of measured -->`.

python docs/measured.py
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
MARKED = re.compile(r"<!-- measured: (.+?) -->\n.*?<!-- end of measured -->", re.DOTALL)

DEFAULT = "forward and backward, CPU, without any setting"
KEPT = "forward and backward, CPU, after keep_memory()"
BEST_OF_BOTH = "best of torch and tensorflow"
STEM = "bench.train_steps:first_step('ResNetStem', float32[16,224,224,3])"
IN_README = (
    "max_pool(float32[16,128,128,32], (2, 2), (2, 2))",
    "max_pool(float32[16,112,112,64], (3, 3), (2, 2), ((1, 1), (1, 1)))",
    "max_pool(float32[8,40,40,128], (13, 13), padding='SAME')",
    "avg_pool(float32[32,56,56,64], (3, 3), padding=((1, 1), (1, 1)))",
    "maximum(float32[16,128,128,32], float32[16,128,128,32])",
)


def section(title):
    """The section of one run in docs/results.md."""
    return RESULTS.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0].strip()


def table(text, column):
    """Cells by case and column of the first table whose second column starts with `column`."""
    header = re.search(rf"^\| case \| {column}.*$", text, re.MULTILINE)
    rows = text[header.start() :].split("\n\n")[0].splitlines()
    names, _, *lines = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {line[0]: dict(zip(names[1:], line[1:], strict=True)) for line in lines}


def label(case):
    """A short label of a case, such as "max_pool 2x2, stride 2, of 16x128x128x32"."""
    function, dtype, shape, arguments = re.match(r"(\w+)\((\w+)\[([\d,]+)\](.*)\)$", case).groups()
    windows = re.findall(r"\(([\d, ]+)\)", re.sub(r"(, padding=|, \(\(|, axes=).*", "", arguments))
    sizes = ["x".join(re.findall(r"\d+", each)) for each in windows]
    words = [function]
    if sizes:
        words[0] += f" {sizes[0]}"
        words.append(f"stride {sizes[1].split('x')[0] if len(sizes) > 1 else 1}")
    words += ["channels first"] * ("axes=" in case) + [dtype] * (dtype != "float32")
    return f"{', '.join(words)}{',' * (len(words) > 1)} of {shape.replace(',', 'x')}"


def milliseconds(row, peer):
    """The time of a framework. Without an entry, as for elementwise functions, the time of `torch`."""
    return float(row["torch"] if row[peer] == "-" else row[peer])


def mean(title, cases, peer):
    """Speedup over a peer: number of cases, geometric mean, and number of cases below 0.95."""
    row = re.search(rf"^\| {cases} \| {peer} \|(.*)\|$", section(title), re.MULTILINE)[1]
    number, ratio, _, _, below = [cell.strip() for cell in row.split("|")]
    return int(number), float(ratio), int(below)


def times_as_fast(ratio):
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def rows(*cells):
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def speed_of_readme():
    default, kept = (table(section(title), "jaxpool") for title in (DEFAULT, KEPT))
    titles = ("forward and backward", "jaxpool", "`jax.lax`", "speedup", "with `keep_memory()`")
    cells = (
        (
            label(case),
            f"{default[case]['jaxpool']} ms",
            f"{default[case]['lax']} ms",
            f"{times_as_fast(float(default[case]['lax / ours']))} ×",
            f"{times_as_fast(float(kept[case]['lax / ours']))} ×",
        )
        for case in IN_README
    )
    return f"{rows(titles, ('---', *['---:'] * 4), *cells)}\n{machine()}{means()}"


def means():
    """Geometric means under both memory conditions, so that pages always state both."""
    (cases, lax, _), (_, lax_kept, _) = (mean(t, "all cases", "lax") for t in (DEFAULT, KEPT))
    (_, best, _), (_, best_kept, _) = (mean(t, "all cases", BEST_OF_BOTH) for t in (DEFAULT, KEPT))
    default, kept = "with default settings", "with `keep_memory()`"
    return (
        f"Geometric means over all {cases} cases: {lax:.0f} times as fast as `jax.lax` {default}, "
        f"{lax_kept:.0f} times {kept}.\n"
        f"They are {best:.2f} times as fast as the faster of PyTorch and TensorFlow {default}, "
        f"{best_kept:.2f} times {kept}.\n"
    )


def max_pools():
    (pools, lax, _), (_, lax_kept, _) = (mean(t, "max pools", "lax") for t in (DEFAULT, KEPT))
    (_, best, slower), (_, best_kept, slower_kept) = (
        mean(t, "max pools", BEST_OF_BOTH) for t in (DEFAULT, KEPT)
    )
    return (
        f"The {pools} max pools are {lax:.0f} × and {lax_kept:.0f} × as fast as `jax.lax`.\n"
        f"They are {best:.2f} × and {best_kept:.2f} × as fast as the faster of PyTorch and TensorFlow.\n"
        f"They are slower in {slower} of the {pools} by default, and in {slower_kept} with `keep_memory()`.\n"
    )


def machine():
    day, processor = re.match(r"(\S+)\. (.+?), last-level", section(DEFAULT)).groups()
    processor, cores, _ = processor.rsplit(", ", 2)
    return f"Measured on {day} on {cores} of a shared {processor}, float32, one jit for forward and backward.\n"


def stem():
    titles = (
        "train step of a ResNet stem, 16x224x224x3",
        "`jax.lax`",
        "jaxpool",
        "lax with `accelerate`",
    )
    cells = []
    for name, title in (("default", DEFAULT), ("`keep_memory()`", KEPT)):
        step = table(section(title).split("\n### Train steps\n")[1], "jaxpool")[STEM]
        cells.append((name, *(f"{step[each]} ms" for each in ("lax", "jaxpool", "accelerate"))))
    return rows(titles, ("---", *["---:"] * 3), *cells)


def bfloat16():
    case = "max_pool({}[16,128,128,32], (2, 2), (2, 2))"
    cells = table(section(KEPT), "jaxpool")
    half, full = (cells[case.format(dtype)]["jaxpool"] for dtype in ("bfloat16", "float32"))
    ratio = float(half) / float(full)
    return (
        f"On a CPU, a 2x2 max pool of bfloat16 takes {ratio:.2f} times as long as the same pool of float32.\n"
        f"The times are {half} and {full} ms, with [`keep_memory()`](../memory.md).\n"
    )


TEXTS = {
    "speed of README": speed_of_readme,
    "means": means,
    "max pools": max_pools,
    "machine": machine,
    "train step": stem,
    "bfloat16": bfloat16,
}


def filled(text):
    """Return a page with updated measured texts."""
    return MARKED.sub(
        lambda found: (
            f"<!-- measured: {found[1]} -->\n\n{TEXTS[found[1]]()}<!-- end of measured -->"
        ),
        text,
    )


if __name__ == "__main__":
    for page in PAGES:
        text = page.read_text()
        if text != filled(text):
            page.write_text(filled(text))
