"""Which device a process computes on, and what accelerate's settings ask for.

A process that a launcher started uses the GPU of its own, where there is one; without a launcher,
and with ``accelerate launch --cpu``, everything is computed on the CPU. GPUs are untried: what is
tested is which device is chosen, with the number of GPUs faked.
"""

import os
from collections.abc import Mapping

import torch

from whorl._support.launch import Launch

__all__ = ["check_precision", "choose_device", "choose_sharding"]

_YES = ("1", "true", "yes", "y", "on", "t")
#: Settings of accelerate that change how a model is trained, and what to do instead.
_REFUSED = (
    ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed", "pass --shard to share out weights"),
    ("ACCELERATE_USE_MEGATRON_LM", "Megatron-LM", "pass --shard to share out weights"),
    ("ACCELERATE_USE_PARALLELISM_CONFIG", "a parallelism config", "pass --shard, or nothing"),
)


def choose_device(launch: Launch | None) -> torch.device:
    """The device of this process; ValueError if it has no GPU of its own on a machine with GPUs."""
    cpu_asked = os.environ.get("ACCELERATE_USE_CPU", "").lower() in _YES
    if launch is None or cpu_asked or not torch.cuda.is_available():
        return torch.device("cpu")
    found = torch.cuda.device_count()
    if launch.local_rank >= found:
        raise ValueError(
            f"there must be a GPU for every process of a machine; this machine has {found}, and got"
            f" a process number {launch.local_rank}, counted from 0. Start {found} processes here"
            f" (--nproc-per-node {found}), or train on CPUs with CUDA_VISIBLE_DEVICES= ."
        )
    return torch.device("cuda", launch.local_rank)


def choose_sharding(
    asked: bool, world: int, device: torch.device, environment: Mapping[str, str] | None = None
) -> bool:
    """Whether weights are shared out: by ``asked``, or by accelerate's FSDP config on GPUs.

    Raises:
        ValueError: settings of accelerate that would have no effect here, or one process only.
    """
    found = os.environ if environment is None else environment
    for variable, what, instead in _REFUSED:
        if found.get(variable, "").lower() in _YES:
            raise ValueError(
                f"accelerate launch must not ask for {what}, which whorl does not use; got"
                f" {variable}={found[variable]}. Leave it out of the config, and {instead}."
            )
    if (compiler := found.get("ACCELERATE_DYNAMO_BACKEND", "no").lower()) != "no":
        raise ValueError(
            "accelerate launch must not ask for torch.compile, which whorl does not use; got"
            f" --dynamo_backend {compiler}. Leave it out of the config, or set it to no."
        )
    if found.get("ACCELERATE_USE_FSDP", "").lower() in _YES:
        _check_fsdp_config(found, device)
        asked = True
    if asked and world == 1:
        raise ValueError(
            "shard=True needs several processes, which share the weights; got one. Start the"
            " command with torchrun --nproc-per-node N, or leave it out."
        )
    return asked


def _check_fsdp_config(found: Mapping[str, str], device: torch.device) -> None:
    if device.type == "cpu":
        raise ValueError(
            "accelerate launch must not ask for FSDP on CPUs: accelerate ignores it there and keeps"
            " the whole model in every process; got ACCELERATE_USE_FSDP="
            f"{found['ACCELERATE_USE_FSDP']}. Leave it out of the config, and pass --shard, which"
            " shards on CPUs too."
        )
    if (version := found.get("FSDP_VERSION", "1")) != "2":
        raise ValueError(
            f"fsdp_version must be 2 in the config of accelerate; got {version}. Set it, or leave"
            " FSDP out and pass --shard."
        )
    if found.get("FSDP_OFFLOAD_PARAMS", "").lower() in _YES:
        raise ValueError(
            "fsdp_offload_params must be false in the config of accelerate: weights stay on their"
            f" device; got {found['FSDP_OFFLOAD_PARAMS']}. Set it to false."
        )


def check_precision(precision: str, environment: Mapping[str, str] | None = None) -> None:
    """Refuse a mixed precision of accelerate that the training does not have."""
    found = os.environ if environment is None else environment
    asked = found.get("ACCELERATE_MIXED_PRECISION", "no").lower()
    if asked not in ("no", {"bfloat16": "bf16"}.get(precision, "no")):
        what = "Pass --precision bfloat16 too" if asked == "bf16" else "Use bf16 or no"
        raise ValueError(
            f"precision must be what accelerate launch asks for, --mixed_precision {asked}; got"
            f" {precision!r}. {what}, or --mixed_precision no."
        )
