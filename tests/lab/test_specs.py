"""Specs as text: what is read, what is written, that both agree, and what is refused."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whorl.lab import ModelConfig, RunConfig
from whorl.lab.encodings import build_encoding, format_title, split_spec
from whorl.lab.rates import choose_learning_rates
from whorl.lab.specs import format_spec, name_folder, parse_spec, split_specs

KEYS = st.sampled_from(["base", "layout", "max_length", "x_1", "a b", "true", "1st"])
NAMES = st.one_of(st.sampled_from(["rope", "t5", "nan", "null"]), st.text(min_size=1, max_size=6))
PLAIN = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(["half", "128k", "true", "inf", "1e5", 'a"b', "a\\b", "none"]),
)


def make_tables(values: Any) -> Any:
    named = st.dictionaries(KEYS, values, max_size=3)
    return st.builds(lambda name, options: {"name": name, **options}, NAMES, named)


VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), make_tables(inner), st.dictionaries(KEYS, inner, max_size=2)
    ),
    max_leaves=5,
).filter(lambda value: measure_depth(value) < 7)


def measure_depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(measure_depth, value), default=0) if isinstance(value, list) else 0


@pytest.mark.slow
@given(st.lists(make_tables(VALUES), min_size=1, max_size=3))
def test_what_is_written_is_read_as_the_same(parts: list[dict[str, Any]]) -> None:
    text = format_spec(parts)
    found = parse_spec(text)
    assert found == parts
    assert repr(found) == repr([{"name": p["name"], **p} for p in parts]) or any(
        "max_length" in repr(p)
        for p in parts  # a length of 5.0 is read as 5
    )
    assert split_specs(f"{text},alibi") == [text, "alibi"]
    assert split_spec(text) == split_spec([text]) == parts
    assert format_title(text) == text


@given(st.text(alphabet='rope(=)[],+"\\ 1.ek_-', max_size=20))
def test_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_spec(text)
    except ValueError:
        return
    assert parse_spec(format_title(text)) == parse_spec(format_spec(found)) == found


def test_values() -> None:
    (found,) = parse_spec(
        'rope( base = 1e6, a=-3, b=.5, c=1_000, d=128k, e=1.5K, max_length=1e5, f=true, g="x, y)",'
        " h=[2,2,[]], i=null, j=none, k=T5-like, scaling=yarn(factor=4,original_context=2k), l=q())"
    )
    assert found == {
        "name": "rope",
        "base": 1e6,
        "a": -3,
        "b": 0.5,
        "c": 1000,
        "d": 131072,
        "e": 1536,
        "max_length": 100_000,
        "f": True,
        "g": "x, y)",
        "h": [2, 2, []],
        "i": None,
        "j": "none",
        "k": "T5-like",
        "l": {"name": "q"},
        "scaling": {"name": "yarn", "factor": 4, "original_context": 2048},
    }
    assert [type(found[key]) for key in ("base", "c", "max_length")] == [float, int, int]
    assert math.isnan(parse_spec("rope(x=nan)")[0]["x"])
    assert parse_spec("rope(length=0.5)") == [{"name": "rope", "length": 0.5}]  # no length


def test_titles_stay_as_written() -> None:
    assert format_title(' rope( base=1e6, x="a b" ) + alibi') == 'rope(base=1e6,x="a b")+alibi'
    assert format_title({"name": "rope", "scaling": None}) == "rope(scaling=null)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rope(base=1 layout=half)", r"',' or '\)' must come at character 13 of .*; got 'layout=h"),
        ("rope(base=", r"model.encoding: the value of 'base' must come at character 11 .* the end"),
        ("rope(base", r"'=' and the value of 'base' must come at character 10"),
        ("rope)", r"'\(', '\+' or the end must come at character 5 of 'rope\)'; got '\)'\. Write"),
        ("rope(base=1)x", r": '\+' or the end must come at character 13"),
        ("rope+", r"the name of an encoding must come at character 6 of 'rope\+'; got the end"),
        ("rope(1=2)", r"an option must come at character 6"),
        ("rope(base=1,base=2)", r"another option must come at character 13 .*; got 'base=2\)'"),
        ("rope(name=x)", r"an option, not a name, must come at character 6"),
        ("rope(base=1.001k)", r"a number such as 1e6, or a whole length such as 128k, must"),
        ("rope(x=[1 2])", r"',' or '\]' must come at character 11"),
        ("rope(x=" + "[" * 99, r"a value that is nested at most 8 deep must come at character 16"),
    ],
)
def test_errors_point_at_the_place(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_spec(text)


def test_folders_are_safe_and_differ() -> None:
    assert name_folder("learned+rope") == "learned+rope"
    titles = ["rope(base=100)", "rope(base=1,layout=half)", "rope(a=[1,2])", "rope(a=[12])"]
    titles += ["rope(x=A)", "rope(x=a)", 'rope(x="../y:z")', f"rope(x={'y' * 300})", "Rope"]
    found = [name_folder(title) for title in titles]
    assert found[0].startswith("rope-base-100-")
    assert len({name.lower() for name in found}) == len(found)
    for name in found:
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_+.-")
        assert len(name) < 100


def test_a_text_builds_the_same_encoding_as_a_table() -> None:
    shape = ModelConfig(width=48, heads=4)
    text = "learned+rope(base=500,scaling=yarn(factor=4,original_context=128))"
    scaling = {"name": "yarn", "factor": 4, "original_context": 128}
    table = ["learned", {"name": "rope", "base": 500, "scaling": scaling}]
    assert repr(build_encoding(text, shape, 64)) == repr(build_encoding(table, shape, 64))
    assert "base=500" in repr(build_encoding(text, shape, 64))
    assert repr(build_encoding("mrope(sections=[2,2,2])", shape, 64)).startswith("MRoPE(")
    config = RunConfig(model=ModelConfig(encoding="rope(base=100)"))
    assert RunConfig.from_dict(config.to_dict()) == config


def test_options_do_not_change_learning_rates() -> None:
    for spec, plain in (("rope(base=5)", "rope"), ("learned(std=1)+rope", "learned+rope")):
        assert choose_learning_rates(spec, 48) == choose_learning_rates(plain, 48)
    assert choose_learning_rates("rope(frequencies=trained)", 48)["encoding_learning_rate"] == 0.01
