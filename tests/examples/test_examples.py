"""The example programs run for a few steps, and their loss falls."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = [path.stem for path in sorted(EXAMPLES.glob("*.py"))]
STEPS = {"digits": 10}


def test_readme_lists_every_example():
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert len(NAMES) == 4
    assert all(f"`{name}.py`" in page and f"examples/{name}.py" in page for name in NAMES)


@pytest.mark.slow  # `.ci/run` runs all tests of this folder
@pytest.mark.parametrize("name", NAMES)
def test_loss_decreases(name, capsys):
    for library in ("optax", "sklearn", "PIL"):
        pytest.importorskip(library)
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    steps = STEPS.get(name, 4)
    losses = program.main(["--steps", str(steps), "--seed", "0"])
    assert len(losses) == steps
    assert sum(losses[-2:]) < sum(losses[:2])
    first, held_out = capsys.readouterr().out.splitlines()
    assert first == f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} after {steps} steps"
    assert "held" in held_out
