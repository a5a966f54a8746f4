"""`python -m jaxpool explain`: every function and option, as text, JSON and picture."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxpool
from jaxpool.__main__ import main
from jaxpool._cli._function_call import find_record, make_call
from jaxpool._cli._route import route_cotangents
from jaxpool._cli._route_text import format_number, route_as_text
from jaxpool.testing import pools

# Worked example: the number of 2x2 windows that select each position of the built-in array.
STRIDE_1 = """\
0 0 0 0 0 0
1 0 1 1 2 0
1 0 2 2 4 0
1 0 0 2 0 0
0 4 0 1 0 1
0 0 0 0 1 1"""
EXAMPLE = """\
jaxpool.max_pool(x, (2, 2), (2, 2), axes=(0, 1))

x: input (6x6)             y: output (3x3)
 1   3   4   2   5   2      4  6  8
 4*  2   5   6*  8*  3      8  8  9
 5   3   7   8*  9*  3     10  6  8
 8*  4   3   6   0   2
 7  10*  3   6*  3   5
 4   7   2   4   7   8*

dx: what x gets (6x6)      dy: cotangent of y (3x3)
 0   0   0   0   0   0      1  1  1
 1   0   0   1   1   0      1  1  1
 0   0   0   1   1   0      1  1  1
 1   0   0   0   0   0
 0   1   0   1   0   0
 0   0   0   0   0   1

A cotangent says how much a loss changes when a number does. A star marks what
some window chose. dx adds up what the windows of an input send it. Each dy is
1, so dx is the gradient of the sum of y; that of the mean is this over the
number of windows, 9.

y at    value  window                 cotangent goes to
(0, 0)  4      rows 0-1, columns 0-1  (1, 0)
(0, 1)  6      rows 0-1, columns 2-3  (1, 3)
(0, 2)  8      rows 0-1, columns 4-5  (1, 4)
(1, 0)  8      rows 2-3, columns 0-1  (3, 0)
(1, 1)  8      rows 2-3, columns 2-3  (2, 3)
(1, 2)  9      rows 2-3, columns 4-5  (2, 4)
(2, 0)  10     rows 4-5, columns 0-1  (4, 1)
(2, 1)  6      rows 4-5, columns 2-3  (4, 3)
(2, 2)  8      rows 4-5, columns 4-5  (5, 5)
"""
SQUARE = "1 3; 4 2"
ARRAY = np.array([[1, 3, 4, 2], [4, 2, 5, 6], [5, 3, 7, 8], [0.5, 1.5, 9, 2.5]], np.float32)
TIED = "1 1 0 2; 1 1 0 0"
SEGMENTS = ["--op=segment-max", "--array=1 9; 4 2; 5 9", "--set=segment_ids=[0, 1, 0]"]


def explain_stdout(capsys, *options: str) -> str:
    assert main(["explain", *options]) == 0
    return capsys.readouterr().out


def explain_json(capsys, *options: str):
    return json.loads(explain_stdout(capsys, "--json", *options))


def make_route(op, array, **settings):
    return route_cotangents(make_call(find_record(op), array, settings))


def test_the_worked_example(capsys):
    assert explain_stdout(capsys) == EXAMPLE


def test_grids_are_stacked_in_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    printed = explain_stdout(capsys)
    assert max(map(len, printed.splitlines())) <= 50
    assert " 4   7   2   4   7   8*\n\ny: output (3x3)\n 4  6  8\n" in printed


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["--op=avg", f"--array={SQUARE}", "--padding=0:1x0", "--ceil-mode"],
            "(0, 0)  2.5    rows 0-1, columns 0-1  all 4, 1/4 each\n",
        ),
        (["--array=1 4; 4 2", "--ties=split"], "(0, 1) gets 1/2, (1, 0) gets 1/2; 2\n"),
        (
            ["--array=1 2 3", "--window=1x2", "--dilation=2"],
            "(0, 0)  3      rows 0, columns 0 2  (0, 2)\n",
        ),
        ([f"--array={SQUARE}", "--cotangent=2"], "share of\neach one's dy.\n"),
        (["--op=lp", "--array=0 0; 0 0"], "(0, 0)  0      rows 0-1, columns 0-1  nobody\n"),
        (["--op=lp", "--array=3 4", "--window=1x2"], "(0, 0) gets 0.6, (0, 1) gets 0.8\n"),
        # One line per decision of `ties`, and the number of these decisions.
        ([f"--array={TIED}"], "columns 0-1  (0, 0); 4 elements tie, ties='first'\n"),
        ([f"--array={TIED}"], "columns 2-3  (0, 3)\n"),
        ([f"--array={TIED}"], ". In 1 of 2 windows elements tie, and ties='first' decides. dx\n"),
        ([f"--array={TIED}", "--ties=last"], "(1, 1); 4 elements tie, ties='last'\n"),
        ([f"--array={TIED}", "--ties=split"], "all 4, 1/4 each; 4 elements tie,\n"),
        ([f"--array={TIED}", "--op=dilate"], "(0, 0); 4 elements tie, ties='first'\n"),
        (["--op=median", "--array=1 2 4 4", "--window=1x4"], "(0, 2); 2 elements tie"),
        (["--op=maximum", "--array=0 0"], "(0, 0) gets 1/3; 3 elements tie, ties='split'\n"),
        (["--op=fmax", "--array=0"], "(0, 0) gets 1/2; 2 elements tie, ties='split'\n"),
        (
            ["--op=fmax", "--array=0", "--set=ties=last"],
            "another array; 2 elements tie, ties='last'\n",
        ),
        (
            ["--op=cummax", "--array=1; 1; 1"],
            "(0, 2)  1      (0, 0); 2 or more elements tie, ties='first'\n",
        ),
        (
            ["--op=local-maxima", "--array=1 1"],
            "In 1 of 2 outputs\nelements tie, and ties='first' decides. ",
        ),
        # A fixed rule
        (
            ["--op=lp", "--p=inf", "--array=-1 0; 0 1"],
            "(0, 0) gets -1; 2 elements tie,",
        ),
        (["--op=lp", "--p=inf", "--array=1 1; 1 1"], "elements tie, and the first is chosen. "),
        (
            ["--op=spatial-pyramid", "--array=1 1", "--set=levels=(1,)"],
            "(0, 0); 2 elements tie, the",
        ),
        (
            ["--op=k-max", "--array=1; 1", "--set=k=1"],
            "(0, 0); 2 or more elements tie, the first is",
        ),
        (
            ["--op=k-max", "--array=1; 2; 9; 2", "--set=k=2"],
            "(1, 0); 2 or more elements tie, the first is chosen\n(0, 1)  9      (2, 0)\n",
        ),
        (
            ["--op=k-max", "--array=2; 2; nan; nan; 2", "--set=k=3"],
            "(0, 0); 3 or more elements tie, the first is chosen\n(0, 1)  nan    (2, 0)\n",
        ),
        (["--op=max-blur", "--array=1 1; 1 1"], "1/4; 4 elements tie, the first is chosen\n"),
        (
            ["--op=roi_align", "--set=kind=max", "--array=1 1; 1 1", "--to=1"],
            "; points tie, the first is chosen\n",
        ),
        (["--padding=SAME"], "jaxpool.max_pool(x, (2, 2), (2, 2), 'SAME', axes=(0, 1))\n"),
        # Both windows select the 9, and the later value stays.
        (
            ["--op=unpool", "--array=1 9 2", "--window=1x2", "--stride=1"],
            "x, indices = jaxpool.max_pool_with_argmax(array, (1, 2), (1, 1), axes=(0, 1))\n"
            "jaxpool.max_unpool(x, indices, (1, 3), axes=(0, 1))\n\n"
            "x: input (1x2)           y: output (1x3)\n9  9*                    0 9 0\n\n",
        ),
        (SEGMENTS, "jaxpool.segment_max(x[..., None], jnp.array([0, 1, 0]))\n"),
        (SEGMENTS, "y at    value  cotangent goes to\n(0, 0)  5      (2, 0)\n"),
        (
            SEGMENTS,
            "(0, 1)  9      (0, 1) gets 1/2, (2, 1) gets 1/2; 2 elements tie, ties='split'\n",
        ),
        (SEGMENTS, "A star marks what\nsome output chose. "),
        (["--op=maximum"], "jaxpool.maximum(x, x2, jnp.array([[1.0], "),  # large arrays are names
        (
            ["--op=roi_align", "--set=boxes=[[0.0, 0.0, 2.0, 2.0]]"],
            "batch_indices=jnp.array([0]))\n",  # boxes are in the only image
        ),
        # One size for rows and columns, and an argument that the oracle does not have
        (["--op=roi_align", "--set=output_shape=2"], ", (2, 2), batch_indices="),
        (["--op=fractional-max", "--set=window_shape=2"], "x[None, ..., None], (2, 2)"),
        (["--op=max-blur", "--set=blur_shape=2"], "x[None, ..., None], (2, 2), (2, 2)"),
        (["--op=cummax", '--set=autodiff="jvp"'], "autodiff='jvp'"),
        (["--op=spatial-pyramid", "--set=levels=[1, 2]"], "(x[None, ..., None], [1, 2])\n"),
        (["--op=global-max", "--set=axes=[1, 2]"], "(x[None, ..., None], axes=[1, 2])\n"),
        (
            ["--op=softmax", "--stride=1", "--set=temperature=0.5"],
            "jaxpool.softmax_pool(x[None, ..., None], (2, 2), (1, 1), temperature=0.5)",
        ),
    ],
)
def test_text_contains(options, text, capsys):
    assert text in explain_stdout(capsys, *options)


def test_npy_file_with_notes(capsys, tmp_path):
    path = tmp_path / "array.npy"
    np.save(path, np.ones((1, 1, 2, 6)))
    printed = explain_stdout(capsys, f"--array={path}", "--op=sum", "--window=1x2")
    assert "\nNote: An array of shape (1, 1, 2, 6) looks as if channels came first" in printed
    assert "x: input (2x6)" in printed


@pytest.mark.parametrize("array", ["1 3 2; 3 1 1", "1; 3; 2"])
def test_boolean_result_has_no_gradient(array, capsys):
    words = ["--op=local-maxima", "--array", array, "--set=window_shape=(3,)", "--set=axes=(1,)"]
    text = explain_stdout(capsys, *words)
    assert "3*" in text
    assert "A boolean result has no gradient." in " ".join(text.split())
    assert not re.search("dx|dy|otangent", text)
    assert not {"dx", "dy"} & set(explain_json(capsys, *words))


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("1:1x1:1", "1"),
        ("1x1", "1"),
        ("0", "0"),
        ("0x1", "(0, 1)"),
        ("0:1", "((0, 1), (0, 1))"),
        ("1x0:1", "((1, 1), (0, 1))"),
    ],
)
def test_padding_is_shown_in_shortest_form(option, shown, capsys):
    call = explain_json(capsys, "--window=3", "--stride=1", f"--padding={option}")["call"]
    assert call == f"jaxpool.max_pool(x, (3, 3), (1, 1), {shown}, axes=(0, 1))"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3"),
        (-0.0, "0"),
        (-2 / 3, "-0.6667"),
        (999999.0, "999999"),
        (1e8, "1e+08"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_number_format(value, text):
    assert format_number(value) == text


def test_json_of_stride_1(capsys):
    data = explain_json(capsys, "--stride", "1")
    assert data["dx"] == [[int(value) for value in row.split()] for row in STRIDE_1.splitlines()]
    assert data["call"] == "jaxpool.max_pool(x, (2, 2), (1, 1), axes=(0, 1))"
    assert data["shares"][0] == {"output": [0, 0], "to": [[1, 0, 1.0]], "tied": 0}


@pytest.mark.parametrize(
    ("options", "y", "dx"),
    [
        (["--op", "min"], [[1]], [[1, 0], [0, 0]]),
        (["--op", "avg"], [[2.5]], [[0.25, 0.25], [0.25, 0.25]]),
        (["--op", "avg", "--divisor", "2"], [[5]], [[0.5, 0.5], [0.5, 0.5]]),
        (["--op", "avg", "--padding", "0:1", "--window", "3"], [[10 / 9]], [[1 / 9] * 2] * 2),
        (
            ["--op", "avg", "--padding", "0:1", "--window", "3", "--no-count-include-pad"],
            [[2.5]],
            [[0.25] * 2] * 2,
        ),
        (["--op", "sum", "--cotangent", "3"], [[10]], [[3, 3], [3, 3]]),
        (["--op", "lp", "--p", "1"], [[10]], [[1, 1], [1, 1]]),
        (["--op", "lp", "--p", "inf"], [[4]], [[0, 0], [1, 0]]),
        (["--op", "median"], [[3]], [[0, 1], [0, 0]]),
        (["--op", "rank", "--rank", "-3"], [[2]], [[0, 0], [0, 1]]),
        (["--op", "dilate"], [[4]], [[0, 0], [1, 0]]),
        (["--op", "adaptive-max", "--to", "1x2"], [[4, 3]], [[0, 1], [1, 0]]),
        (["--op", "max", "--stride", "1", "--ceil-mode"], [[4]], [[0, 0], [1, 0]]),
    ],
)
def test_every_windowed_function(options, y, dx, capsys):
    data = explain_json(capsys, "--array", SQUARE, *options)
    np.testing.assert_allclose(data["y"], y, rtol=1e-6)
    np.testing.assert_allclose(data["dx"], dx, rtol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        name if pool.takes("segment_ids") else pytest.param(name, marks=pytest.mark.slow)
        for name, pool in pools().items()
    ],
)
def test_route_matches_library(name):
    call = make_call(find_record(name), ARRAY, {})
    call.check_arguments()
    operand = call.record.operands[0]
    value = call.arguments[operand]

    def first_output(x):
        first, *others = value if isinstance(value, tuple) else (value,)
        arrays = (x.reshape(first.shape), *others)
        changed = arrays if isinstance(value, tuple) else arrays[0]
        outputs = call.record.run({**call.arguments, operand: changed})
        return jax.tree.leaves(outputs)[0].astype(np.float32)

    y, vjp_fn = jax.vjp(first_output, call.array)
    dy = np.random.default_rng(0).uniform(1, 2, y.shape).astype(np.float32)
    route = route_cotangents(call)
    route = route_cotangents(call, dy.reshape(route.y.shape))
    np.testing.assert_allclose(route.y.ravel(), y.ravel(), rtol=1e-5)
    np.testing.assert_allclose(route.dx, vjp_fn(dy)[0], rtol=1e-4, atol=1e-6)
    gradient = np.tensordot(route.dy, route.cotangent_shares, 2)
    np.testing.assert_allclose(route.dx, gradient, rtol=1e-4, atol=1e-6)
    assert (route.input_masks | (route.cotangent_shares == 0)).all()


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, []) for name in pools()]
    + [
        ("segment_max", ["segment_ids=[0,0,1,1]", "where=[[[True]],[[False]],[[True]],[[True]]]"]),
        ("cummax", ["reset=[[[False]],[[True]],[[False]],[[False]]]"]),
        ("global_max_pool", ["where=[[[[True],[False],[True],[True]]]]"]),
        ("roi_align", ["boxes=[[0,0,2,3],[1,0,2,2]]"]),
    ],
)
def test_printed_call_is_the_call(name, options):
    array = np.float32([[1, 3, np.nan, 2], [4, -np.inf, np.inf, 2], [0, 1, 5, 5], [1, 2, 2, 0]])
    call = make_call(find_record(name), array, {}, options)
    names = {"x": jnp.asarray(array), "array": array, "jax": jax, "jnp": jnp, "jaxpool": jaxpool}
    *statements, expression = call.source_code().split("\n")
    exec("\n".join(statements), names)
    y, want = eval(expression, names), call.record.run(call.arguments)
    jax.tree.map(np.testing.assert_array_equal, y, want)


INFINITE_OR_NAN = [
    [[-np.inf, 1], [2, 3]],
    [[-np.inf, -np.inf], [-np.inf, -np.inf]],
    [[np.inf, np.inf], [-np.inf, 2]],
    [[0, np.nan], [0, 3]],
    [[np.nan, 1], [2, np.inf]],
]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((f"{kind}_pool", {}) for kind in ("softmax", "logsumexp", "gem")),
        *((f"segment_{kind}", {}) for kind in ("softmax", "logsumexp")),
        ("gem_pool", {"p": -2.0}),
        *(("lp_pool", {"p": p}) for p in (0.5, 1, 2, np.inf)),
    ],
)
def test_route_of_infinities_and_nans_matches_library(name, settings):
    for array in map(np.float32, INFINITE_OR_NAN):
        call = make_call(find_record(name), array, settings)
        x = call.arguments["x"]
        y, vjp_fn = jax.vjp(lambda x: call.record.run({**call.arguments, "x": x}), x)  # noqa: B023
        route = route_cotangents(call)
        np.testing.assert_allclose(route.y.ravel(), y.ravel(), rtol=1e-5)
        dx = vjp_fn(jnp.ones_like(y))[0].ravel()
        np.testing.assert_allclose(route.dx.ravel(), dx, rtol=1e-4, atol=1e-6)


SELECTING_WITHOUT_COMPARISON = ("max_unpool", "stochastic_pool")


@pytest.mark.parametrize("value", [1, np.nan, np.inf, -np.inf, -0.0])
@pytest.mark.parametrize(
    "name", [name for name in pools() if name not in SELECTING_WITHOUT_COMPARISON]
)
def test_equal_elements_tie(name, value):
    """For functions without the argument `ties` too. Zeros of both signs tie, and NaNs."""
    settings = {"segment_ids": np.zeros(4, int)} if find_record(name).takes("segment_ids") else {}
    x = np.full((4, 4), value, np.float32)
    x[::2, ::2] += 0  # -0 + 0 = 0
    route = make_route(name, x, **settings)
    assert route.num_tied.any() == (route.call.selects_elements or name == "max_blur_pool")


@pytest.mark.parametrize(
    ("box", "ties"),
    [
        ([0, 0, 2, 2], True),
        ([0.5, 0.5, 1, 1], True),
        ([-0.4, -0.4, 0.2, 0.2], False),  # every point is at the pixel in the corner
        ([1, 1, 1, 1], False),
        ([-5, -5, -3, -3], False),
        ([0, 0, 9, 9], False),  # one point is inside of the image
    ],
)
def test_points_of_boxes_tie(box, ties):
    settings = {"kind": "max", "output_shape": (1, 1), "boxes": np.array([box], np.float32)}
    text = route_as_text(make_route("roi_align", np.ones((2, 2), np.float32), **settings), [])
    assert ("; points tie, the first is chosen" in text) == ties
    assert "elements tie" not in text


def test_json_of_unpool(capsys):
    options = ["--array", SQUARE, "--cotangent", "1 2; 3 4"]
    data = explain_json(capsys, "--op", "unpool", *options)
    assert (data["x"], data["dx"]) == ([[4]], [[3]])
    assert (data["y"], data["dy"]) == ([[0, 0], [4, 0]], [[1, 2], [3, 4]])


def test_nan_does_not_reach_other_windows(capsys):
    options = ["--op", "lp", "--array", "nan 3 4", "--window", "1x2", "--stride", "1"]
    data = explain_json(capsys, *options)
    assert data["y"] == [["nan", 5]]
    assert data["shares"][1]["to"] == [[0, 1, pytest.approx(0.6)], [0, 2, pytest.approx(0.8)]]


def test_infinities_are_strings(capsys):
    options = ["--array=-inf inf; nan 0", "--op", "lp", "--p", "inf", "--window", "1"]
    data = explain_json(capsys, *options)
    assert data["x"] == [["-inf", "inf"], ["nan", 0]]
    assert 'jaxpool.lp_pool(x, float("inf"), (1, 1), ' in data["call"]


class TestPicture:
    @pytest.fixture(autouse=True)
    def _matplotlib(self):
        pytest.importorskip("matplotlib")

    def test_file(self, capsys, tmp_path):
        path = tmp_path / "picture.png"
        printed = explain_stdout(capsys, "--op=unpool", f"--array={SQUARE}", f"--png={path}")
        assert printed.endswith(f"\nPicture: {path}\n")
        assert path.read_bytes().startswith(b"\x89PNG\r\n")

    @pytest.mark.parametrize(
        ("op", "settings", "outlines"),
        [
            (  # all disjoint windows
                "max",
                {"strides": (2, 2)},
                [(0, 0, 2, 2), (2, 0, 2, 2), (0, 2, 2, 2), (2, 2, 2, 2)],
            ),
            ("max", {"strides": (1, 1)}, [(1, 1, 2, 2), (1, 1, 1, 1)]),
            ("local_maxima", {}, []),
        ],
    )
    def test_outlines_of_windows(self, op, settings, outlines):
        from jaxpool._cli._route_picture import draw_figure

        panels = draw_figure(make_route(op, ARRAY, **settings)).axes
        frames = [patch for axes in panels for patch in axes.patches]
        assert [
            (*frame.get_xy(), frame.get_width(), frame.get_height()) for frame in frames
        ] == outlines

    def test_title_names_ties(self):
        from jaxpool._cli._route_picture import draw_figure

        title = draw_figure(make_route("max", np.ones((2, 4), np.float32))).get_suptitle()
        assert title.endswith("\nIn 2 of 2 windows elements tie, and ties='first' decides.")
        assert "\n" not in draw_figure(make_route("max", ARRAY)).get_suptitle()

    def test_cells_are_darker_the_more_windows_select_them(self):
        from jaxpool._cli._route_picture import draw_figure

        x = np.array([[0, 0, 0], [0, 9, 0], [0, 0, 1]], np.float32)
        x_axes, y_axes, dx_axes, _ = draw_figure(make_route("max", x, strides=(1, 1))).axes
        for axes in (x_axes, dx_axes):  # four windows select the 9
            darkness = axes.images[0].get_array()
            np.testing.assert_allclose(darkness, [[0, 0, 0], [0, 1, 0], [0, 0, 0]])
        assert not y_axes.images[0].get_array().any()
        route = make_route("local_maxima", ARRAY)
        np.testing.assert_array_equal(draw_figure(route).axes[0].images[0].get_array(), route.y)
