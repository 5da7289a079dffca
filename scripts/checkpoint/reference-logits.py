"""Logits behind prompts of a GGUF file by transformers, in float64 of its dequantised weights (norms and rotations in f32, as it has them).

  reference-logits.py FILE < PROMPTS.json > LOGITS.json

A prompt is a list of token ids; what comes back are the logits of its last token. Needs torch, transformers and gguf.
"""
import json
import os
import sys

import torch
import transformers

path, name = os.path.split(os.path.abspath(sys.argv[1]))
model = transformers.AutoModelForCausalLM.from_pretrained(
    path, gguf_file=name, dtype=torch.float32, attn_implementation='eager'
)
model = model.double().eval()
with torch.no_grad():
    logits = [model(torch.tensor([ids])).logits[0, -1].tolist() for ids in json.load(sys.stdin)]
json.dump({'torch': torch.__version__, 'transformers': transformers.__version__, 'logits': logits}, sys.stdout)
