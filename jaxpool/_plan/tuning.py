"""Every threshold of windows, a field each: its unit, and why it is there.

A field says from or up to which number a form is chosen. `bench/NOTES.md` holds the measurements,
under the heading over a group of fields; `python -m bench --tune FIELD` takes them anew. A number
that no measurement of ours supports does not belong here.
"""

import dataclasses
import math

NEVER = math.inf


# fmt: off
@dataclasses.dataclass(frozen=True)
class Limits:
    """What must be known before the platform is: which residual is kept, how long a program may grow."""

    # NOTES: Program length
    masked_taps: int = 64  # taps of a window: ties that split keep a bit per tap up to here, else x and y; ranks unroll
    whole_taps: int = 16  # taps of a window: a larger one that covers its axes is reduced, not slid
    adaptive_window: int = 64  # taps along an axis: longer adaptive windows are reduced as blocks
    adaptive_places: int = 16  # places of an element on a grid: read one by one up to here, else as a block
    constant_table: int = 1 << 17  # numbers: a longer table of positions is computed by the program, not part of it
    morphology_taps: int = 25  # taps of a kernel: added in one expression up to here, else a loop goes over them
    taps_at_once: int = 16  # taps: a turn of a loop over them joins so many, and reads and writes the result once
    weighted_taps_at_once: int = 8  # taps: the same where a weight is added at each, as in that sum
    fold_taps: int = 6  # taps along an axis: a fold joins them one by one up to here, else by halves
    # NOTES: Boxes and segments
    box_samples: int = 4  # points along an axis of a cell: read one by one up to here; n are 4 n^2 gathers in a program
    box_points: int = 1 << 20  # numbers: of cells of more points, many times the result, so many are held at once
    rows_of_partial_sum: int = 128  # rows: float32 sums of segments are made of sums of so many where that is cheap
    rows_per_partial_sum: int = 16  # rows per partial sum: more of these would take time and memory
    rows_of_long_segment: int = 2048  # rows: a segment of more is added in parts wherever its rows stand
    rows_per_sample: int = 64  # rows: one of so many ids is counted to find segments that long
    boxes_of_a_product: int = 16  # boxes: rows enough for a matrix product, few free slots where an image has few boxes


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The thresholds of one platform. The defaults are the portable form: nothing that serves one compiler."""

    # NOTES: Large windows
    pass_taps: int = 16  # taps of a window: one pass up to here, fewer trips to memory than an axis at a time
    overlapping_taps: int = 9  # taps of a window: one pass forwards up to here where windows meet
    overlapping_taps_an_element: int = 4  # taps per input element: one pass forwards up to here, with strides
    pieces: int = 8  # pieces of a pass along an axis where windows meet: fewer, longer passes over memory
    longest_pass: int = 32  # taps of one pass: the program, and the time it compiles, grow with them
    # NOTES: Sums in one pass
    sum_taps: int = 49  # taps of a window: one pass over two axes vectorises up to here
    sum_taps_an_element: int = 9  # taps per input element: one pass up to here; beyond, an axis at a time adds up less
    spread_taps_an_element: int = 13  # taps per output element: the same for the transpose of sums with strides
    short_window: int = 4  # taps along an axis: one pass over two axes whatever the strides
    short_spread_of_16_bits: int = 3  # taps along an axis: one pass for transposes with strides in 8- and 16-bit floats
    longest_sum: int = 32  # taps along an axis: sums of sums in two passes beyond
    # NOTES: Blurs
    blur_taps: int = 25  # taps of a window: one pass over several axes up to here, else one for each axis
    blur_taps_an_element: int = 3  # taps per input element: one pass over several axes up to here, with strides
    # NOTES: Compiled for GPUs and TPUs
    sum_passes: float = NEVER  # passes of a sum: one that would take more is `lax.reduce_window` instead
    reduced_at_once: float = NEVER  # taps of a sum: one `lax.reduce_window` up to here, else one per axis
    scan_ways: int = 2  # stretches joined by a pass of a running extreme: more are fewer passes, of more terms each
    reduced_values: bool = False  # a maximum without an index is `lax.reduce_window`
    values_at_once: int = 25  # taps of a window: one such reduction up to here, else one per axis
    scattered_taps: int = 0  # taps along an axis: up to here a maximum keeps x, an instruction sends cotangents back
    # Whether that instruction goes over all axes at once; else it takes one after another.
    at_once_taps: int = 4  # taps of a window: up to here at once, since one after another are as many comparisons
    at_once_an_element: int = 2  # taps per input element: up to here too
    by_axis_bytes: float = 52 << 20  # bytes of x in memory: from here on at once, as two such arrays fill fast memory
    most_at_once: int = 16  # taps of a window: of more, none of these is taken at once, as comparisons are unrolled
    most_at_once_apart: int = 49  # taps of a window: where windows do not meet, at once up to here
    at_once_strided: int = 4  # taps per input element: with strides, of a batch that fills sublanes, at once up to here
    most_at_once_strided: int = 25  # taps of a window: with such strides, at once at most so many
    joined_taps: int = 9  # taps of a window at once: NaN and order are joined by an "or" up to here, else by a select
    sublanes: int = 8  # rows of a register of 32 bits: a batch of as many fills them
    lanes: int = 128  # elements: the last axis of an array is filled up to so many in memory
    compact_times: int = 4  # times: x is transposed first where it then takes more than so many times less memory

    # NOTES: Ranks
    network_taps: int = 64  # taps of a window: ranked by comparators up to here, else counted in a loop over the taps
    walked_row: int = 0  # elements next to each other: shorter rows are made one with their axis for such a loop

    # NOTES: The k largest
    compared_positions: int = 64  # positions: each element is compared with up to so many, else a scatter writes them

    gathers_for_top_k: bool = False  # a batch that XLA divides among devices is gathered for `lax.top_k`

    # NOTES: Compiled for GPUs and TPUs
    # NOTES: Soft pools: plain sums within a range
    amended_in_place: bool = False  # a loop that runs once or not at all changes y, which a branch would copy

    # What only XLA for CPU needs; elsewhere never.
    # NOTES: Value and index
    nan_apart: bool = False  # a NaN is looked for apart from the best number: half the latency of a term
    # NOTES: What keeps a result apart
    drops_barriers: bool = False  # XLA for CPU removes optimization barriers before it fuses: calls store results
    # NOTES: Regions
    in_place: bool = False  # pads term by term, and cuts phases off once joined
    widened_apart: bool = False  # cotangents of 8 and 16 bits are widened before they are added, not in each term
    region_bytes: float = NEVER  # bytes that a maximum reads: a padded copy costs more than regions from here on
    sum_region_bytes: float = NEVER  # bytes that a sum reads: a padded copy costs more than regions from here on
    least_inside: int = 50  # percent of positions: a maximum is cut if at more than so many nothing is missing
    tested_end: int = 8  # positions at an end of one axis: more are read from a padded copy, fewer test bounds
    tested_taps: float = NEVER  # taps along one axis: one loop tests the bounds of up to so many, and vectorises
    tested_terms: int = 0  # terms of a maximum along several axes: one loop tests the bounds of up to so many
    vector: float = 0  # elements next to each other: over fewer, loops that pad term by term do not vectorise
    # NOTES: Tables
    longest_table: float = 0  # positions along an axis: tables of positions are constants of the program; 0: none
    table_row: float = NEVER  # elements next to each other: sums over several axes go through tables from here on
    table_taps: int = 9  # terms of a sum: through tables up to here; more lookups are slower than regions
    table_taps_an_element: int = 4  # taps per input element: the same for sums with strides
    table_phases: int = 8  # phases along an axis: transposed sums over one axis go through tables beyond
    # NOTES: Cotangents of maxima
    route_row: float = NEVER  # elements next to each other: where windows meet, cotangents go through tables from here
    route_windows: int = 8  # windows that cover an element: one loop over several axes up to here, else one for each
    route_windows_without_strides: int = 9  # windows that cover an element: the same where strides are 1
    route_windows_of_axis: int = 11  # windows that cover an element: through tables up to here, else by steps
    separate_taps: int = 8  # taps of windows that do not meet: phase by phase as fast as through tables up to here
    # NOTES: Reductions that lose NaN
    loses_nan: bool = False  # a maximum over whole axes may lose a NaN, by its shape (jax 0.10 to 0.12): look for it
    folded_elements: float = NEVER  # elements: from here on stretches of an axis are joined before it is reduced
    reduced_as_floats: float = NEVER  # elements of an output: from here on float32 sums, counts and ranks small arrays
    folded_ways: int = 8  # stretches joined in one pass: 16 take half as long again
    folded_whole: int = 16  # elements along an axis: joined whole up to here; half as many of 16 bits
    folded_row: int = 32  # bits next to each other: of shorter stretches the pass does not vectorise
    folded_tied_row: int = 256  # bits next to each other: the same where ties are counted or the first is found
    # NOTES: Subnormal numbers
    scan_block: float = NEVER  # elements: running extremes go by blocks, of the reach of passes once it is so far
    subnormals_are_zero: bool = False  # comparisons take subnormal floats for zeros: compare integers of their order
    # NOTES: Soft pools: plain sums within a range
    looped_elements: float = NEVER  # elements: loops over taps take a larger batch in parts, to hold less
    # NOTES: Blurs
    reflected_apart: bool = False  # a cotangent over the mirrored border is stored before that is folded back
    # NOTES: Boxes and segments
    ordered_scatters: bool = False  # a scatter writes one row after another: sums have the same bits on every run
    stored_shares: bool = False  # shares of segments are stored, and a row of zeros, before rows gather them
    scattered_rows: int = 16  # rows per segment: from here on a scatter sends cotangents, else rows look up the chosen
    ties_tested: bool = False  # ties of segments are counted in a branch, taken only where there is one
    box_pixels: bool = False  # a cell of few points reads their pixels; else two matrix products with the whole image
    joined_bytes: int = 0  # bytes of all levels per box: up to here they are made one array, else a loop reads boxes
    cast_to_compare: bool = False  # bfloat16 is cast to compare it with what is gathered: its bits take more operations
    boxes_of_a_walk: int = 128  # boxes: so many are read in one loop; on CPU what a cache holds
    tile_rows: float = NEVER  # rows of an image: one loop sends cotangents to so many; all where nothing was measured
    tile_columns: float = NEVER  # columns of an image: one loop sends cotangents to so many

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
