"""What pages say of other files is so: the reference, tables of numbers, pictures, links of the repository."""

import importlib.util
import re
import sys
import tomllib
import types
from pathlib import Path

import pytest

import jaxpool
from bench import plain
from jaxpool.__main__ import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("**/*.md"))]
README = (ROOT / "README.md").read_text()
RESULTS = (ROOT / "docs" / "results.md").read_text()


def script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hooks(monkeypatch):
    """The hooks of mkdocs, which need no mkdocs for what is asked here."""
    files = types.ModuleType("mkdocs.structure.files")
    files.File = None
    for name in ("mkdocs", "mkdocs.structure"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "mkdocs.structure.files", files)
    return script(DOCS / "hooks.py")


def test_the_reference_has_every_public_name_once(hooks):
    names = [n for _, _, modules in hooks.REFERENCE.values() for n in hooks.names_of(modules)]
    compat = (Path(jaxpool.__file__).parent / "compat").glob("[!_]*.py")
    modules = ["testing", *(f"compat.{path.stem}" for path in compat)]
    assert sorted(names) == sorted([*jaxpool.__all__, *modules])


def test_the_readme_has_the_times_of_the_results():
    pytest.importorskip("matplotlib")
    speed = script(DOCS / "pictures" / "speed.py")
    text, machine = speed.section()
    table = speed.table(text, "jaxpool")
    assert "AMD EPYC" in machine
    rows = re.findall(
        r"^\| `((?:max|avg)[^|]*?\))` \|(.*)\|$", README.split("## Speed")[1], re.MULTILINE
    )
    for case, cells in rows:
        row = table[case]
        want = [speed.milliseconds(row, peer) for peer in speed.COLOURS]
        assert [float(cell) for cell in cells.split("|")] == want
    assert [case for case, _ in rows] == list(speed.SHOWN)
    drawn = (DOCS / "pictures" / "speed.svg").read_text()
    assert all(f"<!-- {case.split(' ')[0]} -->" in drawn for case in speed.SHOWN)


def summed_up(condition):
    """Number, geometric mean and rows below 0.95 of a run of the results, by cases and peer."""
    section = RESULTS.split(f"\n## forward and backward, CPU, {condition}\n")[1].split("\n## ")[0]
    summary = {}
    for row in re.findall(r"^\| (max pools|all cases) \|(.*)\|$", section, re.MULTILINE):
        against, number, mean, _, _, below = [cell.strip() for cell in row[1].split("|")]
        summary[row[0], against] = int(number), float(mean), int(below)
    return summary


def test_pages_have_the_means_of_the_results():
    section = RESULTS.split("\n## beside the plain way\n")[1].split("\n## ")[0]
    table = re.search(r"(?ms)^\| function .*?(?=\n\n)", section)[0]
    assert all(f"`{name}`" in table for name in ("max_pool", "softmax_pool", "segment_max"))
    for text in (README, (DOCS / "speed.md").read_text()):
        assert f"{plain.BEGIN}\n{table}\n{plain.END}" in text


def test_pages_sum_up_the_results_as_they_are():
    summary, without = (
        summed_up(condition) for condition in ("after keep_memory()", "without any setting")
    )
    (pools, over_lax, _), (cases, all_over_lax, _) = (
        summary[c, "lax"] for c in ("max pools", "all cases")
    )
    rivals = "best of torch and tensorflow"
    best = {c: summary[c, rivals] for c in ("max pools", "all cases")}
    words = {9: "nine", 14: "fourteen"}
    speed, readme = (" ".join(text.split()) for text in ((DOCS / "speed.md").read_text(), README))
    assert (
        f"Over the {pools} max pools of that run jaxpool is {over_lax:.0f} times as fast as lax"
        in speed
    )
    assert f"over all {cases} cases {all_over_lax:.0f} times" in speed
    assert f"it is {best['all cases'][1]} times as fast over all cases" in speed
    assert f"behind in {words[best['max pools'][2]]} of {words[pools]}" in speed
    assert (
        f"Over the {cases} cases of that run jaxpool is {all_over_lax:.0f} times as fast as lax in the geometric mean "
        f"and {best['all cases'][1]} times as fast as the faster of PyTorch and TensorFlow"
    ) in readme
    lax, best_of_both = (without["all cases", peer][1] for peer in ("lax", rivals))
    assert (
        f"that is {lax:.0f} times lax and {best_of_both:.2f} times the faster of the two" in readme
    )
    assert f"{lax:.0f} times lax, {best_of_both:.2f} times the faster of both" in speed
    for said in (speed, readme):
        assert f"but {best['max pools'][1]} times over the max pools" in said


def test_the_picture_of_the_routing_is_what_its_script_draws():
    routing = script(DOCS / "pictures" / "routing.py")
    for stride, name in ((2, "routing.svg"), (1, "routing_stride_1.svg")):
        assert (DOCS / "pictures" / name).read_text() == routing.picture(stride)


def test_the_gallery_has_every_picture_and_pictures_are_small():
    page = (DOCS / "gallery.md").read_text()
    drawn = {path.stem for path in (DOCS / "pictures/gallery").glob("*.png")}
    assert set(re.findall(r"gallery/(\w+)\.png", page)) == drawn
    listed = re.findall(r'^    "(\w+)": ', (DOCS / "pictures/gallery.py").read_text(), re.MULTILINE)
    assert {*listed, "photograph"} == drawn
    pictures = [*DOCS.glob("**/*.png"), *DOCS.glob("**/*.svg")]
    assert sum(path.stat().st_size for path in pictures) < 2_000_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_links_files_of_the_repository_that_are_there(page, hooks):
    """As they stand, not as they are built: so the pages can be read where the code is."""
    made = {str(DOCS / path) for path, _ in hooks.reference()}
    made |= {str(DOCS / path) for path in [*hooks.PAGES.values(), hooks.EXPLAINED]}
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in link:
            target = (page.parent / link).resolve()
            assert target.exists() or str(target) in made, link


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    pages = [str(path.relative_to(DOCS)) for path in DOCS.glob("**/*.md")]
    assert [page for page in pages if f" {page}\n" not in nav] == []


def test_what_explain_prints_is_on_its_page(capsys):
    page = (DOCS / "explain.md").read_text()
    assert main(["explain", "--array", "1 3 4; 2 5 2", "--stride", "1"]) == 0
    printed = re.search(r"```text\n(.*?)```", page, re.DOTALL)[1]
    assert capsys.readouterr().out.startswith(printed)


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == jaxpool.__version__
    assert f"version: {jaxpool.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    dated = re.search(r"date-released: (\S+)", (ROOT / "CITATION.cff").read_text())[1]
    assert f"## [{jaxpool.__version__}] - {dated}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_oldest_versions_are_those_of_the_package(page):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = " ".join((ROOT / page).read_text().split())
    for requirement in project["dependencies"]:
        name, oldest = requirement.split(">=")
        assert f"`{name}` ({oldest} or newer)" in text
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in text
