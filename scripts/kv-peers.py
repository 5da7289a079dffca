"""What the KV formats of other projects cost in quality, simulated in PyTorch: KL from float KV, top-1 agreement, bytes a vector.

  kv-peers.py MODEL TEXT --calibrate OTHER [--tokens N] [--formats q8_0,q4_0,…]

MODEL: a Llama folder of Hugging Face, or a GGUF of one. Every key and value is stored first and attended to after, as `kvant eval kv`
has it, and positions from 64 on are counted, so figures compare with its `"from": 64`. OTHER is what offline codecs (KVQuant) see.

- q8_0, q4_0, q4_1: llama.cpp's blocks of 32 along head_dim.
- kivi4, kivi2 (arXiv 2402.02750): keys by channel over groups of 32 tokens, values by token in groups of 32; the last 128 tokens of
  the context stay float in the paper, which depends on the query and is left out: figures are of what has left that window.
- kvquant4 (arXiv 2401.18079): keys before rotation, by channel, values by token, 16 levels of k-means from OTHER, 1 % of each vector
  kept exactly.
- turbo4, turbo3 (arXiv 2504.19874): random rotation, Lloyd-Max levels of the normal distribution, a norm a vector. No centre, no head.
"""
import argparse
import math
import os

import torch
import transformers

GROUP = 32


def uniform(x, bits, dim):
    """Least value and step of each run along `dim`, as halves."""
    low, high = x.amin(dim, keepdim=True), x.amax(dim, keepdim=True)
    low = low.half().float()
    step = ((high - low) / (2**bits - 1)).half().float().clamp(min=1e-8)
    return ((x - low) / step).round().clamp(0, 2**bits - 1) * step + low


def blocks(x, size=GROUP):
    return x.unflatten(-1, (-1, size))


def symmetric(x, bits):
    """q8_0: the step is the greatest magnitude over 127. q4_0: the value of greatest magnitude over −8."""
    g = blocks(x)
    if bits == 8:
        d = (g.abs().amax(-1, keepdim=True) / 127).half().float().clamp(min=1e-8)
        q = (g / d).round().clamp(-127, 127)
    else:
        at = g.abs().argmax(-1, keepdim=True)
        d = (g.gather(-1, at) / -8).half().float()
        d = torch.where(d == 0, torch.full_like(d, 1e-8), d)
        q = torch.floor(g / d + 8.5).clamp(0, 15) - 8
    return (q * d).flatten(-2)


def by_channel(x, bits):
    """`[…, tokens, dims]`: groups of 32 tokens; a group that is not full stays float."""
    whole = x.shape[-2] // GROUP * GROUP
    g = x[..., :whole, :].unflatten(-2, (-1, GROUP))
    return torch.cat([uniform(g, bits, -2).flatten(-3, -2), x[..., whole:, :]], -2)


def lloyd_max(bits):
    """Levels of least squared error for the normal distribution."""
    n = torch.distributions.Normal(0.0, 1.0)
    c = torch.linspace(-3, 3, 2**bits, dtype=torch.float64)
    for _ in range(3000):
        edges = torch.cat([torch.tensor([-30.0], dtype=torch.float64), (c[1:] + c[:-1]) / 2, torch.tensor([30.0], dtype=torch.float64)])
        density = torch.exp(-(edges**2) / 2) / math.sqrt(2 * math.pi)
        mass = n.cdf(edges.float()).double().diff()
        c = -density.diff() / mass
    return c.float()


def nearest(x, levels):
    """`levels` ascending, `[…, n]` beside the last but one dims of x, or `[n]`."""
    if levels.dim() == 1:
        return levels[torch.bucketize(x, (levels[1:] + levels[:-1]) / 2)]
    middles = (levels[..., 1:] + levels[..., :-1]) / 2
    codes = (x.unsqueeze(-1) > middles).sum(-1)
    return levels.expand(*codes.shape, -1).gather(-1, codes.unsqueeze(-1)).squeeze(-1)


class Turbo:
    def __init__(self, bits, dim):
        h = torch.ones(1, 1)
        while h.shape[0] < dim:
            h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
        signs = torch.randint(0, 2, (dim,), generator=torch.Generator().manual_seed(7)) * 2 - 1
        self.turn, self.levels = (h * signs) / math.sqrt(dim), lloyd_max(bits) / math.sqrt(dim)

    def __call__(self, x):
        norm = x.norm(dim=-1, keepdim=True).clamp(min=1e-9)
        return nearest((x / norm) @ self.turn.T, self.levels) @ self.turn * norm.half().float()


def kmeans(x, n, rounds=40):
    """Levels of each row of x, ascending."""
    levels = torch.quantile(x, (torch.arange(n) + 0.5) / n, dim=-1).T.contiguous()
    for _ in range(rounds):
        codes = torch.searchsorted(((levels[:, 1:] + levels[:, :-1]) / 2).contiguous(), x.contiguous())
        sums = torch.zeros_like(levels).scatter_add_(1, codes, x)
        counts = torch.zeros_like(levels).scatter_add_(1, codes, torch.ones_like(x))
        levels = torch.where(counts > 0, sums / counts.clamp(min=1), levels).sort(-1).values
    return levels


def keep_outliers(x, stored):
    """The 1 % of each vector that is furthest off stays as it is: at least one number."""
    count = max(1, round(x.shape[-1] / 100))
    at = (x - stored).abs().topk(count, -1).indices
    return stored.scatter(-1, at, x.gather(-1, at))


class Model:
    def __init__(self, path):
        folder, name = os.path.split(path)
        gguf = {'gguf_file': name} if path.endswith('.gguf') else {}
        where = folder if gguf else path
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(where, **gguf)
        transformers.AttentionInterface.register('stored', self.attend)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            where, torch_dtype=torch.float32, attn_implementation='stored', **gguf)
        self.store = lambda key, value, layer: (key, value)
        config = self.model.config
        self.dim = getattr(config, 'head_dim', None) or config.hidden_size // config.num_attention_heads

    def attend(self, module, query, key, value, mask, scaling=None, **_):
        key, value = self.store(key, value, module.layer_idx)
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scores = query @ key.transpose(2, 3) * (scaling or self.dim**-0.5)
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        weights = scores.masked_fill(~causal, -torch.inf).softmax(-1)
        return (weights @ value).transpose(1, 2).contiguous(), weights

    @torch.no_grad()
    def logits(self, ids):
        return self.model(ids, use_cache=False).logits[0].double().log_softmax(-1)

    def turned(self, key, back):
        """Rotates keys to their positions, or takes that back."""
        places = torch.arange(key.shape[-2]).unsqueeze(0)
        cos, sin = self.model.model.rotary_emb(key, places)
        half = torch.cat([-key[..., self.dim // 2 :], key[..., : self.dim // 2]], -1)
        return key * cos + half * (-sin if back else sin)


def kvquant(model, other, bits=4):
    seen = {}

    def look(key, value, layer):
        own = model.turned(key, True)[0].transpose(1, 2).flatten(0, 1)
        v = value / value.abs().amax(-1, keepdim=True)
        seen[layer] = (kmeans(own, 2**bits), kmeans(v.reshape(1, -1)[:, :20000], 2**bits)[0])
        return key, value

    model.store = look
    model.logits(other)

    def store(key, value, layer):
        keys, values = seen[layer]
        own = model.turned(key, True)
        levels = keys.view(1, key.shape[1], 1, model.dim, -1)
        top = value.abs().amax(-1, keepdim=True).half().float()
        return (model.turned(keep_outliers(own, nearest(own, levels)), False),
                keep_outliers(value, nearest(value / top, values) * top))

    return store


def formats(model, other):
    dim = model.dim
    turbo = {bits: Turbo(bits, dim) for bits in (3, 4)}
    both = lambda f: lambda k, v, _: (f(k), f(v))
    kivi = lambda bits: lambda k, v, _: (by_channel(k, bits), uniform(blocks(v), bits, -1).flatten(-2))
    exact = max(1, round(dim / 100)) * 4
    return {
        'q8_0': (dim * 34 / 32, lambda: both(lambda x: symmetric(x, 8))),
        'q4_0': (dim * 18 / 32, lambda: both(lambda x: symmetric(x, 4))),
        'q4_1': (dim * 20 / 32, lambda: both(lambda x: uniform(blocks(x), 4, -1).flatten(-2))),
        'kivi4': (dim * 5 / 8, lambda: kivi(4)),
        'kivi2': (dim * 3 / 8, lambda: kivi(2)),
        'kvquant4': (dim / 2 + exact + 1, lambda: kvquant(model, other)),
        'turbo4': (dim / 2 + 2, lambda: both(turbo[4])),
        'turbo4/turbo3': (dim * 7 / 16 + 2, lambda: lambda k, v, _: (turbo[4](k), turbo[3](v))),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('model')
    parser.add_argument('text')
    parser.add_argument('--calibrate', required=True)
    parser.add_argument('--tokens', type=int, default=1500)
    parser.add_argument('--formats')
    options = parser.parse_args()
    model = Model(options.model)
    read = lambda name, most: model.tokenizer(open(name).read(), return_tensors='pt').input_ids[:, :most]
    ids, other = read(options.text, options.tokens), read(options.calibrate, 1024)
    base = model.logits(ids)[64:]
    print(f'{ids.shape[1]} tokens, positions from 64 on; OTHER: {other.shape[1]}')
    for name, (size, make) in formats(model, other).items():
        if options.formats and name not in options.formats.split(','):
            continue
        model.store = make()
        own = model.logits(ids)[64:]
        kl = (base.exp() * (base - own)).sum(-1).mean()
        top = (base.argmax(-1) == own.argmax(-1)).double().mean()
        print(f'{name:14} {size:5.1f} B  KL {kl:.4f}  top-1 {100 * top:.1f} %', flush=True)


if __name__ == '__main__':
    main()
