"""Load a model, install whorl, generate the same text as before: install_and_generate.py FOLDER"""

import sys

from transformers import AutoModelForCausalLM, AutoTokenizer

import whorl

folder = sys.argv[1]  # a folder with config.json, weights and tokenizer, or a name of the Hub
model = AutoModelForCausalLM.from_pretrained(folder).eval()
tokenizer = AutoTokenizer.from_pretrained(folder)
inputs = tokenizer("Positions in a Transformer are", return_tensors="pt")

before = model.generate(**inputs, max_new_tokens=40, do_sample=False)
print(whorl.hf.install(model))
after = model.generate(**inputs, max_new_tokens=40, do_sample=False)

print(tokenizer.decode(after[0], skip_special_tokens=True))
print("the same text as without whorl:", before.tolist() == after.tolist())
