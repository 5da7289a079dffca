"""Pillow's resize and torch's tower, for bench/vision-cpu.mjs: a line of JSON asks, a line of JSON answers with milliseconds.

{"resize": [from width, from height, width, height]} or {"tower": THREADS}; needs pillow, torch, transformers.
"""

import json
import sys
import time

PICTURES = {}
TOWERS = {}


def resize(width, height, to_width, to_height):
    from PIL import Image

    key = (width, height)
    if key not in PICTURES:
        import numpy

        random = numpy.random.default_rng(1)
        PICTURES[key] = Image.fromarray(random.integers(0, 256, (height, width, 3), dtype="uint8"))
    began = time.perf_counter()
    PICTURES[key].resize((to_width, to_height), Image.Resampling.BICUBIC)
    return time.perf_counter() - began


def tower(threads):
    import torch
    from transformers import InternVLVisionConfig, InternVLVisionModel

    torch.set_num_threads(threads)
    if threads not in TOWERS:
        # InternViT-300M: sizes are the config's own defaults.
        config = InternVLVisionConfig(
            hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
            image_size=[448, 448], patch_size=[14, 14], attention_bias=True, norm_type="layer_norm",
        )
        TOWERS[threads] = InternVLVisionModel(config).float().eval()
    pixels = torch.rand(1, 3, 448, 448)
    with torch.inference_mode():
        began = time.perf_counter()
        TOWERS[threads](pixels)
        return time.perf_counter() - began


for line in sys.stdin:
    asked = json.loads(line)
    seconds = resize(*asked["resize"]) if "resize" in asked else tower(asked["tower"])
    print(json.dumps({"ms": 1000 * seconds}), flush=True)
