"""ONNX's tests of pooling nodes, evaluated by jaxpool, with the attributes of a node as arguments."""

import functools

import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node as nodes

import jaxpool

WINDOWED = {"MaxPool": "max_pool", "AveragePool": "avg_pool", "LpPool": "lp_pool"}
GLOBAL = {"GlobalMaxPool": jaxpool.global_max_pool, "GlobalAveragePool": jaxpool.global_avg_pool}
AUTO_PADDING = {"SAME_UPPER": "SAME", "SAME_LOWER": "SAME_LOWER", "VALID": "VALID"}


def run_windowed(op, attributes, outputs, x):
    window, axes = attributes["kernel_shape"], tuple(range(2, x.ndim))
    pads = attributes.get("pads", [0] * 2 * len(window))
    auto = attributes.get("auto_pad", b"NOTSET").decode()
    padding = AUTO_PADDING.get(auto) or list(
        zip(pads[: len(window)], pads[len(window) :], strict=True)
    )
    kwargs = {
        "window_dilation": attributes.get("dilations"),
        "ceil_mode": bool(attributes.get("ceil_mode", 0)),
        "axes": axes,
    }
    positional = (window, attributes.get("strides"), padding)
    if op == "LpPool":
        return [jaxpool.lp_pool(x, attributes.get("p", 2), *positional, **kwargs)]
    if op == "AveragePool":
        counted = bool(attributes.get("count_include_pad", 0))
        return [jaxpool.avg_pool(x, *positional, count_include_pad=counted, **kwargs)]
    if outputs == 1:
        return [jaxpool.max_pool(x, *positional, **kwargs)]
    y, indices = jaxpool.max_pool_with_argmax(x, *positional, **kwargs)
    return [
        y,
        positions_in_whole_array(np.asarray(indices), x.shape, attributes.get("storage_order", 0)),
    ]


def positions_in_whole_array(indices, shape, order):
    """Convert positions within the pooled axes to positions in the whole array, column-major if `order` is 1."""
    at = np.unravel_index(indices, shape[2:])
    spatial = np.ravel_multi_index(at, shape[2:], order="F" if order else "C")
    lanes = np.arange(np.prod(shape[:2])).reshape(*shape[:2], *[1] * len(at))
    return spatial + lanes * int(np.prod(shape[2:]))


def run_max_unpool(attributes, x, indices, *shape):
    """Unpool with ONNX's indices, which count in the smallest array that the windows fill. Pad to a larger shape."""
    window = attributes["kernel_shape"]
    strides = attributes.get("strides", [1] * len(window))
    least = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], strides, window, strict=True)]
    within = jnp.asarray(indices % np.prod(least), jnp.int32)
    y = jaxpool.max_unpool(x, within, tuple(least), axes=tuple(range(2, x.ndim)))
    wanted = (*x.shape[:2], *(shape[0][2:] if shape else least))
    return [np.pad(y, [(0, n - have) for n, have in zip(wanted, y.shape, strict=True)])]


def run_roi_align(attributes, x, rois, images):
    half = attributes.get("coordinate_transformation_mode", b"half_pixel") == b"half_pixel"
    y = jaxpool.roi_align(
        np.moveaxis(x, 1, -1),
        rois[:, [1, 0, 3, 2]],
        (attributes["output_height"], attributes["output_width"]),
        batch_indices=images,
        spatial_scale=attributes["spatial_scale"],
        samples=attributes["sampling_ratio"],
        aligned=half,
        kind=attributes.get("mode", b"avg").decode(),
    )
    return [jnp.moveaxis(y, -1, 1)]


def run(node, inputs):
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type in WINDOWED:
        return run_windowed(node.op_type, attributes, len(node.output), *inputs)
    if node.op_type in GLOBAL:
        axes = tuple(range(2, inputs[0].ndim))
        return [GLOBAL[node.op_type](inputs[0], axes=axes, keepdims=True)]
    return (run_max_unpool if node.op_type == "MaxUnpool" else run_roi_align)(attributes, *inputs)


@functools.cache
def cases():
    ours = {*WINDOWED, *GLOBAL, "MaxUnpool", "MaxRoiPool", "RoiAlign"}
    with np.errstate(all="ignore"):
        found = nodes.collect_testcases(None)
    return [case for case in found if case.model.graph.node[0].op_type in ours]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_node(case):
    (node,) = case.model.graph.node
    for inputs, outputs in case.data_sets:
        got = run(node, inputs)
        assert len(got) == len(outputs)
        for mine, theirs in zip(got, outputs, strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, case.rtol, case.atol)
