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
    max_mask_taps: int = 64  # Taps of a window: up to here, ranks are unrolled and split ties save one bit per tap.
    # Taps of a window: a larger window that covers its axes is a reduction, not a sliding window.
    max_sliding_taps: int = 16
    max_adaptive_taps: int = 64  # Taps along an axis: longer adaptive windows are reduced as blocks.
    # Windows per element of an adaptive pool: read one by one up to here, else as a block.
    max_gathered_windows: int = 16
    # Entries: the program computes a longer table of positions, instead of storing it.
    max_constant_entries: int = 1 << 17
    # Taps of a kernel: added in one expression up to here, else in a loop over the taps.
    max_unrolled_kernel_taps: int = 25
    taps_per_loop_step: int = 16  # Taps: joined per loop iteration, which reads and writes the result once.
    weighted_taps_per_loop_step: int = 8  # Taps: joined per loop iteration if each has a weight.
    max_sequential_fold_taps: int = 6  # Taps along an axis: a fold joins them one by one up to here, else by halves.
    # NOTES: Boxes and segments
    # Points along an axis of a cell: gathered up to here, with 4 n^2 gathers for n points.
    max_gathered_samples: int = 4
    max_points_in_memory: int = 1 << 20  # Elements: bounds the points in memory at a time, if they are not gathered.
    partial_sum_rows: int = 128  # Rows: float32 segment sums add partial sums of this many rows if that is cheap.
    min_rows_per_partial_sum: int = 16  # Rows per partial sum: fewer rows per partial sum would take time and memory.
    min_long_segment_rows: int = 2048  # Rows: a longer segment has partial sums, even if its rows are scattered over x.
    rows_per_sampled_id: int = 64  # Rows: one id out of this many is counted to find long segments.
    boxes_per_matmul: int = 16  # Boxes: enough rows for a matrix product, with few empty slots.


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The thresholds of one platform. The defaults are the portable form, without workarounds for a compiler."""

    # NOTES: Large windows
    # Taps of a window: one pass up to here, which reads memory fewer times than a pass per axis.
    max_one_pass_taps: int = 16
    max_overlapping_taps: int = 9  # Taps of a window: one forward pass up to here for overlapping windows.
    overlapping_taps_per_element: int = 4  # Taps per input element: the same limit for windows with strides.
    pieces_per_step: int = 8  # Pieces joined by a step along an axis of overlapping windows: more are fewer passes.
    max_pass_taps: int = 32  # Taps of one pass: the size and the compile time of the program grow with them.
    # NOTES: Sums in one pass
    max_sum_taps: int = 49  # Taps of a window: one pass over two axes vectorises up to here.
    sum_taps_per_element: int = 9  # Taps per input element: one pass up to here; beyond, a pass per axis adds less.
    # Taps per output element: one pass up to here for transposed sums with strides.
    transposed_sum_taps_per_element: int = 13
    short_window_taps: int = 4  # Taps along an axis: one pass over two axes up to here, for any strides.
    # Taps along an axis: one pass up to here for strided transposes of narrow floats.
    low_precision_transposed_taps: int = 3
    max_sum_window: int = 32  # Taps along an axis: two passes beyond, which add sums of parts.
    # NOTES: Blurs
    max_blur_taps: int = 25  # Taps of a window: one pass over several axes up to here, else one pass per axis.
    blur_taps_per_element: int = 3  # Taps per input element: one pass over several axes up to here, with strides.
    # NOTES: Compiled for GPUs and TPUs
    max_sum_passes: float = NEVER  # Passes of a sum: a sum of more passes is `lax.reduce_window` instead.
    reduce_window_sum_taps: float = NEVER  # Taps of a sum: one `lax.reduce_window` up to here, else one per axis.
    scan_radix: int = 2  # Stretches joined per pass of a running maximum: more are fewer passes with more terms.
    uses_reduce_window: bool = False  # A maximum without an index is `lax.reduce_window`.
    reduce_window_max_taps: int = 25  # Taps of a window: one such reduction up to here, else one per axis.
    max_scatter_window: int = 0  # Taps along an axis: up to here a maximum saves x for select-and-scatter.
    # Whether one select-and-scatter instruction takes all axes. Otherwise there is one instruction per axis.
    small_scatter_taps: int = 4  # Taps of a window: one instruction up to here, which needs no more comparisons.
    scatter_taps_per_element: int = 2  # Taps per input element: one instruction up to here too.
    # Bytes of x in memory: one instruction beyond, as two such x fill fast memory.
    max_split_scatter_bytes: float = 52 << 20
    max_fused_scatter_taps: int = 16  # Taps of a window: never one instruction beyond, as comparisons are unrolled.
    max_disjoint_scatter_taps: int = 49  # Taps of a window: one instruction up to here for disjoint windows.
    # Taps per input element: one instruction up to here, if a strided batch fills sublanes.
    strided_element_taps: int = 4
    max_strided_taps: int = 25  # Taps of a window: never one instruction beyond, with such strides.
    max_or_joined_taps: int = 9  # Taps of one instruction: an "or" joins its two comparisons up to here, else a select.
    num_sublanes: int = 8  # Sublanes of a TPU register of 32-bit elements: a batch of at least this size fills them.
    num_lanes: int = 128  # Elements: the last axis of an array is padded to a multiple of this in memory.
    min_compaction: int = 4  # Factor: x is transposed first if that reduces its memory more than this many times.

    # NOTES: Ranks
    # Taps of a window: ranked by comparators up to here, else counted in a loop over the taps.
    max_sorting_network_taps: int = 64
    min_tap_loop_row: int = 0  # Contiguous elements: shorter rows are merged with the pooled axis for such a loop.

    # NOTES: The k largest
    # Positions: elements are compared with so many, else a scatter writes the cotangents.
    max_compared_positions: int = 64

    top_k_all_gathers: bool = False  # XLA gathers a partitioned batch for `lax.top_k`.

    # NOTES: Compiled for GPUs and TPUs
    # NOTES: Soft pools: plain sums within a range
    uses_loop_as_branch: bool = False  # A loop of at most one iteration changes y in place; a branch would copy y.

    # The fields below are for XLA for CPU only.
    # NOTES: Value and index
    # NaN is found separately from the best number, which halves the latency of a term.
    finds_nan_separately: bool = False
    # NOTES: What keeps a result apart
    drops_barriers: bool = False  # XLA removes optimization barriers before fusion, so calls store results.
    # NOTES: Regions
    pads_each_term: bool = False  # Terms are padded one by one, and extra phases are cropped after interleaving.
    # Cotangents of 8 and 16 bits are widened in a pass before the sums, not in each term.
    widens_in_own_pass: bool = False
    min_region_bytes: float = NEVER  # Bytes that a maximum reads: from here on a padded copy costs more than regions.
    min_sum_region_bytes: float = NEVER  # Bytes that a sum reads: from here on a padded copy costs more than regions.
    # Percent of positions: a maximum is cut if more than so many have all their elements.
    min_complete_percent: int = 50
    # Positions at an end of one axis: more are read from a padded copy, fewer test bounds.
    bounds_checked_positions: int = 8
    # Taps along one axis: a loop that tests the bounds of up to so many still vectorises.
    bounds_checked_taps: float = NEVER
    bounds_checked_terms: int = 0  # Terms of a maximum along several axes: one loop tests the bounds of up to so many.
    min_vector_elements: float = 0  # Contiguous elements: with fewer, loops that pad term by term do not vectorise.
    # NOTES: Tables
    # Positions along an axis: up to here tables are program constants; 0 disables tables.
    max_table_positions: float = 0
    min_table_row: float = NEVER  # Contiguous elements: sums over several axes use tables from here on.
    max_table_terms: int = 9  # Terms of a sum: tables up to here; more gathers are slower than regions.
    table_taps_per_element: int = 4  # Taps per input element: tables up to here for sums with strides.
    max_untabled_phases: int = 8  # Phases along an axis: transposed sums over one axis use tables beyond.
    # NOTES: Cotangents of maxima
    # Contiguous elements: cotangents of overlapping windows use tables from here on.
    min_route_table_row: float = NEVER
    # Windows that cover an element: one loop over several axes up to here, else one per axis.
    max_route_windows: int = 8
    max_unstrided_route_windows: int = 9  # Windows that cover an element: the same limit for strides of 1.
    max_route_table_windows: int = 11  # Windows that cover an element: tables up to here, else steps.
    max_disjoint_phase_taps: int = 8  # Taps of disjoint windows: up to here, phases are as fast as tables.
    # NOTES: Reductions that lose NaN
    loses_nan: bool = False  # A maximum over whole axes may lose a NaN, by its shape (jax 0.10 to 0.12).
    min_folded_elements: float = NEVER  # Elements: from here on stretches of an axis are joined before it is reduced.
    # Elements per output: float32 sums, counts and ranks of small arrays beyond.
    min_float_reduction_size: float = NEVER
    chunks_per_fold: int = 8  # Stretches joined in one pass: 16 take half as long again.
    # Elements along an axis: joined completely up to here; the limit is half for 16 bits.
    max_fully_folded_size: int = 16
    min_folded_row_bits: int = 32  # Bits next to each other: over shorter rows the pass does not vectorise.
    min_tie_row_bits: int = 256  # Bits next to each other: the same limit for tie counts and indices.
    # NOTES: Subnormal numbers
    min_scan_block_size: float = NEVER  # Elements: passes of a running maximum over longer distances work on blocks.
    subnormals_are_zero: bool = False  # Comparisons flush subnormals to zero, so integers are compared.
    # NOTES: Soft pools: plain sums within a range
    max_chunk_elements: float = NEVER  # Elements: loops over taps split a larger batch into chunks to save memory.
    # NOTES: Blurs
    # The cotangent with its mirrored border is stored before the border is folded back.
    stores_reflected_cotangent: bool = False
    # NOTES: Boxes and segments
    has_ordered_scatters: bool = False  # A scatter writes one row after another, so sums are deterministic.
    stores_segment_shares: bool = False  # Shares of segments, and a row of zeros, are stored before rows gather them.
    # Rows per segment: a scatter sends cotangents from here on, else rows compare numbers.
    min_scattered_rows: int = 16
    branches_on_ties: bool = False  # Ties of segments are counted in a branch that runs only if there are any.
    # Cells of few points gather their pixels, instead of two matrix products with the image.
    gathers_box_pixels: bool = False
    # Bytes of all levels per box: levels are concatenated up to here, else read box by box.
    max_concatenated_bytes: int = 0
    casts_before_compare: bool = False  # bfloat16 is cast to be compared with gathered elements: fewer operations.
    boxes_per_loop: int = 128  # Boxes: read per loop; on CPU their data fit the cache.
    tile_rows: float = NEVER  # Rows of an image: one loop sends cotangents to so many; all rows where not measured.
    tile_columns: float = NEVER  # Columns of an image: one loop sends cotangents to so many.

# fmt: on


LIMITS = Limits()
PORTABLE = Tuning()
CPU = Tuning(
    finds_nan_separately=True,
    drops_barriers=True,
    pads_each_term=True,
    widens_in_own_pass=True,
    min_region_bytes=1 << 18,
    min_sum_region_bytes=1 << 11,
    bounds_checked_taps=9,
    bounds_checked_terms=9,
    min_vector_elements=16,
    max_table_positions=1 << 14,
    max_compared_positions=4,
    top_k_all_gathers=True,
    min_table_row=12,
    min_route_table_row=12,
    loses_nan=True,
    min_float_reduction_size=16,
    min_folded_elements=1 << 15,
    scan_radix=5,
    min_scan_block_size=25,
    subnormals_are_zero=True,
    max_blur_taps=1,
    max_sorting_network_taps=128,
    min_tap_loop_row=32,
    max_chunk_elements=1 << 18,
    uses_loop_as_branch=True,
    stores_reflected_cotangent=True,
    has_ordered_scatters=True,
    stores_segment_shares=True,
    branches_on_ties=True,
    gathers_box_pixels=True,
    max_concatenated_bytes=1 << 17,
    casts_before_compare=True,
    boxes_per_loop=8,
    tile_rows=8,
    tile_columns=16,
)
GPU = Tuning(
    max_one_pass_taps=27,
    max_overlapping_taps=27,
    pieces_per_step=64,
    max_pass_taps=64,
    sum_taps_per_element=49,
    transposed_sum_taps_per_element=49,
    low_precision_transposed_taps=7,
    max_sum_passes=1,
    scan_radix=16,
    uses_loop_as_branch=True,
)
TPU = Tuning(
    max_sum_passes=0,
    reduce_window_sum_taps=25,
    uses_reduce_window=True,
    max_scatter_window=32,
    uses_loop_as_branch=True,
)
TUNING = {"cpu": CPU, "gpu": GPU, "tpu": TPU, "portable": PORTABLE}


def tuning_of(platform: str) -> Tuning:
    """The thresholds of a platform."""
    return TUNING[platform]
