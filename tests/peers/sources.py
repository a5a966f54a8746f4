"""Sources of the tests of another library: a local folder, its source package, or its release archive."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import io
import pathlib
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request


@dataclasses.dataclass(frozen=True)
class Peer:
    """A library: package, test files, expression that selects tests, repository, and extra packages to install."""

    package: str
    files: tuple[str, ...]
    select: str = ""
    repository: str = ""  # on GitHub; empty if a file of this folder runs samples of the package
    tag: str = "v{}"
    extra: tuple[str, ...] = ()


PEERS = {
    "jax": Peer(
        "jax",
        ("tests/lax_test.py", "tests/lax_vmap_test.py", "tests/lax_autodiff_test.py"),
        "ReduceWindow or Cumulative or Cumsum",
        "jax-ml/jax",
        "jax-v{}",
    ),
    "flax": Peer("flax", ("tests/linen/linen_test.py",), "PoolTest", "google/flax"),
    "haiku": Peer("dm-haiku", ("haiku/_src/pool_test.py",), "", "google-deepmind/dm-haiku"),
    "equinox": Peer(
        "equinox",
        ("tests/test_nn.py", "tests/conftest.py"),
        "pool",
        "patrick-kidger/equinox",
    ),
    "torch": Peer("torch", ("opinfo.py",), extra=("expecttest",)),
    "onnx": Peer("onnx", ("nodes.py",), extra=("onnx",)),
}


def install(packages: tuple[str, ...], work: pathlib.Path) -> str:
    """Install packages into a subfolder of `work`; return an error message or an empty string."""
    if not packages:
        return ""
    return _pip("install", "--target", str(work / "extra"), *packages)


def find(name: str, given: pathlib.Path | None, work: pathlib.Path) -> tuple[list[str], str]:
    """Return the test files, or an empty list with the errors of all sources."""
    peer = PEERS[name]
    if not peer.repository:
        return [str(pathlib.Path(__file__).with_name(file)) for file in peer.files], ""
    tried = []
    for source in (_local_folder, _source_package, _release):
        try:
            files = source(name, given, work)
        except (OSError, LookupError, tarfile.TarError) as error:
            tried.append(f"{source.__doc__}: {error or type(error).__name__}")
            continue
        return [file for file in files if not file.endswith("conftest.py")], ""
    return [], "; ".join(tried)


def _local_folder(name: str, given: pathlib.Path | None, work: pathlib.Path) -> list[str]:
    """the folder given"""
    if given is None:
        raise LookupError("none")
    return _required_files(given / name, PEERS[name])


def _source_package(name: str, given: pathlib.Path | None, work: pathlib.Path) -> list[str]:
    """the source package"""
    package, folder = PEERS[name].package, work / name
    version = importlib.metadata.version(package)
    said = _pip("download", "--no-binary", package, "--dest", str(folder), f"{package}=={version}")
    if said:
        raise LookupError(said)
    for archive in folder.glob("*.tar.gz"):
        return _unpack(tarfile.open(archive), folder, PEERS[name])
    raise LookupError("no archive")


def _release(name: str, given: pathlib.Path | None, work: pathlib.Path) -> list[str]:
    """the archive of the release"""
    peer = PEERS[name]
    tag = peer.tag.format(importlib.metadata.version(peer.package))
    url = f"https://github.com/{peer.repository}/archive/refs/tags/{tag}.tar.gz"
    with urllib.request.urlopen(url, timeout=120) as answer:
        archive = io.BytesIO(answer.read())
    return _unpack(tarfile.open(fileobj=archive), work / f"{name}-release", peer)


def _unpack(archive: tarfile.TarFile, folder: pathlib.Path, peer: Peer) -> list[str]:
    with archive:
        archive.extractall(folder, filter="data")
    (root,) = (path for path in folder.iterdir() if path.is_dir())
    return _required_files(root, peer)


def _required_files(root: pathlib.Path, peer: Peer) -> list[str]:
    missing = [file for file in peer.files if not (root / file).is_file()]
    if missing:
        raise LookupError(f"it has no {', '.join(missing)}")
    return [str((root / file).resolve()) for file in peer.files]


def _pip(command: str, *rest: str) -> str:
    pip = [sys.executable, "-m", "pip", command, "--quiet", "--no-deps", *rest]
    done = subprocess.run(pip, capture_output=True, text=True)
    return done.stderr.strip().rsplit("\n", 1)[-1] if done.returncode else ""
