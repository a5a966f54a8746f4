"""Write measured numbers into the documentation. All numbers come from the files in bench/results/.

The script replaces the text between the marks `<!-- measured: NAME -->` and `<!-- end of measured -->`.

python docs/measured.py
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
MARKED = re.compile(r"<!-- measured: (.+?) -->\n.*?<!-- end of measured -->", re.DOTALL)

sys.path.insert(0, str(ROOT))

from bench import report, results  # noqa: E402

DEFAULT, KEPT, GPU = "cpu-default", "cpu-kept", "gpu-h200"
STEM = "bench.train_steps:first_step('ResNetStem', float32[16,224,224,3])"
IN_README = (
    "max_pool(float32[16,128,128,32], (2, 2), (2, 2))",
    "max_pool(float32[16,112,112,64], (3, 3), (2, 2), ((1, 1), (1, 1)))",
    "max_pool(float32[8,40,40,128], (13, 13), padding='SAME')",
    "avg_pool(float32[32,56,56,64], (3, 3), padding=((1, 1), (1, 1)))",
    "maximum(float32[16,128,128,32], float32[16,128,128,32])",
)
ON_GPU = (
    "max_pool(float32[64,112,112,64], (2, 2), (2, 2))",
    "max_pool(float32[64,112,112,64], (3, 3), (2, 2), ((1, 1), (1, 1)))",
    "max_pool(float32[64,64,112,112], (3, 3), (2, 2), ((1, 1), (1, 1)), axes=(2, 3))",
    "max_pool(bfloat16[64,56,56,128], (3, 3), padding='SAME')",
    "max_pool(float32[8,32,64,64,16], (3, 3, 3), padding='SAME')",
    "max_pool(float32[64,40,40,128], (13, 13), padding='SAME')",
    "avg_pool(float32[64,112,112,64], (2, 2), (2, 2))",
    "avg_pool(float32[64,56,56,128], (3, 3), padding='SAME')",
    "avg_pool(float32[64,40,40,128], (13, 13), padding='SAME')",
    "cummax(float32[16,4096,512], 1)",
)


def run(name):
    """One run on the benchmark's cases."""
    return results.Run.from_json(results.read(RESULTS / f"{name}.json"))


def rows_of(name):
    """The rows of a run by case: those of each framework."""
    return {result.name: result.peers for result in run(name).rows}


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


def milliseconds(rows, peer):
    """The time of a framework. Without a time, as for elementwise functions, the time of `torch`."""
    return (rows[peer].timing or rows["torch"].timing).median * 1e3


def in_words(rows, peer):
    ms = milliseconds(rows, peer)
    return f"{ms:.{0 if ms >= 100 else 1 if ms >= 10 else 2}f}"


def speedup(rows):
    """How many times as fast as lax."""
    return times_as_fast(milliseconds(rows, "lax") / milliseconds(rows, "jaxpool"))


def mean(name, cases, peer):
    """Speedup over a peer: number of cases, geometric mean, and number of cases below 0.95."""
    ratios = report.speedups(report.groups(run(name))[cases], peer)
    return len(ratios), report.mean(ratios), len(report.slower(ratios))


def times_as_fast(ratio):
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def table(*cells):
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def speed_of_readme():
    default, kept = map(rows_of, (DEFAULT, KEPT))
    titles = ("forward and backward", "jaxpool", "`jax.lax`", "speedup", "with `keep_memory()`")
    cells = (
        (
            label(case),
            f"{in_words(default[case], 'jaxpool')} ms",
            f"{in_words(default[case], 'lax')} ms",
            f"{speedup(default[case])} ×",
            f"{speedup(kept[case])} ×",
        )
        for case in IN_README
    )
    return f"{table(titles, ('---', *['---:'] * 4), *cells)}\n{machine()}{means()}"


def means():
    """Geometric means under both memory conditions, so that pages always state both."""
    (cases, lax, _), (_, lax_kept, _) = (mean(t, "all cases", "lax") for t in (DEFAULT, KEPT))
    (_, best, _), (_, best_kept, _) = (
        mean(t, "all cases", report.BEST_OF) for t in (DEFAULT, KEPT)
    )
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
        mean(t, "max pools", report.BEST_OF) for t in (DEFAULT, KEPT)
    )
    return (
        f"The {pools} max pools are {lax:.0f} × and {lax_kept:.0f} × as fast as `jax.lax`.\n"
        f"They are {best:.2f} × and {best_kept:.2f} × as fast as the faster of PyTorch and TensorFlow.\n"
        f"They are slower in {slower} of the {pools} by default, and in {slower_kept} with `keep_memory()`.\n"
    )


def machine():
    conditions = run(DEFAULT).conditions
    cores = conditions["machine"]["cores"]
    processor = conditions["machine"]["cpu"].replace("(R)", "").removesuffix(" Processor")
    return (
        f"Measured on {conditions['date']} on {cores} cores of a shared {processor}, float32, "
        "one jit for forward and backward.\n"
    )


def stem():
    titles = (
        "train step of a ResNet stem, 16x224x224x3",
        "`jax.lax`",
        "jaxpool",
        "lax with `accelerate`",
    )
    cells = []
    for words, name in (("default", DEFAULT), ("`keep_memory()`", KEPT)):
        step = rows_of(name)[STEM]
        peers = ("lax", "jaxpool", "accelerate")
        cells.append((words, *(f"{in_words(step, peer)} ms" for peer in peers)))
    return table(titles, ("---", *["---:"] * 3), *cells)


def bfloat16():
    case = "max_pool({}[16,128,128,32], (2, 2), (2, 2))"
    kept = rows_of(KEPT)
    half, full = (in_words(kept[case.format(d)], "jaxpool") for d in ("bfloat16", "float32"))
    return (
        f"On a CPU, a 2x2 max pool of bfloat16 takes {float(half) / float(full):.2f} times as long as the same pool of "
        f"float32.\n"
        f"The times are {half} and {full} ms, with [`keep_memory()`](../memory.md).\n"
    )


def plain():
    """Mean speedups over the lines of jax.numpy, over all sizes."""
    cells = []
    for row in results.read(RESULTS / "plain.json")["rows"]:
        means = [row[f"{mode}, all"] for mode in ("forward_and_vjp", "forward")]
        words = [f"{mean:.2f}" if mean < 10 else f"{mean:.0f}" for mean in means]
        cells.append((f"`{row['function']}`", *words))
    return table(("function", "with gradient", "forward"), ("---", "---:", "---:"), *cells)


def gpu():
    """Times on a GPU. PyTorch has the faster of its two memory formats."""
    conditions, rows = run(GPU).conditions, rows_of(GPU)
    formats = ("torch", "torch-channels-last")
    cells = []
    for case in ON_GPU:
        peers = ("jaxpool", "lax", min(formats, key=lambda peer: milliseconds(rows[case], peer)))
        cells.append((label(case), *(f"{in_words(rows[case], peer)} ms" for peer in peers)))
    (cases, lax, slower), (more, best, _) = (
        mean(GPU, "all cases", peer) for peer in ("lax", report.BEST_OF)
    )
    versions = conditions["versions"]
    return (
        f"{table(('forward and backward', 'jaxpool', '`jax.lax`', 'PyTorch'), ('---', *['---:'] * 3), *cells)}\n"
        f"Measured on {conditions['date']} on an {conditions['machine']['accelerator']} with jax {versions['jax']} and "
        f"PyTorch {versions['torch']} in its faster memory format.\n"
        f"In the geometric mean over {cases} cases, jaxpool is {times_as_fast(lax)} times as fast as `jax.lax`. "
        f"{slower} cases are slower.\n"
        f"It is {times_as_fast(best)} times as fast as PyTorch over {more} cases. "
        f"[This file](../../bench/results/{GPU}.json) has all of them.\n"
    )


TEXTS = {
    "gpu": gpu,
    "speed of README": speed_of_readme,
    "means": means,
    "max pools": max_pools,
    "machine": machine,
    "train step": stem,
    "bfloat16": bfloat16,
    "beside the plain way": plain,
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
