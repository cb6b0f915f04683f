"""Generate with frequencies that follow the length, and run the text again where they change.

Rotating all keys with the present frequencies is exact in one layer. In a deep model the hidden
states of earlier tokens were made with earlier frequencies; only running them again changes that.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .unrotated import UnrotatedCache

__all__ = ["generate_recomputed"]


def generate_recomputed(
    model: PreTrainedModel,
    input_ids: Tensor,
    *,
    max_new_tokens: int,
    lengths: Sequence[int],
    **settings: Any,
) -> Tensor:
    """Text as ``model.generate`` gives it, run anew whenever it has reached one of ``lengths``.

    For a model installed with ``keys="unrotated"`` whose scaling depends on the length. LongRoPE
    switches once, after its original context: ``lengths=[original_context + 1]``. With DynamicNTK
    every length costs one run of the text and brings the hidden states up to date.

    Args:
        input_ids: one row, [1, T], because rows reach a length at different times.
        settings: of ``model.generate``, such as do_sample=True.
    """
    unknown = {"attention_mask", "past_key_values", "num_return_sequences"} & settings.keys()
    unknown |= {"return_dict_in_generate"} & settings.keys()
    if unknown:
        raise ValueError(
            f"generate_recomputed: {', '.join(sorted(unknown))} cannot be set, because the text is"
            " generated in several runs, one row without padding. Leave them out."
        )
    config = settings.get("generation_config") or model.generation_config
    beams = settings.get("num_beams") or config.num_beams or 1
    if input_ids.dim() != 2 or input_ids.shape[0] != 1 or beams != 1:
        raise ValueError(
            "generate_recomputed: input_ids must be one row [1, T], without beams, because rows"
            f" reach a length at different times; got {list(input_ids.shape)} and num_beams="
            f"{beams}. Call it for each row."
        )
    end, eos = (
        input_ids.shape[1] + max_new_tokens,
        settings.get("eos_token_id", config.eos_token_id),
    )
    ends = eos if isinstance(eos, list) else [eos]
    for stop in [*sorted(n for n in lengths if input_ids.shape[1] < n < end), end]:
        input_ids = model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            max_new_tokens=stop - input_ids.shape[1],
            past_key_values=UnrotatedCache(),
            **settings,
        )
        if input_ids.shape[1] < stop or int(input_ids[0, -1]) in ends:  # the text has ended
            break
    return input_ids
