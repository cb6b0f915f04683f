"""Plans: what they hold, how they narrow, what they refuse."""

import pytest

import whorl
from whorl.bench import Cell, Plan
from whorl.bench.rotation.plan import DEFAULT_TABLE, SHAPES


def test_full_plan_has_every_shape_dtype_and_layout() -> None:
    plan = Plan.full().select(threads=[1])
    assert len(plan.list_cells()) == 8 * 3 * 2
    assert "prefill-32768/float16/interleaved/1" in {cell.key for cell in plan.list_cells()}


def test_short_tables_end_before_the_last_position() -> None:
    assert whorl.RoPE(8).config.table_length == DEFAULT_TABLE
    short = {shape.name: shape.short_table for shape in SHAPES}
    assert {name: length for name, length in short.items() if length is not None} == {
        "prefill-8192": 4096,
        "prefill-32768": 4096,
        "decode-1": 4000,
        "decode-32": 4000,
    }
    for shape in SHAPES:
        assert shape.short_table is None or shape.short_table < shape.first + shape.length


def test_quick_plan_is_short() -> None:
    plan = Plan.quick()
    names = {cell.shape.name for cell in plan.list_cells()}
    assert names == {"prefill-512", "prefill-4096", "decode-1", "decode-32", "training-128"}
    assert {cell.threads for cell in plan.list_cells()} == {1}


def test_compiled_peer_runs_where_the_plan_says() -> None:
    quick, full = Plan.quick(), Plan()
    where = {cell.key for cell in quick.list_cells() if quick.is_compiled(cell)}
    assert where == {"prefill-4096/float32/half/1", "prefill-4096/float32/interleaved/1"}
    assert all(full.is_compiled(cell) for cell in full.list_cells())


def test_only_narrows_and_reaches_shapes_of_the_full_plan() -> None:
    plan = Plan.quick().select(
        shapes=["prefill-32768"],
        dtypes=["float16"],
        layouts=["half"],
        peers=["ort"],
        threads=[2],
    )
    assert [cell.key for cell in plan.list_cells()] == ["prefill-32768/float16/half/2"]
    assert plan.peers == ("ort",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": ["prefill-7"]}, "shapes: 'prefill-7' is unknown; known: prefill-512"),
        (
            {"dtypes": ["float64"]},
            "dtypes: 'float64' is unknown; known: float32, bfloat16",
        ),
        ({"layouts": ["halves"]}, "layouts: 'halves' is unknown; known: half, interleaved"),
        ({"threads": [0]}, "repeats and threads must be at least 1"),
    ],
)
def test_only_refuses_what_it_does_not_know(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan.quick().select(**options)


def test_cells_survive_a_round_trip_and_name_themselves() -> None:
    for cell in Plan.quick().list_cells():
        assert Cell.from_dict(cell.to_dict()) == cell
    assert cell.label == "training-128 bfloat16 interleaved, 1 thread"
