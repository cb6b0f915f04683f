"""Attention that several processes share: its heads, or its sequence.

    HeadParallel        tensor parallel: each process has some of the heads of a layer
    sharded_attention   context parallel: each process has some of the tokens of a sequence

Both run on any process group of torch.distributed, gloo on CPUs among them. docs/parallel.md says
how encodings work there, under FSDP2, and in the stages of a pipeline.
"""

from .heads import HeadParallel, ShardedHeads
from .sequences import sharded_attention

__all__ = ["HeadParallel", "ShardedHeads", "sharded_attention"]
