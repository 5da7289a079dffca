"""What transformers makes of a GGUF file: whether each token of some answers is its own choice, in f32 of dequantised weights, and token ids.

  reference.py FILE ASKED.json ANSWERED.json [--folder CONVERTED]

ASKED: {"answers": [{"prompt": "...", "tokens": [ids], "repetitionPenalty": 1.3}], "texts": [...]}. An answer is given whole: where every
token of it is the greedy choice behind those before it, it is the greedy answer. Without --folder transformers reads the file itself; a
folder is one that another tool has dequantised the file into. Needs torch, transformers and gguf.
"""
import argparse
import json
import os

import torch
import transformers

parser = argparse.ArgumentParser()
parser.add_argument('file')
parser.add_argument('asked')
parser.add_argument('answered')
parser.add_argument('--folder')
args = parser.parse_args()

path, name = os.path.split(os.path.abspath(args.file))
where, how = (args.folder, {}) if args.folder else (path, {'gguf_file': name})
with open(args.asked) as file:
    asked = json.load(file)
tokenizer = transformers.AutoTokenizer.from_pretrained(where, **how)
model = transformers.AutoModelForCausalLM.from_pretrained(
    where, dtype=torch.float32, attn_implementation='eager', **how
).eval()


def judge(answer):
    """How many tokens are transformers' own choice, up to the first that is not, and how near another came."""
    prompt = tokenizer(answer['prompt'], add_special_tokens=False).input_ids
    tokens, penalty = answer['tokens'], answer.get('repetitionPenalty', 1)
    ids = prompt + tokens
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].double()
    least, equal = float('inf'), 0
    for i, token in enumerate(tokens):
        scores = logits[len(prompt) + i - 1]
        if penalty != 1:
            seen = torch.tensor(sorted(set(ids[: len(prompt) + i])))
            some = scores[seen]
            scores = scores.clone()
            scores[seen] = torch.where(some > 0, some / penalty, some * penalty)
        best = scores.topk(2)
        if int(best.indices[0]) != token:
            break
        least = min(least, float(best.values[0] - best.values[1]))
        equal += 1
    return {'equal': equal, 'leastMargin': least}


result = {
    'versions': {'torch': torch.__version__, 'transformers': transformers.__version__},
    'weights': 'a converted folder' if args.folder else 'the file, dequantised by transformers',
    'answers': [judge(answer) for answer in asked['answers']],
    'texts': [tokenizer(text, add_special_tokens=False).input_ids for text in asked['texts']],
}
with open(args.answered, 'w') as file:
    json.dump(result, file)
