"""JSON that is measured before it is parsed: what is let through, what is not, what it takes."""

import io
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import bounded
from whorl._support import bounded_json
from whorl._support.bounded_json import JsonError, JsonLimits, parse_json, read_within
from whorl.configs.source import _LIMITS as CONFIG
from whorl.weights.safetensors_file import _LIMITS as HEADER
from whorl.weights.safetensors_file import read_header
from whorl.weights.shards import _LIMITS as INDEX
from whorl.weights.shards import read_index

SMALL = JsonLimits("note", bytes=4000, values=20, depth=4)
MB = 2**20

values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)


def count(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value
    return 1 + (sum(map(count, inside)) if isinstance(value, (dict, list)) else 0)


def depth(value: Any) -> int:
    if not isinstance(value, (dict, list)):
        return 0
    inside = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inside), default=0)


@settings(max_examples=100)
@given(value=values, ascii=st.booleans(), piece=st.sampled_from([1, 2, 3, 7, 2**18]))
def test_exactly_what_is_within_the_limits(value: Any, ascii: bool, piece: int) -> None:
    """Whatever stands in strings: commas, brackets, quotes, backslashes; wherever pieces end."""
    text = json.dumps(value, ensure_ascii=ascii)
    deep = JsonLimits("note", 10**6, 10**6, depth(value))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded_json, "_PIECE", piece)
        assert parse_json(text, deep) == value
        assert parse_json(text.encode(), deep) == value
        # An empty list or object is counted as if one value could be in it.
        most = 2 * count(value)
        assert parse_json(text, JsonLimits("note", 10**6, most, 100)) == value
        if depth(value):
            with pytest.raises(JsonError, match=r"is nested more than \d deep; no note is"):
                parse_json(text, JsonLimits("note", 10**6, 10**6, depth(value) - 1))
        if count(value) > 1:
            with pytest.raises(JsonError, match=r"holds more than \d+ values; no note does"):
                parse_json(text, JsonLimits("note", 10**6, count(value) - 1, 100))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is not JSON: Expecting value"),
        (b'{"a": 1,}', "is not JSON: Expecting property name"),
        (b'"' * 100, "is not JSON: Extra data"),
        (b"[" * 3, "is not JSON: Expecting value"),
        (b"[" * 5, "is nested more than 4 deep; no note is"),
        (b"[[[[[1]]]]]", "is nested more than 4 deep"),
        (b"]" * 5, "is not JSON: Expecting value"),
        (b"[[[[[" + b"]" * 50, "is not JSON: it closes more brackets than it opens"),
        (b"[" + b"1," * 20 + b"1]", "holds more than 20 values; no note does"),
        (b"[" * 21, "holds more than 20 values"),
        (b'{"a": 1, "a": 2}', "holds the key 'a' twice in one object, and readers differ in whi"),
        (b'[{"b": {"c": 1, "c": 2}}]', "holds the key 'c' twice"),
        (b"[1" + b"0" * 300 + b"]", "holds a number of 301 digits, and a number may have 300 at"),
        (b'{"b": [2], "a": -1' + b"0" * 300 + b"}", "of 301 digits at 'a', and a number may have"),
        (
            b'[{"c": [1, [1' + b"0" * 400 + b"]]}]",
            "of 401 digits at 'c', .*; write the one that is",
        ),
        (b'{"a": 1' + b"0" * 300 + b", ]", "holds a number of 301 digits, and"),
        (b'["\xff"]', "is not text: 'utf-8' codec"),
        (b" " * 4001, "has 4,001 bytes, and no note has more than 4,000"),
        ('["é"]' + " " * 1000, "has 1,006 bytes, and no note has more than 1,000 with characters"),
        (b'["\\u00e9"]' + b" " * 1000, "no note has more than 1,000 with characters beyond ASCII"),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_is_refused(text: bytes | str, words: str) -> None:
    with pytest.raises(JsonError, match=words) as caught:
        parse_json(text, SMALL)
    assert len(str(caught.value)) < 200


def test_what_is_let_through() -> None:
    assert parse_json(b"\xef\xbb\xbf[1]", SMALL) == [1]
    assert parse_json(b"[1" + b"0" * 299 + b"]", SMALL) == [10**299]
    assert parse_json("[Infinity, -Infinity]", SMALL) == [float("inf"), -float("inf")]
    assert parse_json(b"[[[[1]]]]", SMALL) == [[[[1]]]]
    strings = json.dumps({"a": '[{,"\\' * 400})
    assert parse_json(strings, SMALL) == json.loads(strings)
    for end in (
        "\\",
        '"',
        '\\"',
        '"\\',
        "\\\\",
        '\\\\"',
    ):  # how a string before brackets in one ends
        value = [end, "[" * 30, end, "{" * 30]
        assert parse_json(json.dumps(value), SMALL) == value


def test_reading_stops_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b" " * 5000)
    with open(path, "rb") as file:
        with pytest.raises(JsonError, match="has 5,000 bytes, and no note has more than 4,000"):
            read_within(file, SMALL)
        assert file.tell() == 4001
    assert read_within(io.BytesIO(b"[1]"), SMALL) == b"[1]"


# Memory and work


@contextmanager
def within(megabytes: int) -> Iterator[None]:
    """Memory taken at most inside, whatever is freed again."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= megabytes * MB, f"{peak / MB:.0f} MB"


BOMBS = {
    "nested lists": b"[" + b"[[[]]]," * (4 * MB) + b"1]",
    "empty objects": b"[" + b"{}," * (10 * MB) + b"1]",
    "numbers": b"[" + b"1," * (14 * MB) + b"1]",
    "strings": b"[" + b'"ab",' * (5 * MB) + b"1]",
    "deep": b"[" * (14 * MB) + b"]" * (14 * MB),
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_small_files_that_would_fill_the_memory(tmp_path: Path, text: bytes) -> None:
    """A header of 30 MB took 800 MB and six seconds, an index of 60 MB 1,500 MB."""
    header = tmp_path / "x.safetensors"
    header.write_bytes(len(text).to_bytes(8, "little") + text)
    index = tmp_path / "x.safetensors.index.json"
    index.write_bytes(b'{"weight_map": [' + text + b"," + text + b"]}")
    with within(64), pytest.raises(ValueError, match=r"cannot be read: its header has .* bytes"):
        read_header(header)
    with within(64), pytest.raises(ValueError, match="and no index has more than"):
        read_index(index)
    short = text[: HEADER.bytes // 2]
    header.write_bytes(len(short).to_bytes(8, "little") + short)
    index.write_bytes(short)
    refused = "its header (holds more|is nested more)"
    with within(64), bounded(2000), pytest.raises(ValueError, match=refused):
        read_header(header)
    refused = "index.json' (holds more|is nested more)"
    with within(64), bounded(2000), pytest.raises(ValueError, match=refused):
        read_index(index)


def many(name: str, limits: JsonLimits) -> bytes:
    """The document within the limits that takes the most memory, of its kind."""
    if name == "objects":
        each = limits.values // 2 - 2
        width = min(limits.bytes // each - 10, 200)
        return b"{" + b",".join(b'"%0*d":{"":0}' % (width, n) for n in range(each)) + b"}"
    if name == "strings":
        each = limits.values - 2
        text = b'"%0*d"' % (min(limits.bytes // each - 3, 200), 0)
        return b"[" + b",".join([text] * each) + b"]"
    one = b'"' + b"a" * (limits.bytes // 4 - 20) + b'\\ud83d\\ude00"'
    return b"[" + one + b"]"


@pytest.mark.parametrize("kind", ["objects", "strings", "one string"])
@pytest.mark.parametrize("limits", [CONFIG, HEADER, INDEX], ids=lambda limits: limits.what)
def test_the_largest_that_is_let_through(kind: str, limits: JsonLimits) -> None:
    text = many(kind, limits)
    assert len(text) <= limits.bytes
    with within(150 - len(text) // MB):  # the text itself was there before
        assert parse_json(text, limits)


def test_an_index_of_a_hundred_thousand_names(tmp_path: Path) -> None:
    names = {
        f"model.layers.{n % 61}.mlp.experts.{n // 61}.down_proj.weight_scale_inv": (
            f"model-{n % 163:05}-of-00163.safetensors"
        )
        for n in range(100_000)
    }
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": names}, indent=2))
    with within(150):
        assert read_index(path) == names
