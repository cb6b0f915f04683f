"""Names and values out of files are cut short in every message, however long they are."""

import ast
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import whorl
from tests.weights.made import llama, llama_config, raw_file, save, write_config
from whorl import read_config
from whorl._support.words import list_quoted, quote, shorten
from whorl.cli import main
from whorl.configs import ConfigError, diagnosis
from whorl.lab.config import RunConfig
from whorl.weights import Stated, convert, detect

LONG, LIST = "x" * 5000, list(range(3000))
NESTED: Any = [[[LONG] * 9] * 9] * 9
VALUES = [LONG, LIST, NESTED, {LONG: LONG}, {f"k{n}": n for n in range(3000)}, "4" * 5000]
MOST = 900

SIZES = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SIZES, "rope_theta": 1e4, "rope_scaling": YARN},
    "longrope": {
        "model_type": "phi3",
        **SIZES,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0] * 64,
            "long_factor": [2.0] * 64,
            "original_max_position_embeddings": 1024,
        },
    },
    "gemma": {
        "model_type": "gemma3_text",
        **SIZES,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    },
    "mrope": {
        "model_type": "qwen2_vl",
        "text_config": {
            "model_type": "qwen2_vl_text",
            **SIZES,
            "rope_parameters": {"rope_type": "default", "mrope_section": [16, 24, 24]},
        },
    },
    "unknown": {"model_type": "foo_bar", **SIZES},
    "meta": {"dim": 4096, "n_layers": 2, "n_heads": 32, "use_scaled_rope": True},
}


def paths(config: dict[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in config.items():
        yield (*before, key)
        if isinstance(value, dict):
            yield from paths(value, (*before, key))


def changed(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each value made long in every way, each key renamed, and keys added."""
    for path in paths(config):
        for value in [*VALUES, None]:
            new = copy.deepcopy(config)
            part = new
            for key in path[:-1]:
                part = part[key]
            if value is None:
                part[LONG] = part.pop(path[-1])
                part[path[-1] + LONG] = 1
            else:
                part[path[-1]] = value
            yield new


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_configs(config: dict[str, Any]) -> None:
    """What refuses a config, and every finding about it."""
    said = []
    for new in changed(config):
        try:
            read_config(new)
        except ConfigError as error:
            said.append(str(error))
        try:
            findings = diagnosis.diagnose(new).findings
        except ConfigError as error:
            said.append(str(error))
            continue
        said += [text for f in findings for text in (f.message, f.where, f.remedy)]
    assert len(said) > 20
    assert max(map(len, said)) <= MOST, max(said, key=len)[:MOST]


def message(call: Callable[..., Any], *given: Any, **options: Any) -> str:
    with pytest.raises((ValueError, TypeError)) as caught:
        call(*given, **options)
    return str(caught.value)


def entry(**more: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **more}


Q, K = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight"
HEADERS: dict[str, Any] = {
    "entry": {LONG: LONG},
    "no keys": {LONG: {LONG: 1}},
    "dtype": {LONG: entry(dtype=LONG)},
    "shape": {LONG: entry(shape=LIST)},
    "offsets": {LONG: entry(data_offsets=LIST)},
    "overlap": {LONG: entry(), LONG + "y": entry()},
    "gap": {LONG: entry(data_offsets=[4, 8])},
    "twice": f'{{"{LONG}": 1, "{LONG}": 1}}'.encode(),
    "metadata": {"__metadata__": {LONG: LIST}},
    "quantised": {f"model.layers.0.{LONG}.q_proj.qweight": entry()},
    "leaf": {f"model.layers.0.q_proj.{LONG}": entry()},
    "type": {f"model.layers.0.{LONG}.q_proj.weight": entry(dtype="I32")},
    "rows": {f"model.layers.0.{LONG}.q_proj.weight": entry()},
    "fused": {f"model.layers.0.{LONG}.qkv_proj.weight": entry()},
    "mark": {"__metadata__": {"rope_layout": LONG}, Q: entry(), K: entry()},
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("head_dim", [1, 8])
def test_headers(tmp_path: Path, header: Any, head_dim: int) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(raw_file(header, bytes(4)))
    options: Any = {"stated": Stated(head_dim=head_dim)}
    for call in (lambda: detect(path, **options), lambda: convert(path, tmp_path / "o", to="half")):
        assert len(message(call)) <= MOST


@pytest.mark.parametrize(
    "tensors",
    [
        {f"model.layers.0.{LONG}.wq_custom.weight": (8, 1)},
        {f"model.layers.0.self_attn.{LONG}": (8,)},
        {f"{LONG}.q_proj.weight": (24, 1)},
        {f"{LONG}.q_proj.weight": (16, 1), f"{LONG}.k_proj.weight": (24, 1)},
    ],
)
def test_tensors_that_are_not_known(tmp_path: Path, tensors: dict[str, tuple[int, ...]]) -> None:
    save(
        tmp_path / "model.safetensors",
        llama() | {name: torch.zeros(shape) for name, shape in tensors.items()},
    )
    write_config(tmp_path, **llama_config())
    assert len(message(convert, tmp_path, tmp_path.parent / "o", to="interleaved")) <= MOST


@pytest.mark.parametrize(
    "where",
    [{"a": LONG}, {"a": f"{LONG}.safetensors"}, {LONG: "x.safetensors"}, {LONG: LIST}, LIST],
    ids=["name", "file", "tensor", "list", "no map"],
)
def test_indexes(tmp_path: Path, where: Any) -> None:
    save(tmp_path / "x.safetensors", {"b" + LONG: torch.ones(1)})
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": where}))
    assert len(message(detect, path)) <= MOST


@pytest.mark.parametrize(
    "call",
    [
        lambda x: whorl.LongRoPE(x, x, original_context=8, factor=2.0),
        lambda x: whorl.RoPE(8).rotate(torch.ones(1, 1, 2, 8), offset=x),
        lambda x: whorl.RoPE(8).rotate(torch.ones(1, 1, 2, 8), context_length=x),
        lambda x: whorl.RoPE(8).shift(torch.ones(1, 1, 2, 8), x),
        lambda x: whorl.positions.from_segments([x]),
        lambda x: whorl.analysis.entropy({"rope": whorl.RoPE(8)}, lengths=x),
        lambda x: whorl.plots.catalogue.numbers("decay", length=str(x)),
    ],
)
def test_arguments(call: Callable[[Any], object]) -> None:
    for value in [LONG, dict.fromkeys(range(2000), LONG)]:
        with pytest.raises((ValueError, TypeError)) as caught:
            call(value)
        assert len(str(caught.value)) <= MOST


LONG_ROPE = whorl.RoPE(128, scaling=whorl.LongRoPE([1.0] * 64, [2.0] * 64, 4096, factor=4.0))
X = torch.ones(1, 1, 2, 8)
#: Calls with a long value of any kind, each of which is refused.
CALLS: dict[str, Callable[[Any], Any]] = {
    "make": whorl.make,
    "option": lambda value: whorl.make("rope", **{str(value): 1}),
    "from_dict": lambda value: whorl.from_dict({"parts": value}),
    "parts": lambda value: whorl.from_dict({"name": "composition", "parts": value}),
    "composition": lambda value: whorl.from_dict({"name": "composition", str(value): 1}),
    "axes": lambda value: whorl.AxialRoPE(8, axes=value),
    "impl": lambda value: whorl.RoPE(8, impl=value),
    "attention": lambda value: whorl.attention(X, X, X, encoding=value),
    "heads": lambda _: whorl.attention(X, X, X, encoding=whorl.ALiBi(3) + LONG_ROPE),
    "score_mod": lambda value: whorl.score_mod(value, 2, 2),
    "cache": lambda value: whorl.KVCache(placement=value),
    "crop": lambda value: whorl.KVCache().crop(value),
    "fn": lambda value: whorl.check(value, head_dim=8),
    "head_dim": lambda value: whorl.check(abs, head_dim=value),
    "kind": lambda value: whorl.check(abs, head_dim=8, kind=value),
    "chart": whorl.plots.catalogue.numbers,
    "seed": lambda value: whorl.analysis.position_map(whorl.RoPE(8), seed=value),
    "reference": lambda value: whorl.XPos(8).reference_near(value),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_arguments_of_functions(call: Callable[[Any], Any]) -> None:
    for value in [*VALUES, -(10**5000)]:
        assert len(message(call, value)) <= MOST


TABLES = ["model", "data", "training", "evaluation"]


@pytest.mark.parametrize("table", TABLES)
def test_files_of_runs(table: str) -> None:
    plain = RunConfig().to_dict()
    for name in [*plain[table], LONG]:
        for value in VALUES:
            given = {**plain, table: {**plain[table], name: value}}
            try:
                RunConfig.from_dict(given)
            except (ValueError, TypeError) as error:
                assert len(str(error)) <= MOST, (name, str(error)[:MOST])  # noqa: PT017


@pytest.mark.parametrize(
    "call",
    [
        diagnosis.find_rule,
        lambda x: diagnosis.diagnose({}, ignore=[x]),
        lambda x: diagnosis.diagnose({}, length=x),
        lambda x: whorl.configs.inspection.inspect(CONFIGS["llama"], extend=x, factor=2.0),
        lambda x: whorl.configs.inspection.inspect(CONFIGS["llama"], extend="yarn", factor=x),
        lambda x: whorl.configs.inspection.inspect(CONFIGS["llama"], length=x),
        lambda x: whorl.configs.inspection.inspect(CONFIGS["llama"], layer_type=x),
    ],
)
def test_options(call: Callable[[Any], object]) -> None:
    assert len(message(call, LONG)) <= MOST


@pytest.mark.parametrize("command", ["doctor", "inspect"])
def test_long_names_on_the_terminal(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {**CONFIGS["llama"], "model_type": "x" * 100_000}
    main([command, str(write_config(tmp_path, **config))])
    assert len(capsys.readouterr().out) < 5000


def test_many_unknown_keys_are_one_finding() -> None:
    config = copy.deepcopy(CONFIGS["llama"])
    config["rope_scaling"] |= {f"k{n}": n for n in range(5000)}
    (finding,) = [f for f in diagnosis.diagnose(config).findings if f.rule == "unknown-key"]
    assert finding.where == "rope_scaling"
    assert finding.message.startswith("nothing reads 5000 keys: 'k0', 'k1', ")
    assert finding.message.endswith(" and 4988 more.")
    assert not finding.edits
    config["rope_scaling"] = YARN | {"factr": 4.0, "beta_fasst": 1.0}
    found = [f for f in diagnosis.diagnose(config).findings if f.rule == "unknown-key"]
    assert [(f.where, f.fixable) for f in found] == [
        ("rope_scaling.factr", False),
        ("rope_scaling.beta_fasst", True),
    ]


def test_a_rule_tells_a_hundred_places_one_by_one() -> None:
    config = copy.deepcopy(CONFIGS["gemma"])
    config |= {f"rope_theta{chr(0x4E00 + n)}": 1.0 for n in range(150)}
    found = [f for f in diagnosis.diagnose(config).findings if f.rule == "misspelt-key"]
    assert len(found) == 101
    assert (found[-1].where, found[-1].message) == ("", "the same in 50 more places.")
    assert found[-1].severity == "warning"


# No text of a file commands the terminal

CODE = "\x1b]0;pwned\x07"


def with_codes() -> Iterator[dict[str, Any]]:
    """Each name and each string of a config with codes for the terminal in it."""
    for config in CONFIGS.values():
        for path in paths(config):
            for name in (path[-1], path[-1] + CODE):
                new = copy.deepcopy(config)
                part = new
                for key in path[:-1]:
                    part = part[key]
                value = part.pop(path[-1])
                part[name] = value if name != path[-1] else f"{value}{CODE}"
                yield new


def test_no_finding_holds_codes_for_the_terminal() -> None:
    said = [
        text
        for config in with_codes()
        for f in diagnosis.diagnose(config).findings
        for text in (f.where, f.message, f.remedy)
    ]
    assert all(map(str.isprintable, said))
    assert any("\\x1b]0;pwned" in text for text in said)


@pytest.mark.parametrize("command", ["doctor", "inspect", "detect", "convert"])
def test_no_command_prints_codes_of_a_file(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    renamed = {f"{CODE}.{name}": tensor for name, tensor in llama().items()}
    save(folder / "model.safetensors", renamed)
    (folder / f"{CODE}.bin").write_bytes(b"")
    write_config(folder, **{**llama_config(), "model_type": f"my{CODE}", "rope_theta": 1e4})
    more = [str(tmp_path / "out"), "--to", "interleaved", "--force"] if command == "convert" else []
    main([command, str(folder), *more])
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\x07" not in out + err
    assert "\\x1b]0;pwned" in out + err


def test_the_words() -> None:
    assert shorten(f"a{CODE}") == "a\\x1b]0;pwned\\x07"
    assert shorten("\u202eb\x9b\nc") == "\\u202eb\\x9b\\nc"
    assert len(shorten("\0" * 5000)) <= 120
    for value in [*VALUES, 10**5000, LONG.encode(), {1: NESTED}]:
        assert len(quote(value)) <= 200
    assert quote([1, "a", {"b": 2.5}]) == "[1, 'a', {'b': 2.5}]"
    assert quote({"z": 1, "a": [[[[1]]]], "": {}}) == "{'z': 1, 'a': [[[...]]], '': {}}"
    assert quote({n: n for n in range(9)}) == "{0: 0, 1: 1, 2: 2, 3: 3, ...}"
    assert shorten("abc") == "abc"
    assert shorten("a" * 60 + "b" * 61) == "a" * 58 + "..." + "b" * 58
    assert list_quoted([LONG] * 100).endswith(" and 88 more")
    assert len(list_quoted([LONG] * 100)) < MOST


# Where foreign values are printed, none is printed whole

#: Packages, and what each of them may print by !r besides paths: our own words, and numbers that
#: were checked before.
OURS: dict[str, set[str]] = {
    "_support": {"near[0]"},
    "analysis": {"config.layout"},
    "attention": {"known[0]", "known[1]", "v", "self.encoding"},
    "bench": {"cls.FORMAT"},
    "cli": set(),
    "configs": {"scaling.name", "id", "near", "near[0]", "only", "extension.scaling"},
    "encodings": {
        *("v", "Composition.name", "order", "self.order", "self.frequencies", "self.terms"),
        *("self.position_buckets", "self.std", "self.dim", "dtype"),
    },
    "explore": {"str(value)[:40]", "key[:40]", "connection['method'][:20]", "error"},
    "extend": {"method"},
    "finetune": set(),
    "functions": {"encoding", "pairs.out_layout", "from_dict(value)"},
    "hf": {"__name__", "name", "NAME", "default", "self.family", "self.cache", "value"},
    "kernels": set(),
    "lab": {
        *("config.kind", "config.attention", "options.precision", "self._task.name", "value"),
        *("name", "tokenizer"),  # paths
    },
    "plots": {"found.name", "path.name or str(path)", "path.name", "folder"},
    "positions": {"side"},
    "scaling": {
        *("getattr(self, field.name)", "self.beta_fast", "self.beta_slow", "ladder.base"),
        *("self.high_freq_factor", "self.low_freq_factor", "name"),
    },
    "weights": {"file.name"},
}


def printed_whole(text: str) -> Iterator[tuple[int, str]]:
    """Lines and expressions of f-strings that end in !r."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FormattedValue) and node.conversion == ord("r"):
            yield node.lineno, ast.unparse(node.value)


@pytest.mark.parametrize("package", OURS)
def test_no_foreign_value_is_printed_by_its_repr(package: str) -> None:
    source = Path(whorl.__file__).parent / package
    files = sorted(source.rglob("*.py"))
    assert files, "a package of this name"
    printed = [(file, *found) for file in files for found in printed_whole(file.read_text("utf-8"))]
    found = [
        f"{file.relative_to(source)}:{line}: {{{value}!r}}"
        for file, line, value in printed
        if value not in OURS[package] and not value.startswith("str(")
    ]
    assert not found, "use whorl._support.words.quote"
    assert OURS[package] <= {value for _, _, value in printed}, "no longer there"


def test_the_search_finds_something() -> None:
    assert [*printed_whole('x = f"{value!r} and {other}"')] == [(1, "value")]
