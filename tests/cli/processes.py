"""Scripts, and Python in a process of its own, with the jaxpool under test."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jaxpool

JAXPOOL_RUN = ["-m", "jaxpool", "run"]


def run_python(words, folder, stdin=None, **variables):
    """Run Python with the arguments `words` in `folder`. Return exit status, standard output and standard error."""
    sources = str(Path(jaxpool.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": sources} | variables,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=400,
    )
    return done.returncode, done.stdout, done.stderr


def write_script(folder, text, name="train.py"):
    """Write a script into `folder`. Return its path relative to the folder."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return str(path.relative_to(folder))
