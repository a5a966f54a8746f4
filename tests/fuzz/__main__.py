"""Fuzz the arguments of every public function, guided by coverage of the library.

    python -m tests.fuzz [--seconds 60] [--seed 0] [--corpus FOLDER] [--replay]

Needs atheris, which draws the bytes from which hypothesis draws calls. A call must return the shapes and dtypes that
`shapes.py` computes, or raise TypeError or ValueError with a message of the library. The command prints any other
outcome, and calls that take longer than SECONDS, once per line of origin. `--replay` runs the calls of a folder,
without atheris.
"""

import argparse
import collections
import math
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
SECONDS = 5  # processor time limit of one call
COMPILED_SECONDS = 20  # processor time limit of one call that compiles
NUM_INITIAL_CALLS = 300  # initial calls from random bytes
NUM_BYTES = 256  # enough for most calls
CALLS_PER_CACHE_CLEAR = 3000  # calls between clearings of jax's caches


class CallTimeout(BaseException):
    """A call took too long."""


class Fuzz:
    """Runs calls, counts outcomes and reports failures."""

    def __init__(self, seconds):
        self.ends, self.tried = time.process_time() + seconds, collections.Counter()
        self.found = collections.Counter()
        signal.signal(signal.SIGVTALRM, self.raise_timeout)
        signal.signal(signal.SIGTERM, self.end)

    def raise_timeout(self, *args):
        raise CallTimeout

    def from_bytes(self):
        """Return the function that runs the call that bytes encode."""
        from hypothesis import HealthCheck, given, settings

        from tests.fuzz.calls import odd_calls

        @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(odd_calls())
        def run_call(call):
            self.one(call)

        def run(data):
            self.data = data
            run_call.hypothesis.fuzz_one_input(data)
            if time.process_time() > self.ends:
                self.end()

        return run

    def one(self, call):
        """Run a call."""
        import jax

        from tests.fuzz.run import outcome

        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            said = outcome(call, lambda: signal.setitimer(signal.ITIMER_VIRTUAL, COMPILED_SECONDS))
        except CallTimeout:
            said = "takes too long"
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            ours = [f for f in frames if "/jaxpool/" in f.filename] or frames
            place = f"{'/'.join(ours[-1].filename.split('/')[-2:])}:{ours[-1].lineno}"
            said = f"{place} {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self.tried[said if said in ("result", "refused") else "found"] += 1
        if said not in ("result", "refused"):
            self.report(said, call)
        if self.tried.total() % CALLS_PER_CACHE_CLEAR == 0:
            jax.clear_caches()

    def report(self, said, call):
        key = re.split(r"[^\w.:/`' ]|got| \d", said, maxsplit=1)[0][:100]
        self.found[key] += 1
        if self.found[key] == 1:
            print(f"FOUND {said}\n  {call}\n  {self.data.hex()}", flush=True)

    def end(self, *args):
        """Print a summary and exit."""
        counts = ", ".join(f"{count:,} {name}" for name, count in self.tried.items())
        print(f"{self.tried.total():,} calls, {time.process_time():.0f} s: {counts}")
        print("by kind:" if self.found else "nothing found")
        for said, count in self.found.items():
            print(f"{count:8,}  {said}")
        sys.stdout.flush()
        os._exit(bool(self.found))


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--seconds", type=int, default=60, help="of processor time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", default="", help="a folder for calls that reached new lines")
    parser.add_argument("--replay", action="store_true", help="run the calls of that folder alone")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = pathlib.Path(options.corpus or tempfile.mkdtemp())
    if options.replay:
        fuzz = Fuzz(seconds=math.inf)
        run = fuzz.from_bytes()
        for path in sorted(folder.iterdir()):
            run(path.read_bytes())
        fuzz.end()
    try:
        import atheris
    except ImportError:
        print("atheris is missing: pip install atheris")
        return 2
    with atheris.instrument_imports(include=["jaxpool"]):
        import tests.fuzz.run  # noqa: F401
    folder.mkdir(exist_ok=True)
    draw = random.Random(options.seed)
    for number in range(NUM_INITIAL_CALLS):  # seeds, because atheris starts from empty input
        (folder / f"begin{options.seed}-{number}").write_bytes(draw.randbytes(NUM_BYTES))
    arguments = [f"-seed={options.seed}", "-timeout=600", "-rss_limit_mb=8000"]
    arguments += [f"-max_len={NUM_BYTES}", "-len_control=0", "-verbosity=0", "-handle_term=0"]
    arguments += [f"-artifact_prefix={folder}/", str(folder)]
    atheris.Setup([sys.argv[0], *arguments], Fuzz(options.seconds).from_bytes())
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
