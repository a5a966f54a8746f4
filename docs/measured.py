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
FORMATS = ("torch", "torch-channels-last")
CHANNELS_FIRST = "max_pool(float32[16,64,112,112], (3, 3), (2, 2), axes=(2, 3))"
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


def speedup(rows, ours="jaxpool"):
    """How many times as fast as lax."""
    return times_as_fast(milliseconds(rows, "lax") / milliseconds(rows, ours))


def mean(name, cases, peer):
    """Speedup over a peer: number of cases, geometric mean, and number of cases below 0.95."""
    ratios = report.speedups(report.groups(run(name))[cases], peer)
    return len(ratios), report.mean(ratios), len(report.slower(ratios))


def times_as_fast(ratio):
    return f"{ratio:.2f}" if ratio < 2 else f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def table(*cells):
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def headline():
    """The first lines of README and of the start page."""
    step = rows_of(DEFAULT)[STEM]
    lax, ours = (in_words(step, peer) for peer in ("lax", "accelerate"))
    (cases, cpu, _), (gpu_cases, gpu, slower) = (
        mean(t, "all cases", "lax") for t in (DEFAULT, GPU)
    )
    return (
        "**Pools for JAX that run "
        f"{times_as_fast(cpu)} times as fast as those of `jax.lax` on a CPU, and {gpu:.1f} times on an NVIDIA H200.**\n"
        f"Geometric means, forward and backward: {cases} CPU cases; {gpu_cases} GPU cases, where lax wins {slower}. "
        "The backward pass of lax searches each window again; jaxpool saves which element was the "
        "maximum. "
        "`jax.jit(jaxpool.accelerate(step))` takes a training step of a ResNet stem on two CPU cores from "
        f"{lax} to {ours} ms.\n"
    )


def speed_of_readme():
    """The training step first, then pools. Both memory conditions have their own time of lax."""
    titles = ("milliseconds", "jaxpool", "`jax.lax`", "speedup")
    titles += ("`keep_memory()`: jaxpool", "`jax.lax`", "speedup")
    rows = [("training step of a ResNet stem, with `accelerate`", STEM, "accelerate")]
    rows += [(label(case), case, "jaxpool") for case in IN_README]
    cells = []
    for words, case, ours in rows:
        cell = [words]
        for name in (DEFAULT, KEPT):
            peers = rows_of(name)[case]
            cell += [in_words(peers, ours), in_words(peers, "lax"), f"{speedup(peers, ours)} ×"]
        cells.append(tuple(cell))
    kept = (
        "In the last three columns, [`keep_memory()`](docs/memory.md) lets the process reuse freed memory, "
        "whichever library runs.\n"
    )
    return f"{machine().rstrip()} {kept}\n{table(titles, ('---', *['---:'] * 6), *cells)}\n{means('all cases')}"


def means(group):
    """Speedups of jaxpool in the geometric mean of a group of cases, under both memory conditions."""
    (cases, *_), (max_pools, *_) = (mean(DEFAULT, g, "lax") for g in (group, "max pools"))
    averages = sum(name.startswith("avg_pool(") for name in rows_of(DEFAULT))
    members = {
        "all cases": f"{cases} cases ({max_pools} max pools, {averages} average pools, `maximum`)",
        "max pools": f"the {max_pools} max pools",
    }
    titles = (f"geometric mean of {members[group]}", "default", "`keep_memory()`")
    cells = []
    for peer, words in (
        ("lax", "jaxpool compared with `jax.lax`"),
        (report.BEST_OF, "jaxpool compared with the faster of PyTorch and TensorFlow"),
    ):
        ratios = (mean(name, group, peer)[1] for name in (DEFAULT, KEPT))
        cells.append((words, *(f"{times_as_fast(ratio)} times as fast" for ratio in ratios)))
    return table(titles, ("---", *["---:"] * 2), *cells)


def max_pools():
    (pools, _, slower), (_, _, slower_kept) = (
        mean(t, "max pools", report.BEST_OF) for t in (DEFAULT, KEPT)
    )
    return (
        f"{means('max pools')}\nPyTorch or TensorFlow is faster in {slower} of the {pools} max pools by default, "
        f"in {slower_kept} with `keep_memory()`.\n"
    )


def layouts():
    """A strided max pool of the same images in two layouts, beside PyTorch on the same memory."""
    titles = (
        "max_pool 3x3, stride 2, of 16 images of 112x112x64, ms",
        "jaxpool",
        "PyTorch",
        "TensorFlow",
    )
    cells = []
    for words, case, torch in (
        ("channels first in memory", CHANNELS_FIRST, "torch"),
        ("channels last in memory", IN_README[1], "torch-channels-last"),
    ):
        for condition, name in (("default", DEFAULT), ("`keep_memory()`", KEPT)):
            peers = rows_of(name)[case]
            times = (in_words(peers, peer) for peer in ("jaxpool", torch, "tensorflow"))
            cells.append((f"{words}, {condition}", *times))
    return table(titles, ("---", *["---:"] * 3), *cells)


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
        "train step of a ResNet stem, 16x224x224x3, ms",
        "`jax.lax`",
        "jaxpool",
        "lax with `accelerate`",
    )
    cells = []
    for words, name in (("default", DEFAULT), ("`keep_memory()`", KEPT)):
        step = rows_of(name)[STEM]
        peers = ("lax", "jaxpool", "accelerate")
        cells.append((words, *(in_words(step, peer) for peer in peers)))
    return table(titles, ("---", *["---:"] * 3), *cells)


def small_arrays():
    """Speedups over the lines of jax.numpy for arrays of about 50 KB, with gradient."""
    rows = results.read(RESULTS / "plain.json")["rows"]
    small = {row["function"]: row["forward_and_vjp, small"] for row in rows}
    return (
        f"Arrays of about 50 KB gain less: {report.mean(small):.1f} times the speed of the equivalent lines of "
        f"`jax.numpy`, the mean of {len(small)} functions with gradient. "
        f"{len(report.slower(small))} of these functions are slower.\n"
    )


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
    """Times on a GPU. PyTorch's two times are of its two memory formats."""
    conditions, rows = run(GPU).conditions, rows_of(GPU)
    titles = (
        "forward and backward, ms",
        "jaxpool",
        "`jax.lax`",
        "PyTorch, channels first in memory",
        "PyTorch, channels last in memory",
    )
    cells = []
    for case in ON_GPU:
        measured = [peer for peer in ("jaxpool", "lax", *FORMATS) if peer in rows[case]]
        times = [in_words(rows[case], peer) for peer in measured]
        cells.append((label(case), *times, *["any"] * (4 - len(times))))
    (cases, lax, slower), (more, best, _) = (
        mean(GPU, "all cases", peer) for peer in ("lax", report.BEST_OF)
    )
    versions = conditions["versions"]
    return (
        f"{table(titles, ('---', *['---:'] * 4), *cells)}\n"
        f"Measured on {conditions['date']} on an {conditions['machine']['accelerator']} with jax {versions['jax']} and "
        f"PyTorch {versions['torch']}.\n"
        f"In the geometric mean over {cases} cases, jaxpool is {times_as_fast(lax)} times as fast as `jax.lax`. "
        f"{slower} cases are slower.\n"
        f"It is {times_as_fast(best)} times as fast as PyTorch over {more} cases, each in the memory format that is "
        "faster there. "
        f"[This file](../../bench/results/{GPU}.json) has all of them.\n"
    )


TEXTS = {
    "gpu": gpu,
    "headline": headline,
    "layouts": layouts,
    "speed of README": speed_of_readme,
    "means": lambda: means("all cases"),
    "max pools": max_pools,
    "machine": machine,
    "small arrays": small_arrays,
    "train step": stem,
    "bfloat16": bfloat16,
    "every function": plain,
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
        text = page.read_text(encoding="utf-8")
        if text != filled(text):
            page.write_text(filled(text), encoding="utf-8")
