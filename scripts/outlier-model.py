"""Makes a checkpoint whose keys have what those of Qwen2 have, and which answers as the model that it is made of.

  outlier-model.py LLAMA_FOLDER OUT [--bias B] [--outlier S]

LLAMA_FOLDER: a Llama of Hugging Face with heads of D dims (SmolLM2: 64). OUT: a Qwen2 with heads of 2 D dims and biases of q, k and v:

- A rotation of 2 D dims has the frequencies of one of D dims as every other one: pair i goes to pair 2 i, and nothing that it rotates to changes.
- The new pairs have no weights, but biases. The slowest three have keys of B and queries of a tenth: they turn little over a context, move all scores of a
  query nearly alike, and so change the model a little, as a bias of Qwen2 does.
- Of the old pairs every eighth has keys S times as large and queries S times smaller: outlier channels. Scores are what they were.
- Queries are larger by √2, for scores are divided by √(2 D).

The model that comes out is one of its own: what formats cost it is measured against its own float KV.
"""
import argparse
import json
import math
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file

args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
args.add_argument('source', type=pathlib.Path)
args.add_argument('out', type=pathlib.Path)
args.add_argument('--bias', type=float, default=40.0)
args.add_argument('--outlier', type=float, default=6.0)
options = args.parse_args()

config = json.loads((options.source / 'config.json').read_text())
heads, kv_heads, hidden = config['num_attention_heads'], config['num_key_value_heads'], config['hidden_size']
dim = config.get('head_dim') or hidden // heads
half = dim // 2
generator = torch.Generator().manual_seed(7)

# Where each dim of a head goes: of a pair (i, i + half) to (2 i, 2 i + dim).
place = torch.tensor([2 * i for i in range(half)] + [2 * i + dim for i in range(half)])
scale = torch.ones(dim)
for pair in range(3, half, 8):
    scale[[pair, pair + half]] = options.outlier


def widened(weight, count, factor):
    """`[count · dim, hidden]` to `[count · 2 dim, hidden]`."""
    out = torch.zeros(count, 2 * dim, weight.shape[1])
    out[:, place] = weight.float().unflatten(0, (count, dim)) * factor[:, None]
    return out.flatten(0, 1)


def biases(count, size):
    """Of the slowest new pairs, the odd ones: signs drawn for each head."""
    out = torch.zeros(count, 2 * dim)
    for pair in range(2 * half - 5, 2 * half, 2):
        for at in (pair, pair + dim):
            out[:, at] = size * (torch.randint(0, 2, (count,), generator=generator) * 2.0 - 1)
    return out.flatten()


tensors = {}
for path in sorted(options.source.glob('*.safetensors')):
    tensors.update(load_file(path))
for layer in range(config['num_hidden_layers']):
    at = f'model.layers.{layer}.self_attn.'
    tensors[f'{at}q_proj.weight'] = widened(tensors[f'{at}q_proj.weight'], heads, math.sqrt(2) / scale)
    tensors[f'{at}k_proj.weight'] = widened(tensors[f'{at}k_proj.weight'], kv_heads, scale)
    tensors[f'{at}v_proj.weight'] = widened(tensors[f'{at}v_proj.weight'], kv_heads, torch.ones(dim))
    out = tensors[f'{at}o_proj.weight'].float()
    tensors[f'{at}o_proj.weight'] = widened(out.T, heads, torch.ones(dim)).T.contiguous()
    tensors[f'{at}q_proj.bias'] = biases(heads, options.bias / 10)
    tensors[f'{at}k_proj.bias'] = biases(kv_heads, options.bias)
    tensors[f'{at}v_proj.bias'] = torch.zeros(kv_heads * 2 * dim)
config |= {'architectures': ['Qwen2ForCausalLM'], 'model_type': 'qwen2', 'head_dim': 2 * dim}
for name in ('attention_bias', 'mlp_bias', 'pretraining_tp'):
    config.pop(name, None)
options.out.mkdir(parents=True, exist_ok=True)
save_file({name: t.half().contiguous() for name, t in tensors.items()}, options.out / 'model.safetensors', {'format': 'pt'})
(options.out / 'config.json').write_text(json.dumps(config, indent=1))
for path in options.source.glob('*token*'):
    shutil.copy(path, options.out)
for name in ('generation_config.json', 'chat_template.jinja'):
    if (options.source / name).exists():
        shutil.copy(options.source / name, options.out)
