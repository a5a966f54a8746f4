"""MkDocs hooks: pages generated from other files.

The pages are the API reference, Markdown files outside docs/, and the output of `explain`.
"""

import inspect
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from mkdocs.structure.files import File

import jaxpool

ROOT = Path(__file__).parents[1]

# Per page: title, first paragraph, and either modules whose functions it documents, or one public module.
REFERENCE = {
    "windowed": (
        "Windowed pools",
        "The largest, smallest, average and sum of each window. [Conventions](../conventions.md) says what "
        "holds for all of them.",
        "max_pool avg_pool",
    ),
    "unpooling": (
        "Positions and unpooling",
        "The chosen element and where it stands; values put back there. See [how to unpool](../howto/unpool.md).",
        "argmax peaks",
    ),
    "soft": (
        "Between average and maximum",
        "Pools with a parameter that leads from the average to the maximum. They are differentiable in "
        "forward and reverse mode.",
        "soft",
    ),
    "random": (
        "Random pools",
        "Windows or elements are drawn from a key.",
        "random",
    ),
    "ranks": (
        "Ranks",
        "Elements of any rank within a window or along an axis.",
        "rank",
    ),
    "morphology": (
        "Morphology and blur",
        "A kernel is added before the maximum, or subtracted before the minimum; averages have binomial weights.",
        "morphology blur",
    ),
    "adaptive": (
        "Adaptive and global pools",
        "The output size is given, or whole axes are pooled.",
        "adaptive",
    ),
    "regions": (
        "Regions and segments",
        "Boxes of images, and rows that share an id.",
        "regions segments",
    ),
    "elementwise": (
        "Elementwise and reductions",
        "The maximum of several arrays, along axes, and running.",
        "elementwise reduce cumulative",
    ),
    "models": (
        "For existing models",
        "See [bring your model](../howto/bring-your-model.md) and [memory on a CPU](../memory.md).",
        "accelerate sharded plan_of memory",
    ),
    "flax": ("jaxpool.compat.flax", "", "compat.flax"),
    "haiku": ("jaxpool.compat.haiku", "", "compat.haiku"),
    "equinox": ("jaxpool.compat.equinox", "", "compat.equinox"),
    "torch": ("jaxpool.compat.torch", "", "compat.torch"),
    "scipy": ("jaxpool.compat.scipy", "", "compat.scipy"),
    "torchvision": ("jaxpool.compat.torchvision", "", "compat.torchvision"),
    "testing": ("jaxpool.testing", "", "testing"),
}

# Markdown files outside docs/, and their paths in the documentation.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples.md",
}
# Files that are no page. Links lead to a copy.
DOWNLOADS = {"bench/NOTES.md": "notes.txt"} | {
    f"bench/results/{path.name}": f"results/{path.name}"
    for path in sorted((ROOT / "bench" / "results").glob("*.json"))
}
EXPLAINED = "explained.html"


def names_of(modules):
    """The public functions of `_api` modules in source order. "testing" or a dotted name is returned as it is."""
    if modules == "testing" or "." in modules:
        return [modules]
    by_module = {}
    for name in jaxpool.__all__:
        function = inspect.unwrap(getattr(jaxpool, name))
        module = function.__module__.rpartition(".")[-1]
        by_module.setdefault(module, []).append((function.__code__.co_firstlineno, name))
    return [name for module in modules.split() for _, name in sorted(by_module.get(module, []))]


def source_of(module):
    if module == "testing":
        return "testing/__init__.py"
    return f"{module.replace('.', '/')}.py" if "." in module else f"_api/{module}.py"


def reference():
    """Yield path and text of each page of the reference."""
    for page, (title, about, modules) in REFERENCE.items():
        blocks = [
            f"::: jaxpool.{name}{'' if name in jaxpool.__all__ else OF_A_MODULE}"
            for name in names_of(modules)
        ]
        yield f"reference/{page}.md", "\n\n".join([f"# {title}", about, *blocks]) + "\n"


# Options for a public module: show its docstring and its exports.
OF_A_MODULE = """
    options:
      show_root_heading: false
      show_root_toc_entry: false
      inherited_members: false
      filters: public"""


def on_config(config):
    for entry in config.nav:
        if "Reference" in entry:
            entry["Reference"] = [path for path, _ in reference()]
    return config


def on_files(files, config):
    pages = dict(reference())
    for source, path in {**PAGES, **DOWNLOADS}.items():
        pages[path] = (ROOT / source).read_text()
    pages[EXPLAINED] = explained()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def explained():
    """The HTML page that `python -m jaxpool explain --html` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / EXPLAINED
        command = [sys.executable, "-m", "jaxpool", "explain", "--html", str(path)]
        subprocess.run(command, capture_output=True, check=True)
        return path.read_text()


def on_page_markdown(markdown, page, config, files):
    """Redirect links to generated pages and downloads, and prepare doctests for syntax highlighting.

    In the repository, a link to the reference leads to the module with the docstrings.
    """
    home = "../" * page.file.src_uri.count("/")
    for path, (_, _, modules) in REFERENCE.items():
        for module in modules.split():
            source = re.escape(f"jaxpool/{source_of(module)}")
            markdown = re.sub(rf"\]\((\.\./)*{source}\)", f"]({home}reference/{path}.md)", markdown)
    for source, path in PAGES.items():
        markdown = re.sub(rf"\]\((\.\./)*{re.escape(source)}(#|\))", rf"]({home}{path}\2", markdown)
    for source, path in DOWNLOADS.items():
        name = re.escape(source)
        markdown = re.sub(rf"\]\((\.\./)*{name}(#[^)]*)?\)", rf"]({home}{path})", markdown)
    if page.file.src_uri in PAGES.values():
        markdown = re.sub(r"\]\(docs/", "](", markdown)
        markdown = re.sub(
            r"\]\(LICENSE\)", "](https://www.apache.org/licenses/LICENSE-2.0)", markdown
        )
    markdown = re.sub(r" +# doctest: .*", "", markdown.replace("\n<BLANKLINE>\n", "\n\n"))
    return markdown.replace("```python\n>>>", "```pycon\n>>>")
