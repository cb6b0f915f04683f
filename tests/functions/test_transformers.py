"""Every model type of transformers with one-dimensional rotary embeddings, identified by its code.

The model's own module and its own function are a black box; what comes out must be the frequencies
in its buffers, in the layout, width and direction that ``read_config`` reads from its config.
"""

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor

import whorl
from tests.configs.census import ROTARY
from tests.configs.own_code import Table, config_of, rotated, tables_of
from tests.configs.test_huggingface_census import group_of, read

pytest.importorskip("transformers")


def own(model_type: str, config: Any, table: Table) -> Callable[..., Any]:
    def fn(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        rows = positions.expand(len(q), -1) if positions.dim() == 1 else positions
        return rotated(model_type, config, table, q, k, rows)

    return fn


class SameRotation:
    """The rotary code of a model to the letter, and all numbers that it rotates by.

    Equal for model types that hold copies of each other's code: they are identified once.
    """

    def __init__(self, model_type: str, config: Any, table: Table, head_dim: int) -> None:
        self.fn, self.head_dim = own(model_type, config, table), head_dim
        module, code = type(table.module), ROTARY[model_type].modeling
        functions = {
            name: inspect.getsource(value)
            for name, value in vars(code).items()
            if isinstance(value, FunctionType) and ("rot" in name or "interleave" in name)
        }
        forward = inspect.getsource(module.forward) if hasattr(module, "forward") else model_type
        special = model_type if set(functions) - COPIED or model_type in KEEPING else ""
        rope = {key: value for key, value in vars(config).items() if "rope" in key}
        numbers = (table.label, table.inv_freq.tolist(), table.attention_scale, head_dim)
        self.key = repr(
            (special, forward, sorted(functions.items()), sorted(rope.items()), numbers)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameRotation) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


#: Functions that ``rotated`` calls alike for every model type.
COPIED = {"rotate_half", "apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave"}


@functools.cache
def identify(rotation: SameRotation) -> whorl.functions.Identification:
    return whorl.identify(rotation.fn, rotation.head_dim, kind="qk")


def differences(model_type: str) -> list[str]:
    config = config_of(model_type)
    reading, wrong = read(model_type, config), []
    for table in tables_of(model_type, config):
        group = group_of(model_type, reading, table.label)
        assert group is not None
        assert group.rotation is not None
        rope: Any = group.rotation.build()
        found = identify(SameRotation(model_type, config, table, rope.config.head_dim))
        where = f"{model_type} {table.label or ''}: "
        wrong += [where + line for line in compared(found, table, rope)]
        if found.exact is (model_type in KEEPING):
            wrong.append(f"{where}exact is {found.exact}, {found.departs}")
    return wrong


def compared(found: whorl.functions.Identification, table: Table, rope: Any) -> list[str]:
    wrong = []
    ours, theirs = torch.tensor(found.inv_freq).abs().double(), table.inv_freq.double()
    turning = theirs[: len(ours)]
    if bool((theirs[len(ours) :] != 0).any()):
        wrong.append(f"{len(ours)} frequencies, not {len(theirs)}")
    elif not bool(((ours - turning).abs() <= 2e-6 * turning).all()):
        wrong.append(f"frequencies differ: {found}")
    if alone(found) or found.error > 1e-5:
        wrong.append(f"not reproduced: {found.error}, {found.departs}")
    config = rope.config
    wanted = (config.layout, config.out_layout or config.layout, config.rotary_start)
    if (found.layout, found.out_layout, found.rotary_start) != wanted:
        wrong.append(f"{(found.layout, found.out_layout, found.rotary_start)}, not {wanted}")
    if found.sign != (1 if config.direction == "forward" else -1):
        wrong.append(f"direction {found.sign}")
    if abs(found.attention_scale - table.attention_scale) > 1e-6:
        wrong.append(f"scale {found.attention_scale}, not {table.attention_scale}")
    return wrong


#: Modules that keep the table of the last length, so that a call can depend on earlier ones.
KEEPING = ("seamless_m4t", "wav2vec2-bert", "wav2vec2-conformer")
MATES = "a row does not depend on its batch-mates"


def alone(found: whorl.functions.Identification) -> list[str]:
    """Where it departs, but for what comes of other rows and of earlier calls."""
    return [line for line in found.departs if MATES not in line and "earlier calls" not in line]


@pytest.mark.slow
def test_every_model_type_is_identified() -> None:
    wrong = {model_type: differences(model_type) for model_type in ROTARY}
    equal = [model_type for model_type, lines in wrong.items() if not lines]
    count = f"{len(equal)} of {len(ROTARY)}"
    print(f"{count} model types identified")
    assert count == "177 of 177", "\n".join(line for lines in wrong.values() for line in lines)


SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 500_000.0},
    {"rope_type": "linear", "factor": 8.0, "rope_theta": 10_000.0},
    {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0},
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32_768,
        "rope_theta": 1_000_000.0,
    },
    {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "attention_factor": 1.0,
        "truncate": False,
        "rope_theta": 10_000.0,
    },
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "rope_theta": 500_000.0,
    },
    {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
    {
        "rope_type": "longrope",
        "short_factor": [1.0 + i / 64 for i in range(32)],
        "long_factor": [1.0 + i / 4 for i in range(32)],
        "original_max_position_embeddings": 1024,
        "factor": 32.0,
        "rope_theta": 10_000.0,
    },
]


def llama(parameters: dict[str, Any]) -> Callable[..., Any]:
    code = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = code.LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=2048,
        rope_parameters=dict(parameters),
    )
    module = code.LlamaRotaryEmbedding(config)

    def fn(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        return code.apply_rotary_pos_emb(q, k, *module(q, positions))

    return fn


@pytest.mark.parametrize("parameters", SCALINGS, ids=lambda p: p["rope_type"])
def test_rope_parameters_come_back(parameters: dict[str, Any]) -> None:
    """From float32 code to the dictionary it was made of."""
    found = whorl.identify(llama(parameters), 64, kind="qk")
    assert found.error < 1e-5
    follows = parameters["rope_type"] in ("dynamic", "longrope")  # the longest row of a batch
    assert found.exact is not follows
    assert alone(found) == []
    assert any(MATES in line for line in found.departs) is follows
    assert found.precision == "float32"
    assert found.hf is not None
    got, lists = dict(found.hf), ("short_factor", "long_factor")
    for key in lists:
        if key in parameters:
            assert got.pop(key) == pytest.approx(parameters[key], rel=1e-6)
    assert got == {key: value for key, value in parameters.items() if key not in lists}


def test_their_dynamic_depends_on_history_and_batch_mates() -> None:
    report = whorl.check(llama(SCALINGS[2]), 64, kind="qk")
    assert {d.id for d in report.diagnoses} == {"history", "batch-mates"}
    assert report.identified is not None
    assert report.identified.scaling == whorl.DynamicNTK(factor=4.0, original_context=2048)


def test_plain_llama_is_right() -> None:
    report = whorl.check(llama(SCALINGS[0]), 64, kind="qk")
    assert report.ok, str(report)


def test_their_longrope_takes_one_length_for_the_batch() -> None:
    report = whorl.check(llama(SCALINGS[-1]), 64, kind="qk")
    assert [d.id for d in report.diagnoses] == ["batch-mates"]
