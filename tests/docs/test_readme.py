"""The programs of README's section "Bring your model" run as they stand."""

import pathlib
import re
import warnings

import pytest

README = pathlib.Path(__file__).parents[2] / "README.md"
SECTION = README.read_text().split("## Bring your model")[1].split("\n## ")[0]
PROGRAMS = dict(
    re.findall(r"^(\w[^\n]*):\n\n```python\n(.*?)```", SECTION, re.MULTILINE | re.DOTALL)
)
LIBRARIES = {
    "Flax NNX": "flax",
    "Flax Linen": "flax",
    "Haiku": "haiku",
    "Equinox": "equinox",
    "Keras, on its jax backend": "keras",
}


def test_there_is_one_program_for_each_library():
    assert list(PROGRAMS) == list(LIBRARIES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_program_runs(name, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(LIBRARIES[name])
        scope: dict[str, object] = {}
        exec(PROGRAMS[name], scope)
    assert "grads" in scope or "history" in scope
