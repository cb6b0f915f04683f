"""Generate text without end, in constant memory: stream_without_end.py FOLDER [TOKENS]

The cache holds the first 4 tokens and the last 256; a text may be as long as you like. The folder
holds config.json, weights and tokenizer of a rotary model, or is a name of the Hub.
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import whorl

folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
model = AutoModelForCausalLM.from_pretrained(folder).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
tokens = tokenizer("Once upon a time", return_tensors="pt")["input_ids"]

whorl.hf.install(model, keys="unrotated")
cache = whorl.hf.SinkCache(sinks=4, window=256)
text: list[int] = []
with torch.no_grad():
    for _ in range(count):
        logits = model(tokens, past_key_values=cache).logits[0, -1]
        tokens = torch.multinomial(logits.softmax(-1), 1)[None]
        text = [*text[-8:], int(tokens)]  # enough to know where words end
        new = tokenizer.decode(text)[len(tokenizer.decode(text[:-1])) :]
        print(new, end="", flush=True)
print(f"\n{cache.get_seq_length()} tokens, {cache.memory / 1e6:.1f} MB of keys and values")
