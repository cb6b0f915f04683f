"""Every adapter computes the rotation in all it claims to support, and a wrong one is caught."""

from typing import Any

import pytest
import torch

import whorl
from whorl.bench import Cell, Plan, Shape
from whorl.bench.rotation.case import RotationCase
from whorl.bench.rotation.peers import ALL, NAMES, OURS, Peer, PeerCall, select_peers
from whorl.bench.rotation.peers import whorl as peers_of_whorl
from whorl.bench.rotation.peers.whorl import Copy, Whorl
from whorl.bench.rotation.results import PAST
from whorl.bench.rotation.runner import measure_cell, verify

from .shapes import DECODE, PREFILL, TRAINING

LONG = Shape("prefill", 1, 2, 1, 4100, 16)
SHAPES = {shape.kind: shape for shape in (PREFILL, DECODE, TRAINING)}
CONTESTANTS = {peer.name: peer for peer in (Whorl(), *ALL)}


def cases() -> list[Any]:
    """Each contestant in each cell that it says it can do; of the slow compiled ones, a few."""
    found = []
    compiled = {("prefill", "float32", "half"), ("training", "bfloat16", "interleaved")}
    for name, peer in CONTESTANTS.items():
        for cell in Plan(shapes=tuple(SHAPES.values())).list_cells():
            if name == "hf-compiled" and (cell.shape.kind, cell.dtype, cell.layout) not in compiled:
                continue
            if peer.supports(cell):
                marks = [pytest.mark.slow] if name == "hf-compiled" else []
                found.append(pytest.param(name, cell, id=f"{name}-{cell.key}", marks=marks))
    return found


@pytest.mark.parametrize(("name", "cell"), cases())
def test_contestant_computes_the_rotation(name: str, cell: Cell) -> None:
    peer = CONTESTANTS[name]
    if problem := peer.explain_missing():
        pytest.skip(problem)
    case = RotationCase(cell)
    with torch.set_grad_enabled(case.training):
        entries = peer.build_calls(case)
        assert entries
        for entry in entries:
            assert (entry.mode == "training") == case.training
            assert verify(peer, entry, case) is None


def test_whorl_offers_all_forms() -> None:
    case = RotationCase(Cell(PREFILL, "float32", "half", 1))
    forms = ["inplace", "out", "fresh", "bound"]
    assert [entry.mode for entry in Whorl().build_calls(case)] == forms
    case = RotationCase(Cell(DECODE, "float32", "half", 1))
    others = ["xpos", "mrope", "axial", "xpos-past", "mrope-past", "axial-past"]
    assert [entry.mode for entry in Whorl().build_calls(case)] == [*forms, "past", *others]


@pytest.mark.parametrize("mode", PAST)
def test_a_shape_past_the_table_is_measured_with_both_tables(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call; only the length of the table differs."""
    lengths: dict[str, list[int]] = {}
    for kind in (whorl.RoPE, whorl.XPos, whorl.MRoPE, whorl.AxialRoPE):

        def build(*args: Any, kind: Any = kind, **options: Any) -> Any:
            lengths.setdefault(kind.__name__, []).append(options["table_length"])
            return kind(*args, **options)

        monkeypatch.setattr(peers_of_whorl, kind.__name__, build)
    case = RotationCase(Cell(LONG, "bfloat16", "interleaved", 1))
    entries: dict[str, PeerCall] = {entry.mode: entry for entry in Whorl().build_calls(case)}
    assert set(map(tuple, lengths.values())) == {(4100, 4096)}
    results = []
    for each in (PAST[mode], mode):
        case.reset()
        results.append([x.clone() for x in entries[each].results()])
    assert all(torch.equal(inside, past) for inside, past in zip(*results, strict=True))


def test_copy_moves_all_tensors() -> None:
    case = RotationCase(Cell(TRAINING, "float32", "half", 1))
    case.reset()
    Copy().build_calls(case)[0].call()
    assert torch.equal(case.q_out, case.q)
    assert torch.equal(case.k_out, case.k)
    assert torch.equal(case.q_inplace, case.q_grad)


class Wrong(Peer):
    """Rotates in the other layout, or otherwise amiss."""

    name = "hf"
    title = "wrong"

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def build_calls(self, case: RotationCase) -> list[PeerCall]:
        cell = case.cell
        if self.fault == "raises":
            raise RuntimeError("no such kernel\nand a long story")
        other = "half" if cell.layout == "interleaved" else "interleaved"
        layout = other if self.fault == "layout" else cell.layout
        right = Whorl().build_calls(RotationCase(Cell(cell.shape, cell.dtype, layout, 1)))[-1]

        def results() -> list[torch.Tensor]:
            found = [x.clone() for x in right.results()]
            if self.fault == "last position":
                found[0][:, :, -1] *= 1.01
            elif self.fault == "nan":
                found[1][..., 0] = torch.nan
            elif self.fault == "gradient":
                found[3].neg_()
            elif self.fault == "dtype":
                found[0] = found[0].double()
            elif self.fault == "count":
                found.pop()
            return found

        return [PeerCall(right.mode, right.call, results)]


@pytest.mark.parametrize(
    ("fault", "shape", "message"),
    [
        ("layout", PREFILL, "q is off by"),
        ("last position", PREFILL, "q is off by"),
        ("nan", PREFILL, "k is off by nan"),
        ("dtype", PREFILL, "q is torch.float64"),
        ("count", PREFILL, "gave 1 results instead of 2"),
        ("gradient", TRAINING, "gradient of k is off by"),
        ("raises", PREFILL, "RuntimeError: no such kernel"),
    ],
)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_wrong_contestant_is_reported_and_not_timed(
    fault: str, shape: Shape, message: str, layout: str
) -> None:
    plan = Plan(repeats=1, sample_seconds=0.0)
    found = measure_cell(Cell(shape, "float32", layout, 1), [Copy(), Wrong(fault)], plan)
    copy, wrong = found.results
    assert copy.timing is not None
    assert wrong.timing is None
    assert wrong.problem is not None
    assert wrong.problem.startswith(message)


def test_wrong_peer_passes_without_a_fault() -> None:
    """The test above fails for the fault, not for the scaffold."""
    case = RotationCase(Cell(PREFILL, "float32", "half", 1))
    peer = Wrong("none")
    assert verify(peer, peer.build_calls(case)[0], case) is None


def test_a_peer_that_does_not_import_says_why() -> None:
    class Absent(Wrong):
        module = "no_such_module_anywhere"

    problem = Absent("none").explain_missing()
    assert problem == "ModuleNotFoundError: No module named 'no_such_module_anywhere'"


def test_chosen_keeps_whorl_and_refuses_strangers() -> None:
    assert [peer.name for peer in select_peers(("meta",))] == ["copy", OURS, "meta"]
    assert len(select_peers(None)) == len(NAMES) + 2
    with pytest.raises(ValueError, match="peers: 'tf' is unknown; known: hf, "):
        select_peers(("tf",))
