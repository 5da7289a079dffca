import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../../models/families.js';
import { RandomWeights, shapeFields, shapeModel } from '../../models/shapes.js';
import { countDecode, countModel, countPrefill, type KvLayerBytes } from './floor-count.js';

/** Vocabulary 256, hidden 384, MLP 1024, 8 layers, 4 query and 2 KV heads of 128, head and embedding tied. */
const demo = () => countModel(new RandomWeights(), shapeModel('demo', { vocab: 256 }), undefined);
const f16: KvLayerBytes[] = Array.from({ length: 8 }, () => ({ keyBytes: 512, valueBytes: 512 }));

// Outputs × inputs of q with k and v, of o, of gate with up, and of down.
const QKV = 1024 * 384;
const LAYER = QKV + 384 * 512 + 2048 * 384 + 384 * 1024;
const HEAD = 256 * 384;
// 4-bit codes, and an f16 scale and bias for each 64.
const BYTES_OF_64 = 32 + 4;

describe('what a case has to do', () => {
  it('counts a step of decoding', () => {
    const rows = 3;
    const work = countDecode(demo(), f16, rows, 100);
    expect(work.bytes).toBe(((8 * LAYER + HEAD) / 64) * BYTES_OF_64 + rows * 100 * 8 * 1024);
    // Attention: 2 for a multiplication with its sum, once with K and once with V, over 4 heads of 128.
    expect(work.operations).toBe(rows * (2 * (8 * LAYER + HEAD) + 8 * 100 * 2 * 2 * 512));
    // The embedding, six in a layer, the head, the draw.
    expect(work.launches).toBe(1 + 8 * 6 + 1 + 1);
    // Of one row the product of q, k and v appends.
    expect(countDecode(demo(), f16, 1, 100).launches).toBe(1 + 8 * 5 + 1 + 1);
  });

  it('reads the states of recurrent layers, of every row', () => {
    const states = f16.map((layer, i) => (i < 6 ? { keyBytes: 0, valueBytes: 0, stateBytes: 4096 } : layer));
    const model = demo();
    const without = states.map(({ keyBytes, valueBytes }) => ({ keyBytes, valueBytes }));
    const more = countDecode(model, states, 3, 100).bytes - countDecode(model, without, 3, 100).bytes;
    expect(more).toBe(3 * 6 * 4096);
  });

  it('counts prompts, of whose last layer only what the last tokens need', () => {
    const work = countPrefill(demo(), 2, 10, 8);
    const tokens = 2 * 10;
    const products = tokens * (7 * LAYER + QKV) + 2 * (LAYER - QKV + HEAD);
    // 1 + 2 + … + 10 pairs in each layer, 10 in the last.
    expect(work.operations).toBe(2 * products + 2 * (7 * 55 + 10) * 2 * 2 * 512);
    // 20 tokens are three steps of 8.
    expect(work.launches).toBe(3 * 51);
    expect(work.bytes).toBe(3 * ((8 * LAYER + HEAD) / 64) * BYTES_OF_64);
  });

  it('does not read an embedding that is not the head', () => {
    const model = shapeModel('demo', { vocab: 256 }).withTied(false);
    const untied = countModel(new RandomWeights(), model, undefined);
    expect(untied.productBytes).toBe(demo().productBytes);
  });

  it('sees no more than the window', () => {
    const types = Array.from({ length: 8 }, (_, layer) =>
      layer === 0 ? 'sliding_attention' : 'full_attention',
    );
    const fields = {
      ...shapeFields('demo', { vocab: 256 }),
      layer_types: types,
      use_sliding_window: true,
      sliding_window: 4,
    };
    const sliding = countModel(new RandomWeights(), parseModelConfig(fields), undefined);
    const full = demo();
    const [a, b] = [countDecode(full, f16, 1, 100), countDecode(sliding, f16, 1, 100)];
    expect(a.bytes - b.bytes).toBe(96 * 1024);
    expect(a.operations - b.operations).toBe(96 * 2048);
    const [c, d] = [countPrefill(full, 1, 10, 16), countPrefill(sliding, 1, 10, 16)];
    // 1, 2, 3 and seven times 4 instead of 55.
    expect(c.operations - d.operations).toBe((55 - 34) * 2048);
  });

  it('reads a checkpoint as it will be kept', () => {
    const float = new RandomWeights({ kind: 'float', dtype: 'f16' });
    const eight = countModel(float, shapeModel('demo', { vocab: 256 }), { bits: 8, groupSize: 64 });
    expect(eight.format).toMatchObject({ kind: 'affine', bits: 8, groupSize: 64 });
    expect(eight.productBytes).toBe(((8 * LAYER + HEAD) / 64) * (64 + 4));
  });
});
