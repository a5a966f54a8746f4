"""Statements in pages about other files hold: the reference, tables of numbers, pictures and links."""

import importlib.util
import inspect
import json
import re
import shlex
import tomllib
import types
from pathlib import Path

import pytest

import jaxpool
from jaxpool.__main__ import main
from jaxpool.testing import pools

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md"]
PAGES += sorted(DOCS.glob("**/*.md"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


def load_script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hooks():
    return load_script(DOCS / "hooks.py")


def test_reference_lists_every_public_name_once(hooks):
    names = [n for _, _, modules in hooks.REFERENCE.values() for n in hooks.names_of(modules)]
    compat = (Path(jaxpool.__file__).parent / "compat").glob("[!_]*.py")
    modules = ["testing", *(f"compat.{path.stem}" for path in compat)]
    assert sorted(names) == sorted([*jaxpool.__all__, *modules])


def test_page_numbers_match_results():
    measured = load_script(DOCS / "measured.py")
    used = set()
    for page in measured.PAGES:
        text = page.read_text(encoding="utf-8")
        used |= {match[1] for match in measured.MARKED.finditer(text)}
        assert measured.filled(text) == text, page
        assert text.count("<!-- measured: ") == text.count("<!-- end of measured -->"), page
    assert used == set(measured.TEXTS)
    assert re.search(r" of a shared \w+ \w+, float32", measured.machine())


def test_changed_result_changes_pages(monkeypatch, tmp_path):
    measured = load_script(DOCS / "measured.py")
    (tmp_path / f"{measured.GPU}.json").write_bytes(
        (measured.RESULTS / f"{measured.GPU}.json").read_bytes()
    )
    for name in (measured.DEFAULT, measured.KEPT):
        result = json.loads((measured.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        (row,) = (each for each in result["rows"] if each["name"] == measured.IN_README[0])
        row["peers"]["jaxpool"]["timing"]["median"] = 0.0777
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    monkeypatch.setattr(measured, "RESULTS", tmp_path)
    assert "| 77.7 |" not in README
    assert "| 77.7 |" in measured.filled(README)


def test_charts_match_results():
    pytest.importorskip("matplotlib")
    speed = load_script(DOCS / "pictures" / "speed.py")
    measured = speed.measured
    rows = measured.rows_of(measured.DEFAULT)
    pools = [case for case in rows if case != measured.STEM]
    for name, cases in (("speed", speed.SHOWN), ("speed_all", pools)):
        drawn = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
        for case in cases:
            ours, lax = (
                speed.number(measured.milliseconds(rows[case], peer)) for peer in ("jaxpool", "lax")
            )
            assert f">{measured.label(case)}<" in drawn
            assert f">{ours} : {lax}<" in drawn


LONG = {"architecture.md": 15 * 1024, "conventions.md": 14 * 1024}


def test_readme_and_pages_are_short():
    assert len(README.splitlines()) <= 90
    assert len(README.encode()) <= 6 * 1024
    for page in DOCS.glob("**/*.md"):
        assert page.stat().st_size <= LONG.get(page.name, 9 * 1024), page


def test_readme_shows_output_of_its_script():
    """`.ci/run` runs the command. Its lines name the code that calls a pool, and only the numbers may change."""
    command, shown = re.search(
        r"```bash\n(.*jaxpool run.*)\n```\n```text\n(.*?)```", README, re.DOTALL
    ).groups()
    script = ROOT / command.split()[-1]
    lines = script.read_text(encoding="utf-8").splitlines()
    calls = re.findall(rf"{script.name}:(\d+) \((.+?)\): (\w+) of", shown)
    assert [(where, kind) for _, where, kind in calls] == [
        ("Net.__call__", "max"),
        ("Net.__call__", "sum"),
    ]
    for (number, _, _), pool in zip(calls, ("nnx.max_pool(", "nnx.avg_pool("), strict=True):
        assert pool in lines[int(number) - 1]


def test_readme_has_two_sh_blocks():
    """The first two ```sh blocks run the main job and the tests."""
    demo, tests = re.findall(r"^```sh\n(.*?)\n```$", README, re.MULTILINE | re.DOTALL)
    assert demo.endswith("python -m jaxpool demo")
    assert tests.endswith("python -m pytest -n auto")


def test_routing_picture_matches_script():
    routing = load_script(DOCS / "pictures" / "routing.py")
    for stride, name in ((2, "routing.svg"), (1, "routing_stride_1.svg")):
        assert (DOCS / "pictures" / name).read_text(encoding="utf-8") == routing.picture(stride)


def test_gallery_pictures_are_complete_and_small():
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    drawn = {path.stem for path in (DOCS / "pictures/gallery").glob("*.png")}
    assert set(re.findall(r"gallery/(\w+)\.png", page)) == drawn
    listed = re.findall(
        r'^    "(\w+)": ', (DOCS / "pictures/gallery.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {*listed, "photograph"} == drawn
    pictures = [*DOCS.glob("**/*.png"), *DOCS.glob("**/*.svg")]
    assert sum(path.stat().st_size for path in pictures) < 2_000_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_links_exist(page):
    """Links lead to files of the repository, so that pages can be read next to the code, before the site is built."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)|<(?:a|img)\s[^>]*(?:href|src)=\"([^\"#]+)", text):
        link = "".join(link)
        target = (page.parent / link).resolve()
        if target.is_relative_to(ROOT / "jaxpool"):  # the tested package may be installed elsewhere
            target = Path(jaxpool.__file__).parent / target.relative_to(ROOT / "jaxpool")
        assert "://" in link or target.exists(), link


def test_links_to_modules_lead_to_the_reference(hooks):
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="howto/boxes.md"))
    text = (DOCS / "howto" / "boxes.md").read_text(encoding="utf-8")
    assert "[The reference](../../jaxpool/_api/regions.py)" in text
    made = hooks.on_page_markdown(text, page, None, None)
    assert "[The reference](../reference/regions.md)" in made


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_is_plain_markdown(page):
    """Viewers of a repository show the blocks of extensions as text."""
    assert not re.search(r"^(///|===|!!!|\?\?\?)", page.read_text(encoding="utf-8"), re.MULTILINE)


def test_tracebacks_quote_the_code():
    quotes = [
        quote
        for page in PAGES
        for quote in re.findall(
            r'File "\.\.\./(jaxpool/\S+)", line (\d+), in (\w+)\n +(.*)',
            page.read_text(encoding="utf-8"),
        )
    ]
    assert quotes
    for file, number, function, line in quotes:
        lines = (Path(jaxpool.__file__).parents[1] / file).read_text(encoding="utf-8").splitlines()
        assert lines[int(number) - 1].strip() == line
        defined = [each for each in lines[: int(number)] if each.startswith("def ")][-1]
        assert defined.startswith(f"def {function}(")


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    pages = [str(path.relative_to(DOCS)) for path in DOCS.glob("**/*.md")]
    assert [page for page in pages if f" {page}\n" not in nav] == []


@pytest.mark.parametrize("name", ["explain.md", "tutorial.md"])
def test_page_shows_current_output_of_explain(name, capsys):
    page = (DOCS / name).read_text(encoding="utf-8")
    printed = re.search(r"```text\n(.*?)```", page, re.DOTALL)[1]
    assert printed
    outputs = []
    for command in re.findall(r"(?m)^\$ python -m jaxpool (explain --array .*)$", page):
        assert main(shlex.split(command)) == 0
        outputs.append(capsys.readouterr().out)
    assert any(output.startswith(printed) for output in outputs)


def test_versions_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == jaxpool.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {jaxpool.__version__}\n" in citation
    date = re.search(r"date-released: (\S+)", citation)[1]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{jaxpool.__version__}] - {date}" in changelog


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_minimum_versions_match_pyproject(page):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    for rule in project["dependencies"]:
        name, oldest = rule.split(">=")
        assert f"`{name}` ({oldest} or newer)" in text
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in text


def test_default_ties_table_matches_signatures():
    page = (DOCS / "conventions.md").read_text(encoding="utf-8")
    table = page.partition("## Default tie rules")[2].partition("\n## ")[0]
    said = {}
    for names, default in re.findall(r'^\| (`.+?`) \| `"(\w+)"` \|', table, re.MULTILINE):
        said |= dict.fromkeys(re.findall(r"`(\w+)`", names), default)
    taken = {name: inspect.signature(pool.function).parameters for name, pool in pools().items()}
    assert said == {name: has["ties"].default for name, has in taken.items() if "ties" in has}
