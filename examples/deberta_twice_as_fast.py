"""Classify long texts with DeBERTa v3, without and with whorl: deberta_twice_as_fast.py [FOLDER]

Without a folder it takes two layers of base size with random weights; the times are what matters.
"""

import sys
import time

import torch
from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

import whorl

if len(sys.argv) > 1:
    model = DebertaV2ForSequenceClassification.from_pretrained(sys.argv[1])
else:
    v3 = {"pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "share_att_key": True}
    v3 |= {"relative_attention": True, "position_buckets": 256, "position_biased_input": False}
    size = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
    config = DebertaV2Config(vocab_size=1000, num_hidden_layers=2, **size, **v3)
    model = DebertaV2ForSequenceClassification(config)
model.eval()
tokens = torch.randint(0, 1000, (1, 1024))


@torch.no_grad()
def classify() -> torch.Tensor:
    model(tokens)  # what is made once, such as projected position vectors, is not what matters
    start = time.perf_counter()
    out: torch.Tensor = model(tokens).logits
    print(f"  {time.perf_counter() - start:.2f} s for {tokens.shape[1]} tokens")
    return out


print("transformers:")
before = classify()
with whorl.hf.install(model) as installed:
    print(f"{installed}:")
    after = classify()
print(f"largest difference: {float((before - after).abs().max()):.1e}")
