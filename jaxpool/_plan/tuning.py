"""Thresholds of the choices between implementations, one field per threshold.

The comment of a field gives its unit and its reason. The measurements are in `bench/NOTES.md`, under the heading
named above a group of fields; with another value in the working tree, `python -m bench --against HEAD` repeats them.
Every number needs a measurement.
"""

import dataclasses
import math

NEVER = math.inf


# fmt: off
@dataclasses.dataclass(frozen=True)
class Limits:
    """Thresholds that do not depend on the platform: the choice of the residual and the size of a program."""

    # NOTES: Program length
    masked_taps: int = 64  # Taps of a window: up to here, ranks are unrolled and split ties save one bit per tap.
    whole_taps: int = 16  # Taps of a window: a larger window that covers its axes is a reduction, not a sliding window.
    adaptive_window: int = 64  # Taps along an axis: longer adaptive windows are reduced as blocks.
    adaptive_places: int = 16  # Windows per element of an adaptive pool: read one by one up to here, else as a block.
    constant_table: int = 1 << 17  # Entries: the program computes a longer table of positions, instead of storing it.
    morphology_taps: int = 25  # Taps of a kernel: added in one expression up to here, else in a loop over the taps.
    taps_at_once: int = 16  # Taps: joined per loop iteration, which reads and writes the result once.
    weighted_taps_at_once: int = 8  # Taps: joined per loop iteration if each has a weight.
    fold_taps: int = 6  # Taps along an axis: a fold joins them one by one up to here, else by halves.
    # NOTES: Boxes and segments
    box_samples: int = 4  # Points along an axis of a cell: gathered up to here, with 4 n^2 gathers for n points.
    box_points: int = 1 << 20  # Elements: bounds the points in memory at a time, if they are not gathered.
    rows_of_partial_sum: int = 128  # Rows: float32 segment sums add partial sums of this many rows if that is cheap.
    rows_per_partial_sum: int = 16  # Rows per partial sum: fewer rows per partial sum would take time and memory.
    rows_of_long_segment: int = 2048  # Rows: a longer segment has partial sums, even if its rows are scattered over x.
    rows_per_sample: int = 64  # Rows: one id out of this many is counted to find long segments.
    boxes_of_a_product: int = 16  # Boxes: enough rows for a matrix product, with few empty slots.


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The thresholds of one platform. The defaults are the portable form, without workarounds for a compiler."""

    # NOTES: Large windows
    pass_taps: int = 16  # Taps of a window: one pass up to here, which reads memory fewer times than a pass per axis.
    overlapping_taps: int = 9  # Taps of a window: one forward pass up to here for overlapping windows.
    overlapping_taps_an_element: int = 4  # Taps per input element: the same limit for windows with strides.
    pieces: int = 8  # Pieces joined by a step along an axis of overlapping windows: more are fewer passes.
    longest_pass: int = 32  # Taps of one pass: the size and the compile time of the program grow with them.
    # NOTES: Sums in one pass
    sum_taps: int = 49  # Taps of a window: one pass over two axes vectorises up to here.
    sum_taps_an_element: int = 9  # Taps per input element: one pass up to here; beyond, a pass per axis adds less.
    spread_taps_an_element: int = 13  # Taps per output element: one pass up to here for transposed sums with strides.
    short_window: int = 4  # Taps along an axis: one pass over two axes up to here, for any strides.
    short_spread_of_16_bits: int = 3  # Taps along an axis: one pass up to here for strided transposes of narrow floats.
    longest_sum: int = 32  # Taps along an axis: two passes beyond, which add sums of parts.
    # NOTES: Blurs
    blur_taps: int = 25  # Taps of a window: one pass over several axes up to here, else one pass per axis.
    blur_taps_an_element: int = 3  # Taps per input element: one pass over several axes up to here, with strides.
    # NOTES: Compiled for GPUs and TPUs
    sum_passes: float = NEVER  # Passes of a sum: a sum of more passes is `lax.reduce_window` instead.
    reduced_at_once: float = NEVER  # Taps of a sum: one `lax.reduce_window` up to here, else one per axis.
    scan_ways: int = 2  # Stretches joined per pass of a running maximum: more are fewer passes with more terms.
    reduced_values: bool = False  # A maximum without an index is `lax.reduce_window`.
    values_at_once: int = 25  # Taps of a window: one such reduction up to here, else one per axis.
    scattered_taps: int = 0  # Taps along an axis: up to here a maximum saves x for select-and-scatter.
    # Whether one select-and-scatter instruction takes all axes. Otherwise there is one instruction per axis.
    at_once_taps: int = 4  # Taps of a window: one instruction up to here, which needs no more comparisons.
    at_once_an_element: int = 2  # Taps per input element: one instruction up to here too.
    by_axis_bytes: float = 52 << 20  # Bytes of x in memory: one instruction beyond, as two such x fill fast memory.
    most_at_once: int = 16  # Taps of a window: never one instruction beyond, as comparisons are unrolled.
    most_at_once_apart: int = 49  # Taps of a window: one instruction up to here for disjoint windows.
    at_once_strided: int = 4  # Taps per input element: one instruction up to here, if a strided batch fills sublanes.
    most_at_once_strided: int = 25  # Taps of a window: never one instruction beyond, with such strides.
    joined_taps: int = 9  # Taps of one instruction: an "or" joins its two comparisons up to here, else a select.
    sublanes: int = 8  # Sublanes of a TPU register of 32-bit elements: a batch of at least this size fills them.
    lanes: int = 128  # Elements: the last axis of an array is padded to a multiple of this in memory.
    compact_times: int = 4  # Factor: x is transposed first if that reduces its memory more than this many times.

    # NOTES: Ranks
    network_taps: int = 64  # Taps of a window: ranked by comparators up to here, else counted in a loop over the taps.
    walked_row: int = 0  # Contiguous elements: shorter rows are merged with the pooled axis for such a loop.

    # NOTES: The k largest
    compared_positions: int = 64  # Positions: elements are compared with so many, else a scatter writes the cotangents.

    gathers_for_top_k: bool = False  # XLA gathers a partitioned batch for `lax.top_k`.

    # NOTES: Compiled for GPUs and TPUs
    # NOTES: Soft pools: plain sums within a range
    amended_in_place: bool = False  # A loop of at most one iteration changes y in place; a branch would copy y.

    # The fields below are for XLA for CPU only.
    # NOTES: Value and index
    nan_apart: bool = False  # NaN is found separately from the best number, which halves the latency of a term.
    # NOTES: What keeps a result apart
    drops_barriers: bool = False  # XLA removes optimization barriers before fusion, so calls store results.
    # NOTES: Regions
    in_place: bool = False  # Terms are padded one by one, and extra phases are cropped after interleaving.
    widened_apart: bool = False  # Cotangents of 8 and 16 bits are widened in a pass before the sums, not in each term.
    region_bytes: float = NEVER  # Bytes that a maximum reads: from here on a padded copy costs more than regions.
    sum_region_bytes: float = NEVER  # Bytes that a sum reads: from here on a padded copy costs more than regions.
    least_inside: int = 50  # Percent of positions: a maximum is cut if more than so many have all their elements.
    tested_end: int = 8  # Positions at an end of one axis: more are read from a padded copy, fewer test bounds.
    tested_taps: float = NEVER  # Taps along one axis: a loop that tests the bounds of up to so many still vectorises.
    tested_terms: int = 0  # Terms of a maximum along several axes: one loop tests the bounds of up to so many.
    vector: float = 0  # Contiguous elements: with fewer, loops that pad term by term do not vectorise.
    # NOTES: Tables
    longest_table: float = 0  # Positions along an axis: up to here tables are program constants; 0 disables tables.
    table_row: float = NEVER  # Contiguous elements: sums over several axes use tables from here on.
    table_taps: int = 9  # Terms of a sum: tables up to here; more gathers are slower than regions.
    table_taps_an_element: int = 4  # Taps per input element: tables up to here for sums with strides.
    table_phases: int = 8  # Phases along an axis: transposed sums over one axis use tables beyond.
    # NOTES: Cotangents of maxima
    route_row: float = NEVER  # Contiguous elements: cotangents of overlapping windows use tables from here on.
    route_windows: int = 8  # Windows that cover an element: one loop over several axes up to here, else one per axis.
    route_windows_without_strides: int = 9  # Windows that cover an element: the same limit for strides of 1.
    route_windows_of_axis: int = 11  # Windows that cover an element: tables up to here, else steps.
    separate_taps: int = 8  # Taps of disjoint windows: up to here, phases are as fast as tables.
    # NOTES: Reductions that lose NaN
    loses_nan: bool = False  # A maximum over whole axes may lose a NaN, by its shape (jax 0.10 to 0.12).
    folded_elements: float = NEVER  # Elements: from here on stretches of an axis are joined before it is reduced.
    reduced_as_floats: float = NEVER  # Elements per output: float32 sums, counts and ranks of small arrays beyond.
    folded_ways: int = 8  # Stretches joined in one pass: 16 take half as long again.
    folded_whole: int = 16  # Elements along an axis: joined completely up to here; the limit is half for 16 bits.
    folded_row: int = 32  # Bits next to each other: over shorter rows the pass does not vectorise.
    folded_tied_row: int = 256  # Bits next to each other: the same limit for tie counts and indices.
    # NOTES: Subnormal numbers
    scan_block: float = NEVER  # Elements: passes of a running maximum over longer distances work on blocks.
    subnormals_are_zero: bool = False  # Comparisons flush subnormals to zero, so integers are compared.
    # NOTES: Soft pools: plain sums within a range
    looped_elements: float = NEVER  # Elements: loops over taps split a larger batch into chunks to save memory.
    # NOTES: Blurs
    reflected_apart: bool = False  # The cotangent with its mirrored border is stored before the border is folded back.
    # NOTES: Boxes and segments
    ordered_scatters: bool = False  # A scatter writes one row after another, so sums are deterministic.
    stored_shares: bool = False  # Shares of segments, and a row of zeros, are stored before rows gather them.
    scattered_rows: int = 16  # Rows per segment: a scatter sends cotangents from here on, else rows compare numbers.
    ties_tested: bool = False  # Ties of segments are counted in a branch that runs only if there are any.
    box_pixels: bool = False  # Cells of few points gather their pixels, instead of two matrix products with the image.
    joined_bytes: int = 0  # Bytes of all levels per box: levels are concatenated up to here, else read box by box.
    cast_to_compare: bool = False  # bfloat16 is cast to be compared with gathered elements: fewer operations.
    boxes_of_a_walk: int = 128  # Boxes: read per loop; on CPU their data fit the cache.
    tile_rows: float = NEVER  # Rows of an image: one loop sends cotangents to so many; all rows where not measured.
    tile_columns: float = NEVER  # Columns of an image: one loop sends cotangents to so many.

# fmt: on


LIMITS = Limits()
PORTABLE = Tuning()
CPU = Tuning(
    nan_apart=True,
    drops_barriers=True,
    in_place=True,
    widened_apart=True,
    region_bytes=1 << 18,
    sum_region_bytes=1 << 11,
    tested_taps=9,
    tested_terms=9,
    vector=16,
    longest_table=1 << 14,
    compared_positions=4,
    gathers_for_top_k=True,
    table_row=12,
    route_row=12,
    loses_nan=True,
    reduced_as_floats=16,
    folded_elements=1 << 15,
    scan_ways=5,
    scan_block=25,
    subnormals_are_zero=True,
    blur_taps=1,
    network_taps=128,
    walked_row=32,
    looped_elements=1 << 18,
    amended_in_place=True,
    reflected_apart=True,
    ordered_scatters=True,
    stored_shares=True,
    ties_tested=True,
    box_pixels=True,
    joined_bytes=1 << 17,
    cast_to_compare=True,
    boxes_of_a_walk=8,
    tile_rows=8,
    tile_columns=16,
)
GPU = Tuning(
    pass_taps=27,
    overlapping_taps=27,
    pieces=64,
    longest_pass=64,
    sum_taps_an_element=49,
    spread_taps_an_element=49,
    short_spread_of_16_bits=7,
    sum_passes=1,
    scan_ways=16,
    amended_in_place=True,
)
TPU = Tuning(
    sum_passes=0,
    reduced_at_once=25,
    reduced_values=True,
    scattered_taps=32,
    amended_in_place=True,
)
TUNING = {"cpu": CPU, "gpu": GPU, "tpu": TPU, "portable": PORTABLE}


def tuning(platform: str) -> Tuning:
    """The thresholds of a platform."""
    return TUNING[platform]
