"""What ``scripts/golden`` notices, and what it lets pass."""

import math

import pytest
import torch

from . import golden


def test_a_hash_ignores_wording_and_nothing_else() -> None:
    document = {"id": "base-bound", "text": "a sentence", "value": 1.5, "at": [1, None, True]}
    kept = golden.hash_document(document)
    assert golden.hash_document({**document, "text": "another sentence"}) == kept
    assert golden.hash_document({**document, "value": 1.5 + 1e-12}) == kept
    for change in ({"id": "other"}, {"value": 1.50001}, {"at": [1, None, False]}, {"new": 0}):
        assert golden.hash_document({**document, **change}) != kept


def test_every_number_of_a_tensor_moves_its_sketch() -> None:
    x = golden.make_tensor(3, 5)
    kept = {"tensors": {"x": golden.sketch(x)}}
    for place in range(15):
        moved = x.flatten().clone()
        moved[place] += 0.01
        found = {"tensors": {"x": golden.sketch(moved)}}
        (line,) = golden.compare_documents(kept, found)
        assert line.startswith("tensors: x: [")
    assert golden.compare_documents(kept, {"tensors": {"x": golden.sketch(x + 1e-7)}}) == []


def test_new_and_lost_results_are_named() -> None:
    kept = {"a": {"one": "x"}, "b": {"two": "y"}}
    found = {"a": {"one": "x", "three": "z"}, "b": {"two": "refused"}, "c": {"four": "w"}}
    assert golden.compare_documents(kept, found) == [
        "a: three: new",
        "b: two: y became refused",
        "c: four: new",
    ]
    assert golden.compare_documents(found, {"a": {"one": "x"}})[0] == "a: three: gone"


def test_inputs_are_the_same_everywhere() -> None:
    x = golden.make_tensor(2, 3, start=1)
    assert x.dtype == torch.float32
    assert x.flatten().tolist() == pytest.approx([math.sin(c * c * 0.37 + c) for c in range(1, 7)])
