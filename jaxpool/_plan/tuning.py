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
    max_mask_taps: int = 64  # Window elements: up to this, rank pools are unrolled, and split ties save a bit each.
    max_sliding_taps: int = 16  # Window elements: a larger window over all of its axes is computed as a reduction.
    max_adaptive_taps: int = 64  # Window length: longer windows of adaptive pools are reduced as blocks, not unrolled.
    max_gathered_windows: int = 16  # Windows per element: adaptive pools gather up to this many, more as a block.
    max_constant_entries: int = 1 << 17  # Table entries: the program computes longer tables of positions.
    max_unrolled_morphology_taps: int = 25  # Kernel elements: grey morphology is a loop above this, to compile faster.
    taps_per_loop_step: int = 16  # Window elements: one loop iteration handles this many, to write the result rarely.
    weighted_taps_per_loop_step: int = 8  # Window elements: one loop iteration handles this many if each has a weight.
    max_sequential_fold_taps: int = 6  # Window length: a fold combines up to this many in order, more by halves.
    # NOTES: Boxes and segments
    max_gathered_samples: int = 4  # Points per axis of an RoI cell: up to this are gathered; n take 4 n^2 gathers.
    max_points_in_memory: int = 1 << 20  # Elements: RoI pools process boxes in groups of at most this many values.
    partial_sum_rows: int = 128  # Rows: float32 segment sums add partial sums of this many rows, where that is cheap.
    min_rows_per_partial_sum: int = 16  # Rows: partial sums of fewer rows of a segment would cost time and memory.
    min_long_segment_rows: int = 2048  # Rows: longer segments have partial sums, even if their rows are scattered in x.
    rows_per_sampled_id: int = 64  # Rows: to find long segments, one segment id per this many rows is counted.
    max_cells_per_step: int = 2  # Cells per axis: a loop adds this many to a pixel per step; few boxes need more.
    boxes_per_matmul: int = 16  # Boxes: an RoI pool has this many per matrix product, enough rows with few empty slots.


@dataclasses.dataclass(frozen=True)
class Tuning:
    """Thresholds of one platform. The defaults are the portable implementation, without compiler workarounds."""

    # NOTES: Large windows
    max_one_pass_taps: int = 16  # Window elements: up to this, a maximum is one pass, which reads less than several.
    max_overlapping_taps: int = 9  # Window elements: up to this many, overlapping maxima take one forward pass.
    one_pass_taps_per_element: int = 4  # Window elements / strides: a maximum takes one pass up to this.
    pieces_per_step: int = 8  # Pieces of a window: a step of a maximum combines this many; more need fewer steps.
    max_pass_taps: int = 32  # Window elements: one pass of a maximum reads at most this many, to limit compile time.
    # NOTES: Sums in one pass
    max_sum_taps: int = 49  # Window elements: one pass that sums windows over two axes vectorises up to this many.
    sum_taps_per_element: int = 9  # Window elements / strides: a window sum is one pass up to this, else one per axis.
    transposed_sum_taps_per_element: int = 13  # Window elements / strides: one pass of a transposed strided sum.
    short_window_taps: int = 4  # Window length: a sum over two axes is one pass up to this length, for any strides.
    low_precision_transposed_taps: int = 3  # Window length: one pass of a transposed strided 8- or 16-bit sum.
    max_sum_window: int = 32  # Window length: longer windows take two passes, which sum parts and then these sums.
    # NOTES: Blurs
    max_blur_taps: int = 25  # Window elements: a blur is one pass over several axes up to this many, else one per axis.
    blur_taps_per_element: int = 3  # Window elements / strides: a strided blur on several axes is one pass up to this.
    # NOTES: GPUs and TPUs
    max_sum_passes: float = NEVER  # Passes: a window sum that needs more passes is `lax.reduce_window` instead.
    reduce_window_sum_taps: float = NEVER  # Window elements: one `lax.reduce_window` sums up to this many, not several.
    clamps_reads: bool = False  # Passes gather at clamped positions: a pad is a branch per term, without vector loads.
    compares_16_bit_floats: bool = False  # Passes of a maximum compare 16-bit floats without a cast to float32.
    scan_radix: int = 2  # Elements: a pass of a running maximum combines this many; more mean fewer, longer passes.
    reduces_before_scan: bool = False  # A running maximum reads x twice, and stores no scanned blocks.
    max_compared_taps: int = 0  # Window elements: up to this, local maxima are one pass that compares with the centre.
    uses_reduce_window: bool = False  # A maximum without an index is computed by `lax.reduce_window`.
    reduce_window_max_taps: int = 25  # Window elements: one `lax.reduce_window` takes a maximum of up to this many.
    max_scatter_window: int = 0  # Window length: up to this, a maximum saves x and its gradient is select-and-scatter.
    scatter_taps_per_element: int = 3  # Window elements / strides: one select-and-scatter pools all axes up to this.
    max_fused_scatter_taps: int = 49  # Window elements: larger windows have one select-and-scatter per axis.
    num_lanes: int = 128  # Elements: TPU memory pads the last axis of an array to a multiple of this.
    min_compaction: int = 4  # Factor: x is transposed before select-and-scatter if memory shrinks by more than this.
    # NOTES: Ranks
    max_sorting_network_taps: int = 64  # Window elements: a sorting network ranks up to this many, a loop counts more.
    min_tap_loop_row: int = 0  # Contiguous elements: loops over window offsets merge shorter rows with an axis.
    # NOTES: The k largest
    max_compared_positions: int = 64  # Selected elements: more get their cotangents by a scatter, not comparisons.
    top_k_all_gathers: bool = False  # XLA all-gathers a batch that is partitioned over devices for `lax.top_k`.
    # NOTES: GPUs and TPUs
    # NOTES: Soft pools: plain sums within a range
    uses_loop_as_branch: bool = False  # A loop of at most one step updates arrays in place; `lax.cond` copies them.

    flattens_scatters: bool = False  # A scatter that needs all other axes as batch axes would transpose its arrays.
    max_scaled_taps: int = 0  # Window elements: soft pools up to this are always scaled, in unrolled loops.

    # Only the CPU platform changes the defaults below.
    # NOTES: Value and index
    finds_nan_separately: bool = False  # A maximum finds NaN apart from the largest number, for half the latency.
    # NOTES: What keeps a result apart
    drops_barriers: bool = False  # XLA removes optimization barriers before fusion, so non-inlined calls store results.
    # NOTES: Regions
    pads_each_term: bool = False  # Terms of a pass are padded one by one, and extra positions are cropped at the end.
    widens_in_own_pass: bool = False  # 8- and 16-bit cotangents are cast to float32 in a pass before the addition.
    min_region_bytes: float = NEVER  # Bytes: maxima and blurs of larger arrays have several regions, not a padded copy.
    min_sum_region_bytes: float = NEVER  # Bytes: a sum over a larger array has separate regions at the ends of axes.
    min_complete_percent: int = 50  # Percent: a maximum has several regions if more windows are inside x.
    bounds_checked_positions: int = 8  # Positions at an end of an axis: more read a padded copy, fewer test bounds.
    bounds_checked_taps: float = NEVER  # Window length: loops with bound tests on one axis vectorise up to this.
    bounds_checked_terms: int = 0  # Terms of a pass: up to this many, maxima test bounds, and blurs have regions.
    min_vector_elements: float = 0  # Contiguous elements: over shorter rows, loops that pad each term do not vectorise.
    # NOTES: Channels first
    max_deinterleaved_stride: int = 1  # Stride of short rows: maxima from 2 up to this store strided slices first.
    # NOTES: Tables
    max_table_positions: float = 0  # Positions along an axis: gathers use tables up to this length; 0 for no tables.
    min_table_row: float = NEVER  # Contiguous elements: sums over several axes use tables for rows this long.
    max_table_terms: int = 9  # Terms of a sum: with more terms, gathers through tables are slower than slices.
    table_taps_per_element: int = 4  # Window elements / strides: strided sums gather through tables up to this.
    max_untabled_phases: int = 8  # Phases (the stride): transposed sums over one axis with more gather through tables.
    # NOTES: Cotangents of maxima
    min_route_table_row: float = NEVER  # Contiguous elements: gradients of overlapping maxima gather rows this long.
    max_route_windows: int = 8  # Windows that cover an element: one loop adds cotangents of a maximum up to this many.
    max_unstrided_route_windows: int = 9  # Windows that cover an element: as `max_route_windows`, for strides of 1.
    max_route_table_windows: int = 11  # Windows that cover an element: gradients of maxima use tables up to this many.
    max_disjoint_phase_taps: int = 8  # Window elements: gradients of disjoint windows need no tables up to this many.
    # NOTES: Windows that tile an array
    min_tile_taps: float = NEVER  # Window elements: maxima over windows that tile the array are reductions from here.
    min_16_bit_tile_row: int = 32  # Contiguous elements: passes are faster over shorter rows of 16-bit floats.
    # NOTES: Reductions that lose NaN
    loses_nan: bool = False  # XLA may lose a NaN in a maximum over whole axes, for some shapes (jax 0.10 to 0.12).
    min_folded_elements: float = NEVER  # Elements: in a larger array, chunks of an axis are combined before reductions.
    min_float_reduction_size: float = NEVER  # Elements per output: small arrays reduce in float32 from this on.
    chunks_per_fold: int = 8  # Chunks of an axis: combined in one pass before a reduction; 16 take 1.5 times as long.
    max_fully_folded_size: int = 16  # Elements along an axis: up to this many are all combined.
    min_folded_row_bits: int = 128  # Contiguous bits: chunks of shorter rows are slow to combine; twice for ties.
    # NOTES: Subnormal numbers
    min_scan_block_size: float = NEVER  # Elements: a running maximum works in blocks of about this length.
    subnormals_are_zero: bool = False  # Comparisons flush subnormal floats to zero, so floats are compared as integers.
    # NOTES: Soft pools: plain sums within a range
    max_chunk_elements: float = NEVER  # Elements: soft pools split a larger batch into chunks, to save memory.
    # NOTES: Blurs
    stores_reflected_cotangent: bool = False  # Cotangents of reflected padding are stored before they are added.
    # NOTES: Boxes and segments
    has_ordered_scatters: bool = False  # A scatter visits rows in a fixed order, so that float sums are deterministic.
    stores_segment_shares: bool = False  # Cotangents of segments and a row of zeros are stored before rows gather them.
    min_scattered_rows: int = 16  # Rows per segment: from this on cotangents are scattered, else rows compare.
    branches_on_ties: bool = False  # Ties within segments are counted in a branch that runs only if there is a tie.
    gathers_box_pixels: bool = False  # RoI cells with few points gather pixels, instead of two matrix products.
    max_concatenated_bytes: float = 0  # Bytes of all pyramid levels per box: up to this, levels are concatenated.
    max_box_product_elements: int = 0  # Operand elements: up to this, one product has the cotangents of all RoI boxes.
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
    max_deinterleaved_stride=3,
    max_table_positions=1 << 14,
    max_compared_positions=4,
    top_k_all_gathers=True,
    min_table_row=12,
    min_route_table_row=12,
    min_tile_taps=16,
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
    clamps_reads=True,
    compares_16_bit_floats=True,
    max_one_pass_taps=9,
    max_overlapping_taps=9,
    max_compared_taps=25,
    sum_taps_per_element=4,
    short_window_taps=2,
    max_sum_window=8,
    max_sum_passes=2,
    reduce_window_sum_taps=0,
    scan_radix=8,
    min_scan_block_size=8,
    reduces_before_scan=True,
    uses_loop_as_branch=True,
    flattens_scatters=True,
    max_scaled_taps=16,
    gathers_box_pixels=True,
    max_concatenated_bytes=NEVER,
    max_box_product_elements=1 << 26,
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
