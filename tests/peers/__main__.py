"""`python -m tests.peers`: download tests of other libraries, run them on jaxpool, and list unavailable tests."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]


@dataclasses.dataclass(frozen=True)
class Peer:
    """A library: package, test files, expression that selects tests, their source, and extra packages to install.

    The source is "sdist", the address of an archive of the release, or empty for files of this folder.
    """

    package: str
    files: tuple[str, ...]
    select: str = ""
    source: str = ""
    extra: tuple[str, ...] = ()


GITHUB = "https://github.com/"
PEERS = {
    "jax": Peer(
        "jax",
        ("tests/lax_test.py", "tests/lax_vmap_test.py", "tests/lax_autodiff_test.py"),
        "ReduceWindow or Cumulative or Cumsum",
        GITHUB + "jax-ml/jax/archive/refs/tags/jax-v{}.tar.gz",
    ),
    "flax": Peer("flax", ("tests/linen/linen_test.py",), "PoolTest", "sdist"),
    "haiku": Peer("dm-haiku", ("haiku/_src/pool_test.py",), "", "sdist"),
    "equinox": Peer(
        "equinox",
        ("tests/test_nn.py",),
        "pool",
        GITHUB + "patrick-kidger/equinox/archive/refs/tags/v{}.tar.gz",
    ),
    "torch": Peer("torch", ("opinfo.py",), extra=("expecttest",)),
    "onnx": Peer("onnx", ("nodes.py",), extra=("onnx",)),
}


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
        for name in options.peers or PEERS:
            print(f"== {name}", flush=True)
            work = pathlib.Path(folder) / name
            work.mkdir()
            try:
                said[name] = run(name, work, options)
            except (OSError, tarfile.TarError, subprocess.CalledProcessError) as error:
                said[name] = f"could not be had: {error}"
    print("==")
    for name, what in said.items():
        print(f"{name:8} {what}")
    return any(what != "passes" for what in said.values())


def run(name: str, work: pathlib.Path, options: argparse.Namespace) -> str:
    peer = PEERS[name]
    if peer.extra:
        pip("install", "--target", str(work / "extra"), *peer.extra)
    folder = HERE
    if peer.source:
        folder = options.sources / name if options.sources else download(peer, work)
    path = [str(ROOT), str(HERE), str(work / "extra"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PEER": name,
        "JAX_NUM_GENERATED_CASES": str(options.cases),
    }
    pytest = [sys.executable, "-m", "pytest", "-q", "-rfEx", "--tb=short", "--disable-warnings"]
    # No pytest settings of either project, because warnings must not fail a test.
    pytest += ["-p", "ours", "-c", os.devnull, "--rootdir", str(work), "-p", "no:cacheprovider"]
    pytest += ["--import-mode", "importlib"] if name == "haiku" else []
    files = [str((folder / file).resolve(strict=True)) for file in peer.files]
    done = subprocess.run([*pytest, "-k", peer.select, *files], env=environment, cwd=work)
    return "passes" if done.returncode == 0 else f"fails (pytest says {done.returncode})"


def download(peer: Peer, work: pathlib.Path) -> pathlib.Path:
    """Unpack the sources of the installed version and return their folder."""
    version = importlib.metadata.version(peer.package)
    if peer.source == "sdist":
        pip(
            "download",
            "--no-binary",
            peer.package,
            "--dest",
            str(work),
            f"{peer.package}=={version}",
        )
    else:
        urllib.request.urlretrieve(peer.source.format(version), work / "release.tar.gz")
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(work / "sources", filter="data")
    (root,) = (work / "sources").iterdir()
    return root


def pip(command: str, *rest: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--no-deps", *rest], check=True
    )


if __name__ == "__main__":
    sys.exit(main())
