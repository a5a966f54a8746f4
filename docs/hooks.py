"""MkDocs hooks: pages generated from other files.

The pages are the API reference, Markdown files outside docs/, and the output of `explain`. A link to a source file of
the library, which also works in a viewer of Markdown files, becomes a link to the reference.
"""

import ast
import inspect
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jaxpool
from jaxpool._arguments.calls import ARGUMENT_SYNONYMS

ROOT = Path(__file__).parents[1]

# Per page: title, first paragraph, and either modules whose functions it documents, or one public module.
REFERENCE = {
    "windowed": (
        "Max, min, average and sum pools",
        "Pools of sliding windows. [Conventions](../conventions.md) has the rules for all of them.",
        "max_pool avg_pool",
    ),
    "unpooling": (
        "Argmax, unpooling and peaks",
        "Selected elements, their positions, and values put back there. See [how to unpool](../howto/unpool.md).",
        "argmax peaks",
    ),
    "soft": (
        "Power means, logsumexp and softmax pools",
        "Pools with a parameter that leads from the average to the maximum. They are differentiable in "
        "forward and reverse mode.",
        "soft",
    ),
    "random": (
        "Random and fractional pools",
        "Windows or elements are drawn from a PRNG key.",
        "random",
    ),
    "ranks": (
        "Medians and other ranks",
        "Elements of any rank within a window or along an axis.",
        "rank",
    ),
    "morphology": (
        "Dilation, erosion and blur",
        "A kernel is added before the maximum, or subtracted before the minimum; averages have binomial weights.",
        "morphology blur",
    ),
    "adaptive": (
        "Adaptive and global pools",
        "The output size is given, or whole axes are pooled.",
        "adaptive",
    ),
    "regions": (
        "Boxes of images (RoI) and segments",
        "Boxes of images, and rows that share an id.",
        "regions segments",
    ),
    "elementwise": (
        "Elementwise and cumulative maxima",
        "The maximum of several arrays, along axes, and running.",
        "elementwise reduce cumulative",
    ),
    "models": (
        "Existing code, sharding and plans",
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
# Shown in a page at the comment EXPLAINED_HERE.
EXPLAINED_HERE = "<!-- the page of explain -->"
EXPLAINED_FRAME = f"""
<iframe src="../{EXPLAINED}" title="The page of explain" class="explained"></iframe>

[The same page in a window of its own]({EXPLAINED}).
"""

# The first paragraph of docs/functions.md.
FUNCTIONS = """\
Each name leads to the formula, the gradient, the arguments and an example of a function, which `help(jaxpool.max_pool)`
prints too."""


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


def reference():
    """Yield path and text of each page of the reference."""
    yield "reference/arguments.md", arguments()
    for page, (title, about, modules) in REFERENCE.items():
        blocks = [
            f"::: jaxpool.{name}{'' if name in jaxpool.__all__ else OF_A_MODULE}"
            for name in names_of(modules)
        ]
        yield f"reference/{page}.md", "\n\n".join([f"# {title}", about, *blocks]) + "\n"


def functions():
    """Return the text of docs/functions.md."""
    lines = ["# All functions", "", FUNCTIONS]
    for title, _, modules in REFERENCE.values():
        names = names_of(modules)
        if names[0] in jaxpool.__all__:
            lines += ["", f"## {title}", "", "| function | result |", "| --- | --- |"]
            for name in names:
                function = getattr(jaxpool, name)
                path = Path(inspect.getsourcefile(inspect.unwrap(function)))
                lines.append(table_row(name, path, inspect.getdoc(function)))
    lines += ["", "## Modules", "", "| module | content |", "| --- | --- |"]
    for _, _, modules in REFERENCE.values():
        if modules == "testing" or "." in modules:
            path = Path(jaxpool.__file__).parent / modules.replace(".", "/")
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            # Read, not imported, because modules of `compat` need the libraries.
            docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
            lines.append(table_row(f"jaxpool.{modules}", path, docstring))
    return "\n".join(lines) + "\n"


def table_row(name, path, docstring):
    path = path.relative_to(Path(jaxpool.__file__).parents[1])
    summary = docstring.partition("\n")[0].removeprefix("Computes ")
    return f"| [`{name}`](../{path}) | {summary[0].upper()}{summary[1:]} |"


def description(argument, name):
    """The description of an argument in the docstring of a public function."""
    docstring = inspect.getdoc(getattr(jaxpool, name))
    text = re.search(rf"(?ms)^ +\*?{argument}: (.*?)(?=^ +\w+: |^ *$)", docstring)[1]
    return " ".join(f"{text[0].upper()}{text[1:]}".split())


def arguments():
    """Return the text of the page about arguments: other names, the longest description, and functions."""
    takers = {}
    for name in jaxpool.__all__:
        for argument in inspect.signature(getattr(jaxpool, name)).parameters:
            takers.setdefault(argument, []).append(name)
    parts = ["# Arguments and their names in other libraries"]
    for argument in sorted(takers):
        others = {
            other: None
            for ours, theirs in ARGUMENT_SYNONYMS
            if argument == ours[0]
            for other in (*ours[1:], *theirs)
        }
        others = ", ".join(f"`{other}`" for other in others)
        text = max((description(argument, name) for name in takers[argument]), key=len)
        links = ", ".join(f"[`{name}`][jaxpool.{name}]" for name in takers[argument])
        parts.append(f"## `{argument}`" + (f" (elsewhere {others})" if others else ""))
        parts += [text, f"Functions: {links}"]
    return "\n\n".join(parts) + "\n"


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
            entry["Reference"] += [path for path, _ in reference()]
    return config


def on_files(files, config):
    from mkdocs.structure.files import File  # tests import this file without mkdocs

    pages = dict(reference())
    for source, path in {**PAGES, **DOWNLOADS}.items():
        pages[path] = (ROOT / source).read_text(encoding="utf-8")
    pages[EXPLAINED] = explained()
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


# A link from a page to a source file of the library.
SOURCE_LINK = r"\[([^]]+)\]\((?:\.\./)*jaxpool/(?:_\w+/)?([\w/]+)\.py\)"


def link_to_reference(link, home):
    """The Markdown of a link to the reference in place of one to a source file of `_api`, `compat` or `testing`."""
    text, path = link[1], link[2].removesuffix("/__init__").replace("/", ".")
    (page,) = (page for page, (_, _, modules) in REFERENCE.items() if path in modules.split())
    name = text.strip("`")
    anchor = f"#jaxpool.{name}" if name in jaxpool.__all__ else ""
    return f"[{text}]({home}reference/{page}.md{anchor})"


def explained():
    """The HTML page that `python -m jaxpool explain --html` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / EXPLAINED
        command = [sys.executable, "-m", "jaxpool", "explain", "--html", str(path)]
        subprocess.run(command, capture_output=True, check=True)
        return path.read_text(encoding="utf-8")


def on_page_markdown(markdown, page, config, files):
    """Redirect links to generated pages and downloads, and prepare doctests for syntax highlighting.

    In the repository, a link to the reference leads to the module with the docstrings.
    """
    home = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace(EXPLAINED_HERE, EXPLAINED_FRAME)
    markdown = re.sub(SOURCE_LINK, lambda link: link_to_reference(link, home), markdown)
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


def on_post_build(config):
    """Make the search show common functions first, then other functions, arguments and drop-ins, then other pages."""
    path = Path(config.site_dir) / "search" / "search_index.json"
    index = json.loads(path.read_text(encoding="utf-8"))
    for entry in index["docs"]:
        page, _, anchor = entry["location"].partition("#")
        boosts = {"reference/windowed/": 60, "reference/arguments/": 15, "reference/testing/": 2}
        if page.startswith("reference/"):
            other = 20 if anchor.removeprefix("jaxpool.") in jaxpool.__all__ else 10
            entry["boost"] = boosts.get(page, other) if anchor else 2
    path.write_text(json.dumps(index), encoding="utf-8")
