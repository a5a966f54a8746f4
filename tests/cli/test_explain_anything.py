"""`explain` of any public function shows the Jacobian of the oracle."""

import json
import re

import numpy as np
import pytest

from jaxpool._cli._function_call import find_record, make_call
from jaxpool._cli._route import route_cotangents
from jaxpool.testing import pools
from tests.cli.test_explain_command import explain_stdout

POOLS = pools()
ARRAY = np.array([[1, 3, 4, 2], [4, 2, 5, 6], [5, 3, 7, 8], [0.5, 1.5, 9, 2.5]], np.float32)
FAST_POOLS = [name for name, pool in POOLS.items() if pool.takes("segment_ids") or pool.takes("k")]


@pytest.mark.parametrize(
    "name",
    [name if name in FAST_POOLS else pytest.param(name, marks=pytest.mark.slow) for name in POOLS],
)
def test_jacobian_route_matches_oracle(name):
    call = make_call(find_record(name), ARRAY, {})
    route, expected = route_cotangents(call), route_cotangents(call, by_oracle=True)
    np.testing.assert_allclose(route.y, expected.y, rtol=1e-5)
    np.testing.assert_allclose(
        route.cotangent_shares, expected.cotangent_shares, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(route.dx, expected.dx, rtol=1e-4, atol=1e-6)
    if name != "max_unpool":
        assert call.selects_elements != call.record.rounds(call.arguments)


def test_segment_max_as_text_and_json(capsys):
    words = ["--op", "segment-max", "--array", "1 9; 4 2; 5 9", "--set", "segment_ids=[0, 1, 0]"]
    text = explain_stdout(capsys, *words)
    assert text.startswith("jaxpool.segment_max(x[..., None], jnp.array([0, 1, 0]))\n")
    assert "(0, 1)  9      (0, 1) gets 1/2, (2, 1) gets 1/2" in text
    assert "A star marks what some output chose." in " ".join(text.split())
    data = json.loads(explain_stdout(capsys, *words, "--json"))
    assert data["settings"]["op"] == "segment_max"
    assert data["shares"][1] == {"output": [0, 1], "to": [[0, 1, 0.5], [2, 1, 0.5]]}


def test_large_arrays_appear_as_names(capsys):
    assert "jaxpool.maximum(x, x2, x3)" in explain_stdout(capsys, "--op", "maximum")


def test_user_boxes_belong_to_the_image(capsys):
    text = explain_stdout(capsys, "--op", "roi_align", "--set", "boxes=[[0.0, 0.0, 2.0, 2.0]]")
    assert "batch_indices=jnp.array([0]))\n" in text


@pytest.mark.parametrize("array", ["1 3 2; 3 1 1", "1; 3; 2"])
def test_a_boolean_result_has_no_gradient(array, capsys):
    words = ["--op", "local-maxima", "--array", array, "--set", "window_shape=(3,)"]
    words += ["--set", "axes=(1,)"]
    text = explain_stdout(capsys, *words)
    assert "3*" in text
    assert "A boolean result has no gradient." in " ".join(text.split())
    assert not re.search("dx|dy|otangent", text)
    data = json.loads(explain_stdout(capsys, *words, "--json"))
    assert not {"dx", "dy"} & set(data)


def test_options_combined_with_set(capsys):
    text = explain_stdout(capsys, "--op", "softmax", "--stride", "1", "--set", "temperature=0.5")
    assert "jaxpool.softmax_pool(x[None, ..., None], (2, 2), (1, 1), temperature=0.5)" in text


def test_picture_of_boolean_result():
    """The picture outlines no windows."""
    pytest.importorskip("matplotlib")
    from jaxpool._cli._route_picture import draw_figure

    call = make_call(find_record("local_maxima"), ARRAY, {})
    route = route_cotangents(call)
    left, right = draw_figure(route).axes
    marked = route.y
    assert 0 < marked.sum() < marked.size
    np.testing.assert_array_equal(left.images[0].get_array(), marked)
    assert {each.get_gid() for axes in (left, right) for each in axes.collections} <= {None}
