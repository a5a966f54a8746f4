"""Every command in a ```sh, ```bash or ```console block runs, in the quick tests, the slow tests or `.ci/run`."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_pages import PAGES, ROOT

SHELL_BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    (str(page.relative_to(ROOT)), block)
    for page in PAGES
    for block in SHELL_BLOCK.findall(page.read_text(encoding="utf-8"))
]


def commands_of(block):
    """The commands of a block, without prompts and the environment that they run in."""
    lines = (line.removeprefix("$ ") for line in block.splitlines())
    commands = (command for line in lines for command in line.split(" && "))
    return [c.removeprefix(".venv/bin/").replace("python3 ", "python ") for c in commands]


COMMANDS = list(dict.fromkeys(command for _, block in BLOCKS for command in commands_of(block)))
# Commands that make the environment, and checks, run in `.ci/run`, which reads them from the pages. It changes two
# commands: `mkdocs serve` gets a free port and is stopped. An installation from the git repository gets its own folder,
# so as not to replace the package under test.
IN_CI = (
    r"python -m (venv|pip|pytest(?! -n auto --testmon)|ruff|mypy|mkdocs|jaxpool demo$).*|\.ci/run"
)
QUICK = r"python -m (jaxpool (?!demo --devices|run).*|bench (--help|--load .*))"
# Text appended to a command, which shortens it or shows its effect. Other commands run unchanged.
EXTRA_ARGUMENTS = {
    "export": "&& python -c 'from bench.conditions import memory; print(memory())' | grep environment",
    "python -m coverage run": "tests/geometry",
    "python -m coverage combine": "2>&1",
    "python -m tests.mutation": "--sample 1",
    "python -m pytest -n auto --testmon": "tests/geometry/test_access.py",
    "python -m bench --memory": "--filter 'max_pool(float32[16,128,128,32], (2, 2), (2, 2))' --peer lax --budget 0.01",
    "python -m jaxpool demo --devices": "--output {}",
    "python examples/": "--steps 2",
    "python -m jaxpool run": "--steps 2",
}


@pytest.mark.parametrize(
    "command",
    [c for c in COMMANDS if re.fullmatch(QUICK, c) and not re.fullmatch(IN_CI, c)],
)
def test_quick_command(command, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    _, _, module, *words = shlex.split(command)
    try:
        code = importlib.import_module(f"{module}.__main__").main(words)
    except SystemExit as left:  # raised by --help
        code = left.code
    assert code == 0
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if not re.fullmatch(f"{QUICK}|{IN_CI}", c)]
)
def test_slow_command(command, tmp_path):
    for library in ("matplotlib", "optax", "sklearn", "coverage", "cosmic_ray", "testmon"):
        pytest.importorskip(library)
    more = next((text for start, text in EXTRA_ARGUMENTS.items() if command.startswith(start)), "")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", f"{command} {more.format(tmp_path)}"],
        cwd=ROOT,
        env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_other_commands_run_in_ci():
    """`.ci/run` takes the first block of a page that contains a text."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    read = re.findall(r"sh_block (\S+\.md) (?:'([^']+)'|(\w+))", script)
    read += [("README.md", text, "") for text in ("jaxpool demo", "pytest")]
    in_ci = set()
    for page, quoted, word in read:
        blocks = [block for where, block in BLOCKS if where == page and (quoted or word) in block]
        in_ci.update(commands_of(blocks[0]))
    others = [command for command in COMMANDS if re.fullmatch(IN_CI, command)]
    assert len(others) > 10
    assert [command for command in others if command not in in_ci] == []
