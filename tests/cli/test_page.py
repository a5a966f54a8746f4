"""The page of `explain`: a single file without network access, with the numbers of the library."""

import base64
import importlib.resources
import json
import random
import re
import zlib

import numpy as np
import pytest

from jaxpool.__main__ import main
from jaxpool._cli._function_call import OPTION_OF_ARGUMENT, find_record, make_call
from jaxpool._cli._page import CHOICES, OTHER_ARRAYS, _text, html_page
from jaxpool._cli._route import route_cotangents

PAGE = importlib.resources.files("jaxpool._cli") / "page"
MAX_BYTES = 200_000
ARRAY = "1 nan 4 2; 4 2 -0 6; 5 3 7 8; 0.1 -inf 9 2.5"


def page_data(html):
    """The data of a page, with its routes by the choices of the controls."""
    data = json.loads(re.search(r'id="start">(.*?)</script>', html)[1])
    return data | {"routes": json.loads(zlib.decompress(base64.b64decode(data["routes"])))}


def route_key(data, chosen):
    names = ["op", "array", *data["choices"][chosen["op"]]]
    return "|".join(chosen[name] for name in names)


def random_choice(data, rng):
    op = rng.choice(list(data["choices"]))
    texts = {name: rng.choice(values) for name, values in data["choices"][op].items()}
    return {"op": op, "array": rng.choice(data["arrays"]), **texts}


def command_line_of(chosen):
    """The options of `explain` for choices on the page."""
    words = [
        "--op",
        chosen["op"],
        f"--array={({'the array': ARRAY} | OTHER_ARRAYS)[chosen['array']]}",
    ]
    for argument, option in OPTION_OF_ARGUMENT.items():
        text = chosen.get(argument, "count")
        if argument in CHOICES and text == _text(CHOICES[argument][0]):
            continue
        if text in ("yes", "no"):
            words.append(option if text == "yes" else option.replace("--", "--no-"))
        elif text != "count":
            words.append(f"{option}={text}")
    return words


def explain_json(capsys, words):
    """The result of `--json`, or the error message."""
    status = main(["explain", "--json", *words])
    said = capsys.readouterr()
    return said.err if status else json.loads(said.out)


def assert_same_numbers(got, want):
    got, want = (np.array(values, object).astype(float).ravel() for values in (got, want))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [6, pytest.param(150, marks=pytest.mark.slow)])
def test_every_choice_matches_command_line(count, tmp_path, capsys):
    path, rng, compared = tmp_path / "page.html", random.Random(count), 0
    settings = ["--padding", "0:1x1", "--divisor", "-0.3", "--op", "avg"]
    assert main(["explain", "--array", ARRAY, *settings, "--html", str(path)]) == 0
    capsys.readouterr()
    data = page_data(path.read_text(encoding="utf-8"))
    while compared < count:
        chosen = random_choice(data, rng)
        found, said = (
            data["routes"][route_key(data, chosen)],
            explain_json(capsys, command_line_of(chosen)),
        )
        if isinstance(said, str):
            assert said == f"jaxpool explain: {found['refusal']}\n"
            continue
        compared += 1
        is_unpool = chosen["op"] == "max_unpool"
        assert found["call"] == said["call"]
        assert_same_numbers(found["input"]["values"], said["y" if is_unpool else "x"])
        assert_same_numbers(found["output"]["values"], said["x" if is_unpool else "y"])
        columns = found["input"]["cols"]
        for links, shares in zip(found["links"], said["shares"], strict=True):
            receivers = [[*divmod(at, columns), share] for at, share in links if share != 0]
            assert_same_numbers(receivers, shares["to"])


def test_page_is_small_and_self_contained(tmp_path, capsys):
    path = tmp_path / "page.html"
    words = ["--op", "lp", "--p", "1.5", "--array", "0.1 nan; -inf 2", "--cotangent", "3"]
    assert main(["explain", *words, "--padding", "0:1x0", "--html", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"\nPage: {path}\n")
    html = path.read_text(encoding="utf-8")
    assert len(html.encode()) < MAX_BYTES
    other_files = r"https?://|<link(?! rel=\"icon\" href=\"data:)|@import|url\((?!#)"
    assert re.search(other_files, html) is None
    assert "/*{" not in html
    data = page_data(html)
    found = data["routes"][route_key(data, data["start"])]
    assert found["input"]["values"] == [0.1, "nan", "-Infinity", 2]
    assert data["dy"]["values"] == [3]
    assert data["start"]["p"] == "1.5"
    assert data["start"]["padding"] == "0:1x0:0"


def test_page_data_is_escaped():
    route = route_cotangents(make_call(find_record("max"), np.zeros((2, 2), np.float32), {}))
    html = html_page(route, {"padding": "</script>"}, [])
    assert html.count("</script>") == (PAGE / "page.html").read_text().count("</script>")


def test_page_of_function_without_windows(tmp_path):
    path = tmp_path / "page.html"
    words = ["--op", "segment_max", "--array", "1 9; 4 2; 5 9", "--set", "segment_ids=[0, 1, 0]"]
    assert main(["explain", *words, "--html", str(path)]) == 0
    data = page_data(path.read_text(encoding="utf-8"))
    found = data["routes"][route_key(data, data["start"])]
    assert found["output"]["values"] == [5, 9, 4, 2]
    assert found["links"] == [[[4, 1.0]], [[1, 0.5], [5, 0.5]], [[2, 1.0]], [[3, 1.0]]]
    assert found["windows"] is None


def test_choices_that_the_page_cannot_show(monkeypatch):
    call = make_call(find_record("rank"), np.eye(4, dtype=np.float32), {"rank": 3})
    html = html_page(route_cotangents(call), {"rank": 3}, [])
    data = page_data(html)
    chosen = data["start"] | {"strides": "1x1", "padding": "SAME"}
    refusal = data["routes"][route_key(data, chosen)]["refusal"]
    assert refusal.startswith("jaxpool.rank_pool: `rank` must be an int from -1 to 0; got rank=3")
    monkeypatch.setattr("jaxpool._cli._page.MAX_LINKS", 15)
    data = page_data(html_page(route_cotangents(call), {"rank": 3}, []))
    chosen = data["start"] | {"rank": "0"}
    assert "too many" in data["routes"][route_key(data, chosen)]["refusal"]
    assert "links" in data["routes"][route_key(data, data["start"])]
