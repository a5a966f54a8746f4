"""The page of `explain`: a single file without network access, with the numbers of the library."""

import base64
import json
import random
import re
import zlib

import numpy as np
import pytest

from jaxpool.__main__ import main
from jaxpool._cli._array import read_array
from jaxpool._cli._function_call import find_record, make_call
from jaxpool._cli._page import CHOICES, OTHER_ARRAYS, _text, html_page
from jaxpool._cli._route import route_cotangents

MAX_BYTES = 200_000


def page_data(html):
    """The data of a page, with its routes by the choices of the controls."""
    data = json.loads(re.search(r'id="data">(.*?)</script>', html)[1])
    return data | {"routes": json.loads(zlib.decompress(base64.b64decode(data["routes"])))}


def route_key(data, chosen):
    names = ["op", "array", *data["choices"][chosen["op"]]]
    return "|".join(chosen[name] for name in names)


def random_choice(data, rng):
    op = rng.choice(list(data["choices"]))
    texts = {name: rng.choice(values) for name, values in data["choices"][op].items()}
    return {"op": op, "array": rng.choice(data["arrays"]), **texts}


def first_route(data):
    """The route that the page shows first."""
    op, choices = next(iter(data["choices"].items()))
    first = {name: values[0] for name, values in choices.items()}
    return data["routes"][route_key(data, {"op": op, "array": data["arrays"][0], **first})]


def test_routes_are_those_of_the_choices(tmp_path, capsys):
    """For random choices of its controls, the page has the numbers of a call with these arguments."""
    path, rng = tmp_path / "page.html", random.Random(6)
    words = ["--op", "avg", "--array", "1 nan 4 2; 4 2 -0 6; 5 3 7 8; 0.1 -inf 9 2.5"]
    words += ["--padding", "0:1x1", "--divisor", "-0.3", "--cotangent", "3", "--html", str(path)]
    assert main(["explain", *words]) == 0
    assert capsys.readouterr().out.endswith(f"\nPage: {path}\n")
    html = path.read_text(encoding="utf-8")
    assert len(html.encode()) < MAX_BYTES
    other_files = r"https?://|<link(?! rel=\"icon\" href=\"data:)|@import|url\("
    assert re.search(other_files, html) is None
    data = page_data(html)
    assert set(data["dy"]) == {3}
    assert first_route(data)["x"]["values"][:4] == [1, "nan", 4, 2]
    assert "((0, 1), (1, 1)), divisor=-0.3" in first_route(data)["call"]
    values = {_text(value): value for values in CHOICES.values() for value in values}
    values |= {"0:1x1:1": ((0, 1), (1, 1))}
    num_refused = 0
    for _ in range(40):
        chosen = random_choice(data, rng)
        found = data["routes"][route_key(data, chosen)]
        settings = {name: values[chosen[name]] for name in data["choices"][chosen["op"]]}
        settings |= {"divisor": -0.3} if chosen["op"] == "avg_pool" else {}
        x, _ = read_array(({"the array": words[3]} | OTHER_ARRAYS)[chosen["array"]])
        if "refusal" in found:
            with pytest.raises(ValueError, match=re.escape(found["refusal"])):
                make_call(find_record(chosen["op"]), x, settings)
            num_refused += 1
            continue
        call = make_call(find_record(chosen["op"]), x, settings)
        route = route_cotangents(call)
        assert found["call"] == call.source_code()
        for name, want in (("x", route.x), ("y", route.y)):
            got = np.array(found[name]["values"]).astype(float)
            np.testing.assert_allclose(got, want.ravel(), rtol=1e-6)
            assert found[name]["cols"] == want.shape[1]
        for links, shares in zip(
            found["links"], route.cotangent_shares.reshape(-1, route.x.size), strict=True
        ):
            got = np.zeros(route.x.size)
            for at, share in links:
                got[at] = float(share)
            np.testing.assert_allclose(got, shares, rtol=1e-6)
    assert 0 < num_refused < 20


def test_page_of_function_without_windows(tmp_path):
    path = tmp_path / "page.html"
    words = ["--op", "segment_max", "--array", "1 9; 4 2; 5 9", "--set", "segment_ids=[0, 1, 0]"]
    assert main(["explain", *words, "--html", str(path)]) == 0
    found = first_route(page_data(path.read_text(encoding="utf-8")))
    assert found["y"]["values"] == [5, 9, 4, 2]
    assert found["links"] == [[[4, 1.0]], [[1, 0.5], [5, 0.5]], [[2, 1.0]], [[3, 1.0]]]


def test_choices_that_the_page_cannot_show(monkeypatch):
    monkeypatch.setattr("jaxpool._cli._page.MAX_LINKS", 15)
    call = make_call(find_record("rank"), np.eye(4, dtype=np.float32), {"rank": 3})
    settings = {"rank": 3, "padding": "</script>"}
    html = html_page(route_cotangents(call), settings, [])
    assert html.count("</script>") == 2  # the data are escaped
    routes = page_data(html)["routes"]
    refusal = routes["rank_pool|the array|2x2|1x1|SAME|1x1|no|3|first"]["refusal"]
    assert refusal.startswith("jaxpool.rank_pool: `rank` must be an int from -1 to 0; got rank=3")
    assert "too many" in routes["rank_pool|the array|2x2|2x2|VALID|1x1|no|0|first"]["refusal"]
    assert "links" in next(iter(routes.values()))
