import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseModelConfig } from '../../models/families.js';
import { resolveWeights, sourceBytes } from '../../models/resolve-weights.js';
import { Tokenizer } from '../../text/tokenizer.js';
import { Checkpoint } from '../../weights/checkpoint.js';
import { writeShapeCheckpoint } from './checkpoint.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-checkpoint-'));
});
afterAll(() => rm(folder, { recursive: true }));

describe('writeShapeCheckpoint', () => {
  it('writes a folder that is whole: every tensor the model needs and no other, in shards', async () => {
    const path = join(folder, 'demo');
    const seen: number[] = [];
    const bytes = await writeShapeCheckpoint('demo', path, {
      vocab: 1000,
      maxShardBytes: 2e6,
      onBytes: (done, total) => seen.push(done / total),
    });
    const names = (await readdir(path)).filter((name) => name.endsWith('.safetensors'));
    expect(names.length).toBeGreaterThan(2);
    const sizes = await Promise.all(names.map(async (name) => (await stat(join(path, name))).size));
    expect(sizes.reduce((a, b) => a + b)).toBe(bytes);
    expect(seen.at(-1)).toBe(1);

    await using checkpoint = await Checkpoint.open(path);
    const { facts, layout } = parseModelConfig(checkpoint.config);
    expect(facts).toMatchObject({ layers: 8, hiddenSize: 384, vocabSize: 1000 });
    const { matrices } = resolveWeights(checkpoint, layout, undefined);
    let stored = 0;
    for (const { parts } of matrices)
      for (const part of parts) {
        expect(part.format).toEqual({ kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' });
        const { data, scales } = await part.readRows(part.rows - 1, part.rows);
        expect(new Set(data).size).toBeGreaterThan(16);
        expect(new Uint16Array(scales!.slice().buffer)[0]).toBeGreaterThan(0);
        stored += sourceBytes(part);
      }
    expect(stored).toBeLessThan(bytes);
    expect(stored).toBeGreaterThan(0.95 * bytes);
  });

  it('has a tokenizer in which every id is a text of its own and any text can be written', async () => {
    const tokenizer = await Tokenizer.load(join(folder, 'demo'));
    expect(tokenizer.vocabSize).toBe(1000);
    const words = Array.from({ length: 744 }, (_, i) => tokenizer.decode([256 + i]));
    expect(new Set(words).size).toBe(744);
    expect(words.every((word) => /^ [a-z]+$/.test(word))).toBe(true);
    const text = 'Größe: 3 µm\n\t\u0000 – 日本 🎈';
    const ids = tokenizer.encode(text);
    expect(tokenizer.decode(ids)).toBe(text);
    expect(ids).toHaveLength(Buffer.byteLength(text));
  });

  it('refuses a folder that exists, and a shape that does not', async () => {
    await expect(writeShapeCheckpoint('demo', folder)).rejects.toMatchObject({
      code: 'folder-not-new',
      fix: expect.stringContaining('does not exist'),
    });
    const path = join(folder, 'none');
    await expect(writeShapeCheckpoint('gpt-9', path)).rejects.toMatchObject({ code: 'shape-unknown' });
    await expect(stat(path)).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
