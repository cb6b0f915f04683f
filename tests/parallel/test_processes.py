"""Two processes on gloo give what one gives: heads, sequences, FSDP2 and pipeline stages.

All of it runs in one start of the two processes, because importing torch takes most of the time.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from torch.multiprocessing.spawn import spawn

from . import processes

pytestmark = pytest.mark.slow

REFUSALS = {
    "dtensor": r"attention: q must be a plain tensor.*got a DTensor \[1, 8, 4, 8\].*shard_heads",
    "rotated": r"RoPE: q must be a plain tensor.*got a DTensor",
    "shards": r"sharded_attention: q, k and v must be a plain tensor.*got a DTensor",
    "wrapped": r"parameters of the encoding must be plain.*got DTensors in FSDPT5Bias.*wrap the la",
    "lengths": r"all processes must call it alike.*got others than on rank 0.*Pad the sequence",
    "options": r"all processes must call it alike.*'softcap': 1\.0",
    "heads": r"HeadParallel: num_heads must be divisible by the size of the mesh, 2,.*got 3\.",
    "again": r"must be a whorl\.MultiheadAttention that is not split yet; got ShardedHeads",
    "tied": r"must have projections of its own.*got DeBERTa.*projections='own'",
    "cache": r"cache must be built with the encoding of this process's heads.*ALiBi\(4\)",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("processes")
    spawn(processes.run, (2, str(folder)), nprocs=2)
    return json.loads(Path(folder, "found.json").read_text(encoding="utf-8"))


def test_parts_equal_the_whole(found: Any) -> None:
    differences = found["differences"]
    kinds = {key.split()[0] for key in differences}
    assert kinds == {"gather", "ring", "heads", "fsdp", "pipeline", "decode"}
    assert len(differences) == 3 * len(processes.ENCODINGS) + 10
    assert {key: value for key, value in differences.items() if not value < 1e-5} == {}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_would_be_wrong_is_refused(found: Any, name: str) -> None:
    assert found["refusals"].keys() == REFUSALS.keys()
    assert re.search(REFUSALS[name], found["refusals"][name]), found["refusals"][name]


def test_the_code_of_the_page_runs(found: Any) -> None:
    assert found["examples"] == 6
