"""Every threshold of the library: a field each, with its unit, its reason, and where it was measured.

A field says from or up to which number a form is chosen. `bench/NOTES.md` holds the measurements, under
the heading that a field names; `python -m bench --tune FIELD` takes them anew. A number that no
measurement of ours supports does not belong here.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

NEVER = math.inf


def _field(default: float, unit: str, reason: str, heading: str) -> Any:
    return dataclasses.field(
        default=default, metadata={"unit": unit, "reason": reason, "heading": heading}
    )


@dataclasses.dataclass(frozen=True)
class Limits:
    """What must be known before the platform is: which residual is kept, and what a program may hold."""

    masked_taps: int = _field(
        128,
        "taps of a window",
        'with ties="split", one bit a tap is kept up to here; the program for larger ones grows too long, '
        "they keep x and y",
        "Forms of ties",
    )
    whole_taps: int = _field(
        16,
        "taps of a window",
        "a larger window that covers its axes is reduced, not slid",
        "Whole axes",
    )
    long_adaptive_window: int = _field(
        64,
        "taps along an axis",
        "longer adaptive windows are reduced as blocks; tap by tap the program grows too long",
        "Adaptive pools",
    )
    adaptive_places: int = _field(
        16,
        "places of an element on the grid",
        "up to here they are read one by one, beyond as one block that is summed",
        "Adaptive pools",
    )
    fold_taps: int = _field(
        6,
        "taps along an axis",
        "up to here a fold joins elements one by one, longer windows by halves",
        "Long windows",
    )


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The thresholds of one platform. The defaults are the portable form: nothing that serves one compiler."""

    # Windowed maxima and minima: how many passes.
    pass_taps: int = _field(
        16,
        "taps of a window",
        "up to here one pass: fewer trips to memory than an axis at a time",
        "Large windows",
    )
    overlapping_pass_taps: int = _field(
        9,
        "taps of a window",
        "forwards, windows that overlap take one pass up to here: every tap is compared at every output",
        "Large windows",
    )
    overlapping_taps_an_element: int = _field(
        4,
        "taps an input element",
        "with strides fewer outputs compare: one pass up to so many taps times the strides",
        "Large windows",
    )
    pieces: int = _field(
        8,
        "pieces of a pass along one axis",
        "fewer and longer passes over memory, where windows overlap much",
        "Large windows",
    )
    longest_pass: int = _field(
        32,
        "taps along an axis, or of an overlapping window",
        "the program and its compile time grow with the terms of one pass",
        "Large windows",
    )
    # Sums: how many passes.
    sum_pass_taps: int = _field(
        49,
        "taps of a window",
        "one pass over several axes vectorises up to here",
        "Sums in one pass",
    )
    sum_taps_an_element: int = _field(
        9,
        "taps an input element",
        "one pass adds no more than this, an axis at a time adds less",
        "Sums in one pass",
    )
    spread_taps_an_element: int = _field(
        13,
        "taps an output element",
        "the same for the transpose of strided sums in 32-bit types and wider",
        "Sums in one pass",
    )
    short_window: int = _field(
        3,
        "taps along an axis",
        "windows this short are one pass whatever their strides",
        "Sums in one pass",
    )
    short_window_of_two_axes: int = _field(
        6, "taps along each of two axes", "with channels last, one pass", "Sums in one pass"
    )
    sum_terms: int = _field(
        1 << 10,
        "terms of a pass in all regions",
        "a program of more compiles for seconds",
        "Sums in one pass",
    )
    longest_sum: int = _field(
        32, "taps along an axis", "beyond, sums of sums in two passes", "Long windows"
    )
    longest_sum_of_two: int = _field(
        256, "taps along an axis", "beyond, sums are folded by halves", "Long windows"
    )
    # What only XLA for CPU needs. NEVER elsewhere.
    integer_keys: bool = _field(
        False,
        "yes or no",
        "16-bit floats are compared as 16-bit integers: twice as many to a vector as float32, no test for NaN",
        "16-bit floats",
    )
    conditional: bool = _field(
        False,
        "yes or no",
        "XLA for CPU drops optimization barriers before it fuses; a branch of a conditional keeps a result apart",
        "What keeps a result apart",
    )
    in_place: bool = _field(
        False,
        "yes or no",
        "terms are read where they are and padded one by one, where that vectorises: no padded copy",
        "Strides",
    )
    region_bytes: float = _field(
        NEVER,
        "bytes of the array that a maximum reads, or its transpose",
        "a padded copy costs more than the longer program of regions from here on",
        "Regions",
    )
    sum_region_bytes: float = _field(
        NEVER, "bytes of the array that a sum reads", "the same for sums", "Sums in one pass"
    )
    sum_region_bytes_of_volumes: float = _field(
        0,
        "bytes of the array that a sum over three axes reads",
        "a smaller array is not worth a program of all regions of three axes in one pass",
        "Volumes",
    )
    vector: float = _field(
        0,
        "elements next to each other",
        "over shorter rows, loops that pad or concatenate piece by piece do not vectorise",
        "Regions",
    )
    strided_terms: float = _field(
        0,
        "terms of a strided pass",
        "up to here XLA for CPU vectorises terms that test bounds along several axes",
        "Strides",
    )
    tested_taps: float = _field(
        NEVER,
        "taps along one axis",
        "one loop over up to so many tests bounds and still vectorises",
        "Sums in one pass",
    )
    regions_at_ends: int = _field(
        0,
        "regions at either end of an axis that is summed alone",
        "XLA for CPU writes up to 8 regions as loops of one program",
        "Regions",
    )
    longest_table: float = _field(
        0,
        "positions along an axis",
        "what is read through tables of positions stands in the program as constants; 0: no tables",
        "Tables",
    )
    table_row: float = _field(
        NEVER,
        "elements next to each other",
        "sums read through tables are as fast as regions from here on, and compile in half the time",
        "Tables",
    )
    table_row_of_phases: float = _field(
        NEVER,
        "elements next to each other",
        "the same for transposes of strided 32-bit sums",
        "Tables",
    )
    table_row_of_volumes: float = _field(
        NEVER, "elements next to each other", "the same for three axes with long ends", "Volumes"
    )
    table_taps: int = _field(
        9, "taps of a window", "a sum reads through tables up to so many", "Tables"
    )
    table_taps_an_element: int = _field(
        4, "taps an input element", "or, forwards with strides, so many an element", "Tables"
    )
    table_taps_of_volumes: int = _field(
        27,
        "taps of a window over three axes",
        "regions of three axes lose up to so many",
        "Volumes",
    )
    many_ends: float = _field(
        1 / 4,
        "share of positions that lack an element",
        "transposes of strided sums with more go through tables for more taps",
        "Tables",
    )
    table_taps_of_ends: int = _field(16, "taps of a phase", "and up to so many", "Tables")
    mostly_ends: float = _field(
        1 / 3,
        "share of positions that lack an element",
        "without strides regions win from here on: little is left inside",
        "Tables",
    )
    table_phases: int = _field(
        8,
        "phases along an axis",
        "cotangents of sums with longer strides go through tables: phases are a loop each",
        "Long windows",
    )
    route_row: float = _field(
        NEVER,
        "elements next to each other",
        "cotangents of maxima go through tables from here on",
        "Cotangents of maxima",
    )
    route_row_of_16_bits: float = _field(
        NEVER,
        "elements next to each other",
        "the same for few windows of 8- and 16-bit floats",
        "Cotangents of maxima",
    )
    route_windows: int = _field(
        8,
        "windows that cover an element",
        "one loop over several axes reads up to so many",
        "Cotangents of maxima",
    )
    route_windows_without_strides: int = _field(
        9, "windows that cover an element", "the same without strides", "Cotangents of maxima"
    )
    route_windows_of_axis: int = _field(
        11,
        "windows that cover an element",
        "a loop over one axis reads up to so many",
        "Cotangents of maxima",
    )
    phases_row: float = _field(
        24,
        "elements next to each other",
        "from here on phases that are read in place are as fast as tables",
        "Cotangents of maxima",
    )
    separate_taps: int = _field(
        8,
        "taps of a window",
        "windows that do not meet go phase by phase up to so many, as fast as through tables",
        "Cotangents of maxima",
    )
    unpool_taps: float = _field(
        0,
        "taps of a window",
        "an unpooled element whose window is up to so large is put there densely, if indices say that all lie in "
        "their own windows: a scatter takes twice the time on CPU",
        "Unpooling",
    )


LIMITS = Limits()
PORTABLE = Tuning()
CPU = Tuning(
    integer_keys=True,
    conditional=True,
    in_place=True,
    region_bytes=1 << 18,
    sum_region_bytes=1 << 11,
    sum_region_bytes_of_volumes=1 << 16,
    vector=16,
    strided_terms=9,
    tested_taps=9,
    regions_at_ends=3,
    longest_table=1 << 14,
    table_row=12,
    table_row_of_phases=20,
    table_row_of_volumes=4,
    route_row=12,
    route_row_of_16_bits=8,
    unpool_taps=32,
)
TUNING = {"cpu": CPU, "gpu": PORTABLE, "tpu": PORTABLE}
