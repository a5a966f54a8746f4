"""Time in which a GPU or TPU runs kernels and copies, read from a profile of JAX. Launches and gaps do not count."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.profiler import ProfileData


def device_seconds(call: Callable[[], Any], plane_prefix: str) -> float:
    """The busy time of a device during `call`, also of kernels that another framework launches in this process."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            call()
        (file,) = Path(folder).rglob("*.xplane.pb")
        return busy_seconds(ProfileData.from_file(str(file)), plane_prefix)


def busy_seconds(profile: ProfileData, plane_prefix: str) -> float:
    """The time covered by events of the planes whose name starts with `plane_prefix`, such as "/device:GPU:0".

    Streams of a GPU run at the same time, so time that several events cover counts once.
    """
    events = [
        (event.start_ns, event.start_ns + event.duration_ns)
        for plane in profile.planes
        if plane.name.startswith(plane_prefix)
        for line in plane.lines
        if line.name != "Steps"  # a step of a TPU includes idle time
        for event in line.events
    ]
    busy_ns, covered_until = 0.0, float("-inf")
    for start, end in sorted(events):
        busy_ns += max(0.0, end - max(start, covered_until))
        covered_until = max(covered_until, end)
    return busy_ns / 1e9
