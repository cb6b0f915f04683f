"""Encode a long input with T5, without and with whorl: t5_long_input.py [FOLDER]

Without a folder it takes a small model with random weights; the times are what matters here.
"""

import sys
import time

import torch
from transformers import T5Config, T5EncoderModel

import whorl

if len(sys.argv) > 1:
    model = T5EncoderModel.from_pretrained(sys.argv[1])
else:
    model = T5EncoderModel(T5Config(d_model=256, num_heads=8, num_layers=2, d_ff=512))
model.eval()
tokens = torch.randint(0, 1000, (1, 3000))


@torch.no_grad()
def encode() -> torch.Tensor:
    start = time.perf_counter()
    out: torch.Tensor = model(tokens).last_hidden_state
    print(f"  {time.perf_counter() - start:.2f} s for {tokens.shape[1]} tokens")
    return out


print("transformers:")
before = encode()
with whorl.hf.install(model) as installed:
    print(f"{installed}:")
    after = encode()
print(f"largest difference: {float((before - after).abs().max()):.1e}")
