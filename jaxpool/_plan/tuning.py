"""Thresholds that choose between implementations, one field per threshold, each with a comment "Unit: reason".

A "NOTES" comment names the heading in `bench/NOTES.md` that has the measurements of the next fields. To measure another
value, edit the field and run `python -m bench --against HEAD`. "Window elements" counts the elements of a whole window,
"window length" the elements along one axis. "Strides" is the product of the strides of all axes.
"""

import dataclasses
import math

NEVER = math.inf


# fmt: off
@dataclasses.dataclass(frozen=True)
class Limits:
    """Thresholds for all platforms: the choice of arrays saved for the backward pass, and the length of programs."""

    # NOTES: Program length
    # Window elements: up to this many, rank pools are unrolled, and split ties save one bit per element.
    max_mask_taps: int = 64
    max_sliding_taps: int = 16  # Window elements: a larger window over all of its axes is computed as a reduction.
    max_adaptive_taps: int = 64  # Window length: longer windows of adaptive pools are reduced as blocks, not unrolled.
    # Windows per element of an adaptive pool: up to this many are gathered one by one, more as a block.
    max_gathered_windows: int = 16
    # Table entries: a longer table of positions is computed by the program instead of stored as a constant.
    max_constant_entries: int = 1 << 17
    # Kernel elements: grey morphology with a larger kernel is a loop, which compiles faster than one expression.
    max_unrolled_kernel_taps: int = 25
    taps_per_loop_step: int = 16  # Window elements: one loop iteration handles this many, to write the result rarely.
    weighted_taps_per_loop_step: int = 8  # Window elements: one loop iteration handles this many if each has a weight.
    # Window length: a fold combines up to this many elements in order, more by halves.
    max_sequential_fold_taps: int = 6
    # NOTES: Boxes and segments
    # Sampling points along an axis of an RoI cell: up to this many are gathered; n points take 4 n^2 gathers.
    max_gathered_samples: int = 4
    max_points_in_memory: int = 1 << 20  # Elements: RoI pools process boxes in groups of at most this many values.
    partial_sum_rows: int = 128  # Rows: float32 segment sums add partial sums of this many rows, where that is cheap.
    min_rows_per_partial_sum: int = 16  # Rows: partial sums of fewer rows of a segment would cost time and memory.
    min_long_segment_rows: int = 2048  # Rows: longer segments have partial sums, even if their rows are scattered in x.
    # Rows: to find long segments, the segment id of one out of this many rows is counted.
    rows_per_sampled_id: int = 64
    boxes_per_matmul: int = 16  # Boxes: an RoI pool has this many per matrix product, enough rows with few empty slots.


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Thresholds of one platform. The defaults are the portable implementation, without compiler workarounds."""

    # NOTES: Large windows
    # Window elements: up to this many, a maximum is one pass, which reads memory less often than one pass per axis.
    max_one_pass_taps: int = 16
    max_overlapping_taps: int = 9  # Window elements: up to this many, overlapping maxima take one forward pass.
    overlapping_taps_per_element: int = 4  # Window elements / strides: overlapping maxima are one pass up to this.
    pieces_per_step: int = 8  # Pieces of a window: a step of a maximum combines this many; more need fewer steps.
    max_pass_taps: int = 32  # Window elements: one pass of a maximum reads at most this many, to limit compile time.
    # NOTES: Sums in one pass
    max_sum_taps: int = 49  # Window elements: one pass that sums windows over two axes vectorises up to this many.
    sum_taps_per_element: int = 9  # Window elements / strides: a window sum is one pass up to this, else one per axis.
    # Window elements / strides: a transposed strided sum is one pass up to this.
    transposed_sum_taps_per_element: int = 13
    short_window_taps: int = 4  # Window length: a sum over two axes is one pass up to this length, for any strides.
    # Window length: a transposed strided sum of 8- or 16-bit floats is one pass up to this length.
    low_precision_transposed_taps: int = 3
    max_sum_window: int = 32  # Window length: longer windows take two passes, which sum parts and then these sums.
    # NOTES: Blurs
    max_blur_taps: int = 25  # Window elements: a blur is one pass over several axes up to this many, else one per axis.
    blur_taps_per_element: int = 3  # Window elements / strides: a strided blur on several axes is one pass up to this.
    # NOTES: Compiled for GPUs and TPUs
    max_sum_passes: float = NEVER  # Passes: a window sum that needs more passes is `lax.reduce_window` instead.
    reduce_window_sum_taps: float = NEVER  # Window elements: one `lax.reduce_window` sums up to this many, not several.
    scan_radix: int = 2  # Elements: a pass of a running maximum combines this many; more mean fewer, longer passes.
    uses_reduce_window: bool = False  # A maximum without an index is computed by `lax.reduce_window`.
    reduce_window_max_taps: int = 25  # Window elements: one `lax.reduce_window` takes a maximum of up to this many.
    max_scatter_window: int = 0  # Window length: up to this, a maximum saves x and its gradient is select-and-scatter.
    small_scatter_taps: int = 4  # Window elements: one select-and-scatter up to this many needs no more comparisons.
    scatter_taps_per_element: int = 2  # Window elements / strides: one select-and-scatter pools all axes up to this.
    # Bytes of x: one select-and-scatter pools all axes of a larger x, because two such arrays fill fast memory.
    max_split_scatter_bytes: float = 52 << 20
    max_fused_scatter_taps: int = 16  # Window elements: larger windows have one select-and-scatter per axis.
    max_disjoint_scatter_taps: int = 49  # Window elements: one select-and-scatter pools disjoint windows up to this.
    # Window elements / strides: if the batch fills sublanes, one select-and-scatter pools all axes up to this.
    strided_element_taps: int = 4
    max_strided_taps: int = 25  # Window elements: larger strided windows have a select-and-scatter per axis.
    num_sublanes: int = 8  # Examples: a batch of at least this size fills the sublanes of a 32-bit TPU register.
    num_lanes: int = 128  # Elements: TPU memory pads the last axis of an array to a multiple of this.
    min_compaction: int = 4  # Factor: x is transposed before select-and-scatter if memory shrinks by more than this.
    # NOTES: Ranks
    # Window elements: a sorting network ranks up to this many; a loop that counts smaller keys ranks more.
    max_sorting_network_taps: int = 64
    min_tap_loop_row: int = 0  # Contiguous elements: loops over window offsets merge shorter rows with an axis.
    # NOTES: The k largest
    # Selected elements: up to this many receive cotangents by comparing positions, more by a scatter.
    max_compared_positions: int = 64
    top_k_all_gathers: bool = False  # XLA all-gathers a batch that is partitioned over devices for `lax.top_k`.
    # NOTES: Compiled for GPUs and TPUs
    # NOTES: Soft pools: plain sums within a range
    # A loop of at most one iteration updates an array in place; `lax.cond` copies it.
    uses_loop_as_branch: bool = False

    # Only the CPU platform changes the defaults below.
    # NOTES: Value and index
    # A maximum finds NaN separately from the largest number, which halves the latency of each term.
    finds_nan_separately: bool = False
    # NOTES: What keeps a result apart
    drops_barriers: bool = False  # XLA removes optimization barriers before fusion, so non-inlined calls store results.
    # NOTES: Regions
    # Terms of a pass are padded one by one; extra positions are cropped after interleaving.
    pads_each_term: bool = False
    # Cotangents of 8 and 16 bits are cast to float32 in a pass of their own, before they are added.
    widens_in_own_pass: bool = False
    min_region_bytes: float = NEVER  # Bytes: a maximum over a larger array has several regions, not a padded copy.
    min_sum_region_bytes: float = NEVER  # Bytes: a sum over a larger array has separate regions at the ends of axes.
    # Percent: a maximum has several regions if more than this share of its windows is inside the array.
    min_complete_percent: int = 50
    # Positions at an end of an axis: a region of more positions reads a padded copy, of fewer tests bounds.
    bounds_checked_positions: int = 8
    bounds_checked_taps: float = NEVER  # Window length: loops with bound tests on one axis vectorise up to this.
    bounds_checked_terms: int = 0  # Terms of a maximum: one loop over several axes tests array bounds up to this many.
    min_vector_elements: float = 0  # Contiguous elements: over shorter rows, loops that pad each term do not vectorise.
    # NOTES: Channels first
    # Stride along the last axis: overlapping maxima with strides from 2 up to this read and write strided slices.
    max_split_stride: int = 1
    # Positions: strided slices of a result have a multiple of this, or the rest of each row would be a scalar loop.
    split_multiple: int = 1
    # NOTES: Tables
    # Positions along an axis: tables up to this length are program constants; 0 disables gathers through tables.
    max_table_positions: float = 0
    min_table_row: float = NEVER  # Contiguous elements: sums over several axes use tables for rows this long.
    max_table_terms: int = 9  # Terms of a sum: with more terms, gathers through tables are slower than slices.
    table_taps_per_element: int = 4  # Window elements / strides: strided sums gather through tables up to this.
    max_untabled_phases: int = 8  # Phases (the stride): transposed sums over one axis with more gather through tables.
    # NOTES: Cotangents of maxima
    # Contiguous elements: gradients of overlapping maxima gather rows of at least this length through tables.
    min_route_table_row: float = NEVER
    # Windows that cover an element: up to this many, one loop over several axes adds the cotangents of a maximum.
    max_route_windows: int = 8
    max_unstrided_route_windows: int = 9  # Windows that cover an element: as `max_route_windows`, for strides of 1.
    max_route_table_windows: int = 11  # Windows that cover an element: gradients of maxima use tables up to this many.
    max_disjoint_phase_taps: int = 8  # Window elements: gradients of disjoint windows need no tables up to this many.
    # NOTES: Reductions that lose NaN
    loses_nan: bool = False  # XLA may lose a NaN in a maximum over whole axes, for some shapes (jax 0.10 to 0.12).
    min_folded_elements: float = NEVER  # Elements: in a larger array, chunks of an axis are combined before reductions.
    # Elements per output: reductions of small arrays compute sums, counts and ranks in float32 from this many on.
    min_float_reduction_size: float = NEVER
    chunks_per_fold: int = 8  # Chunks of an axis: combined in one pass before a reduction; 16 take 1.5 times as long.
    # Elements along an axis: up to this many are all combined before a reduction; half as many for 16 bits.
    max_fully_folded_size: int = 16
    min_folded_row_bits: int = 32  # Contiguous bits: combining chunks of an axis does not vectorise over shorter rows.
    min_tie_row_bits: int = 256  # Contiguous bits: as `min_folded_row_bits`, for tie counts and indices.
    # NOTES: Subnormal numbers
    min_scan_block_size: float = NEVER  # Elements: a running maximum works in blocks of about this length.
    subnormals_are_zero: bool = False  # Comparisons flush subnormal floats to zero, so floats are compared as integers.
    # NOTES: Soft pools: plain sums within a range
    max_chunk_elements: float = NEVER  # Elements: soft pools split a larger batch into chunks, to save memory.
    # NOTES: Blurs
    # The cotangent of a reflection-padded array is stored before its border is added to the interior.
    stores_reflected_cotangent: bool = False
    # NOTES: Boxes and segments
    has_ordered_scatters: bool = False  # A scatter adds rows in a fixed order, so that float sums are deterministic.
    stores_segment_shares: bool = False  # Cotangents of segments and a row of zeros are stored before rows gather them.
    # Rows per segment: from this many on, a scatter sends cotangents to rows; otherwise rows compare indices.
    min_scattered_rows: int = 16
    branches_on_ties: bool = False  # Ties within segments are counted in a branch that runs only if there is a tie.
    # RoI cells with few sampling points gather pixels, instead of two matrix products with the image.
    gathers_box_pixels: bool = False
    # Bytes of all pyramid levels per box: up to this, levels are concatenated; otherwise boxes read one level.
    max_concatenated_bytes: int = 0
    casts_before_compare: bool = False  # bfloat16 is cast to float32 before comparing segment rows: fewer operations.
    boxes_per_loop: int = 128  # Boxes: one loop of an RoI max pool reads this many; on CPU their data fit the cache.
    tile_rows: float = NEVER  # Image rows: one loop of an RoI max pool adds cotangents to this many; NEVER is all rows.
    tile_columns: float = NEVER  # Image columns: one loop of an RoI max pool adds cotangents to this many.

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
    max_split_stride=3,
    split_multiple=8,
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
    """The thresholds of `platform`: "cpu", "gpu", "tpu" or "portable"."""
    return TUNING[platform]
