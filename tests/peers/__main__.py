"""`python -m tests.peers`: download tests of other libraries, run them on jaxpool, and list unavailable tests."""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from tests.peers.sources import PEERS, find, install

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__)
    parser.add_argument("peers", nargs="*", help=f"of {', '.join(PEERS)}; all if none is named")
    parser.add_argument(
        "--sources", type=pathlib.Path, help="a folder with checkouts, jax/ and so on"
    )
    parser.add_argument("--cases", type=int, default=100, help="that each test of jax's draws")
    options = parser.parse_args()
    said = {}
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for name in options.peers or PEERS:
            print(f"== {name}", flush=True)
            said[name] = run(name, work, options)
    print("==")
    for name, what in said.items():
        print(f"{name:8} {what}")
    return any(what != "passes" for what in said.values())


def run(name: str, work: pathlib.Path, options: argparse.Namespace) -> str:
    missing = install(PEERS[name].extra, work)
    files, tried = find(name, options.sources, work)
    if missing or not files:
        return f"could not be had: {missing or tried}"
    path = [str(ROOT), str(HERE), str(work / "extra"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PEER": name,
        "JAX_NUM_GENERATED_CASES": str(options.cases),
    }
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rfEx",
        "--tb=short",
        "--disable-warnings",
        "-p",
        "ours",
    ]
    # No pytest settings of either project, because warnings must not fail a test.
    pytest += ["-c", os.devnull, "--rootdir", str(work), "-p", "no:cacheprovider"]
    pytest += ["--import-mode", "importlib"] if name == "haiku" else []
    done = subprocess.run([*pytest, "-k", PEERS[name].select, *files], env=environment, cwd=work)
    return "passes" if done.returncode == 0 else f"fails (pytest says {done.returncode})"


if __name__ == "__main__":
    sys.exit(main())
