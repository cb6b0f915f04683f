"""What a launcher says of a process, and which devices and settings are refused."""

import pytest
import torch

from whorl._support.launch import Launch, build_environment, is_main_process, read_launch
from whorl.processes import check_precision, choose_sharding, open_processes
from whorl.processes.devices import choose_device
from whorl.processes.group import ProcessGroup

CPU = torch.device("cpu")


def test_who_this_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_launch({}) is None
    assert read_launch({"ACCELERATE_MIXED_PRECISION": "no"}) == Launch()
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    assert read_launch(address) is None
    with pytest.raises(
        ValueError, match=r"^accelerate launch must start .* with --cpu it starts one"
    ):
        read_launch({"ACCELERATE_MIXED_PRECISION": "no", **address})
    three = {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0"}
    assert read_launch(three) == Launch(2, 3, 0)
    with pytest.raises(ValueError, match=r"^the variable RANK must be a number, .* got 'x'\.$"):
        read_launch({"RANK": "x", "WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match=r"^RANK must be less than WORLD_SIZE; got 2 and 2\. Let"):
        read_launch({"RANK": "2", "WORLD_SIZE": "2"})
    assert is_main_process()
    for name, value in three.items():
        monkeypatch.setenv(name, value)
    assert not is_main_process()
    assert {"RANK", "WORLD_SIZE"}.isdisjoint(build_environment())
    assert build_environment(OMP_NUM_THREADS="1")["OMP_NUM_THREADS"] == "1"


def test_a_process_takes_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the number of GPUs faked: there is none here."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device(None) == CPU  # whorl train without a launcher is as everywhere
    assert choose_device(Launch()) == torch.device("cuda", 0)
    assert choose_device(Launch(3, 4, 1)) == torch.device("cuda", 1)
    with pytest.raises(ValueError, match=r"machine has 2, and got a process number 2, .*node 2\)"):
        choose_device(Launch(2, 4, 2))
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    assert choose_device(Launch(2, 4, 2)) == CPU
    with open_processes() as alone:
        assert (alone.world, alone.device) == (1, CPU)


def test_the_rows_of_a_batch_are_shared_out() -> None:
    found = [
        row
        for rank in range(3)
        for rows in ProcessGroup(rank, 3).split_rows(8, 2)
        for row in range(8)[rows]
    ]
    assert sorted(found) == list(range(8))
    with pytest.raises(ValueError, match=r"^batch must be at least 6, a sequence for 2 passes of"):
        ProcessGroup(0, 3).split_rows(5, 2)
    with pytest.raises(ValueError, match=r"^passes must be a whole number of at least 1; got 0\.$"):
        ProcessGroup().split_rows(5, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ACCELERATE_USE_FSDP": "true"}, r"not ask for FSDP on CPUs: accelerate ignores it there"),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, r"not ask for DeepSpeed, which whorl does not use"),
        ({"ACCELERATE_USE_MEGATRON_LM": "true"}, r"not ask for Megatron-LM, which whorl does not"),
        ({"ACCELERATE_USE_PARALLELISM_CONFIG": "true"}, r"not ask for a parallelism config, which"),
        ({"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}, r"torch.compile, .* --dynamo_backend inductor"),
    ],
)
def test_settings_of_accelerate_that_would_have_no_effect(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        choose_sharding(False, 2, CPU, settings)


def test_what_shards() -> None:
    gpu, fsdp = torch.device("cuda", 0), {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}
    assert not choose_sharding(False, 2, CPU, {})
    assert choose_sharding(True, 2, CPU, {})
    assert choose_sharding(False, 2, gpu, fsdp)
    with pytest.raises(ValueError, match=r"^shard=True needs several processes, .* got one\."):
        choose_sharding(True, 1, CPU, {})
    with pytest.raises(ValueError, match=r"^fsdp_version must be 2 .* got 1\. Set it, or leave"):
        choose_sharding(False, 2, gpu, {"ACCELERATE_USE_FSDP": "true"})
    with pytest.raises(ValueError, match=r"^fsdp_offload_params must be false .* got true\. Set"):
        choose_sharding(False, 2, gpu, {**fsdp, "FSDP_OFFLOAD_PARAMS": "true"})


def test_the_precision_is_that_of_the_launcher() -> None:
    check_precision("float32", {})
    check_precision("bfloat16", {"ACCELERATE_MIXED_PRECISION": "no"})
    check_precision("bfloat16", {"ACCELERATE_MIXED_PRECISION": "bf16"})
    with pytest.raises(ValueError, match=r"asks for, --mixed_precision bf16; got 'float32'\. Pass"):
        check_precision("float32", {"ACCELERATE_MIXED_PRECISION": "bf16"})
    with pytest.raises(ValueError, match=r"asks for, --mixed_precision fp16; .*Use bf16 or no"):
        check_precision("bfloat16", {"ACCELERATE_MIXED_PRECISION": "fp16"})
