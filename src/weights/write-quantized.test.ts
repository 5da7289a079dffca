import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import {
  bytesOf,
  f32,
  failure,
  folderWith,
  raw,
  safetensors,
  u32,
} from '../../test/fixtures/weights/build.js';
import type { AffineSpec } from './affine.js';
import { Checkpoint } from './checkpoint.js';
import type { TensorDtype } from './dtypes.js';
import { checkpointInput } from './quantize-input.js';
import { quantizationOf } from './quantize-plan.js';
import { INDEX_NAME } from './shards.js';
import { type QuantizeProgress, type WriteQuantizedOptions, writeQuantized } from './write-quantized.js';

const convert = fileURLToPath(new URL('../../test/fixtures/weights/convert', import.meta.url));

interface MlxCase extends AffineSpec {
  quantization: Record<string, unknown>;
  tensors: Record<string, { dtype: string; shape: number[]; sha256: string }>;
}
const { cases } = JSON.parse(readFileSync(join(convert, 'expected.json'), 'utf8')) as { cases: MlxCase[] };

async function quantize(
  from: string,
  to: string,
  options: WriteQuantizedOptions,
  progress?: (p: QuantizeProgress) => void,
) {
  await using checkpoint = await Checkpoint.open(from);
  return await writeQuantized(checkpointInput(checkpoint), to, options, progress);
}

async function digests(folder: string) {
  await using checkpoint = await Checkpoint.open(folder);
  const found: MlxCase['tensors'] = {};
  for (const name of checkpoint.names().sort()) {
    const { dtype, shape, byteLength } = checkpoint.info(name)!;
    const bytes = new Uint8Array(byteLength);
    await checkpoint.readBytes(name, 0, bytes);
    found[name] = { dtype, shape: [...shape], sha256: createHash('sha256').update(bytes).digest('hex') };
  }
  return found;
}

describe('writeQuantized', () => {
  it.each(cases)('writes what mlx_lm.convert writes: $bits bits, groups of $groupSize', async (expected) => {
    const { bits, groupSize } = expected as AffineSpec;
    using folder = folderWith({});
    const out = join(folder.path, 'deep', 'out');
    const result = await quantize(convert, out, { bits, groupSize });
    expect(await digests(out)).toEqual(expected.tensors);
    const config = JSON.parse(readFileSync(join(out, 'config.json'), 'utf8'));
    expect(config.quantization).toEqual(expected.quantization);
    expect(config.quantization_config).toEqual(expected.quantization);
    expect(config.hidden_size).toBe(64);
    expect(result.dropped).toEqual(['lm_head.weight']);
    expect(readdirSync(out).sort()).toEqual([...result.files].sort());
    expect(result.files).toContain('tokenizer.json');
    expect(readFileSync(join(out, 'tokenizer.json'))).toEqual(readFileSync(join(convert, 'tokenizer.json')));

    await using checkpoint = await Checkpoint.open(out);
    expect(checkpoint.quantization).toMatchObject({ bits, groupSize });
    expect(checkpoint.matrix('model.layers.0.mlp.up_proj.weight', { rows: 96, cols: 64 }).format).toEqual({
      kind: 'affine',
      bits,
      groupSize,
      dtype: 'bf16',
    });
  });

  it('keeps a head of its own though config.json calls it tied, and writes that it is not', async () => {
    const wave = (shift: number) =>
      f32(
        [4, 64],
        Array.from({ length: 256 }, (_, i) => Math.sin(i + shift)),
      );
    for (const [head, tied, nested] of [
      [wave(0), true, false],
      [wave(1), false, false],
      [wave(0), true, true],
      [wave(1), false, true],
    ] as const) {
      const stated = { tie_word_embeddings: true };
      using folder = folderWith({
        'model.safetensors': safetensors({ 'model.embed_tokens.weight': wave(0), 'lm_head.weight': head }),
        'config.json': nested ? { text_config: stated } : stated,
      });
      const out = join(folder.path, 'out');
      const { dropped } = await quantize(folder.path, out, { bits: 4, groupSize: 64 });
      expect(dropped).toEqual(tied ? ['lm_head.weight'] : []);
      const config = JSON.parse(readFileSync(join(out, 'config.json'), 'utf8'));
      expect((nested ? config.text_config : config).tie_word_embeddings).toBe(tied);
      await using checkpoint = await Checkpoint.open(out);
      expect(checkpoint.has('lm_head.scales')).toBe(!tied);
    }
  });

  it('cuts shards with an index, and reports its progress to the last byte', async () => {
    using folder = folderWith({});
    const whole = join(folder.path, 'whole');
    const cut = join(folder.path, 'cut');
    const seen: QuantizeProgress[] = [];
    await quantize(convert, whole, { bits: 4, groupSize: 32 });
    const result = await quantize(convert, cut, { bits: 4, groupSize: 32, maxShardBytes: 4000 }, (p) =>
      seen.push(p),
    );
    const shards = readdirSync(cut).filter((name) => name.endsWith('.safetensors'));
    expect(shards.length).toBeGreaterThan(3);
    expect(shards[0]).toBe(`model-00001-of-${String(shards.length).padStart(5, '0')}.safetensors`);
    expect(await digests(cut)).toEqual(await digests(whole));
    const index = JSON.parse(readFileSync(join(cut, INDEX_NAME), 'utf8'));
    expect(Object.keys(index.weight_map)).toEqual(Object.keys(await digests(cut)));
    expect(index.metadata.total_size).toBe(result.bytes);
    // What belongs to one matrix stays in one file.
    for (const [name, file] of Object.entries(index.weight_map)) {
      const scales = index.weight_map[name.replace(/\.weight$/, '.scales')];
      if (scales !== undefined) expect(scales).toBe(file);
    }
    expect(seen.at(-1)).toMatchObject({ index: seen.at(-1)!.tensors - 1 });
    expect(seen.map((p) => p.bytes)).toEqual(seen.map((p) => p.bytes).sort((a, b) => a - b));
    // The dropped head (40 × 64 bf16) is the only input that is not read.
    expect(seen.at(-1)!.totalBytes - seen.at(-1)!.bytes).toBe(40 * 64 * 2);
  });

  it('keeps towers, vectors and odd shapes, gives routers 8 bits, copies every small file', async () => {
    const wide = (rows: number, cols: number) =>
      f32(
        [rows, cols],
        Array.from({ length: rows * cols }, (_, i) => Math.sin(i)),
      );
    using folder = folderWith({
      'model.safetensors': safetensors({
        'a.weight': wide(4, 64),
        'layers.0.mlp.gate.weight': wide(2, 64),
        'visual.blocks.0.qkv.weight': wide(2, 64),
        'odd.weight': wide(2, 48),
        'norm.weight': f32([64], new Float32Array(64)),
        'conv.weight': raw('F32', [2, 1, 64], 512),
        'a.bias': f32([4], [1, 2, 3, 4]),
        'ids.weight': u32([1, 64], new Uint32Array(64)),
        flag: raw('BOOL', [1], 1),
        'layers.0.self_attn.rotary_emb.inv_freq': f32([4], [1, 2, 3, 4]),
      }),
      'config.json': { model_type: 'x' },
      'merges.txt': 'a b',
      'chat_template.jinja': '{{ x }}',
      LICENSE: 'text',
      'pytorch_model.bin': 'never',
      'notes.txt': 'mine',
    });
    mkdirSync(join(folder.path, 'additional_chat_templates'));
    writeFileSync(join(folder.path, 'additional_chat_templates/tool.jinja'), 'tool');
    const out = join(folder.path, 'out');
    // `ids.weight` is packed nowhere, but it would read as a quantised matrix; it is not asked for as one here.
    const result = await quantize(folder.path, out, { bits: 4, groupSize: 32 });
    expect(result).toMatchObject({
      quantized: 2,
      kept: 7,
      dropped: ['layers.0.self_attn.rotary_emb.inv_freq'],
    });
    await using checkpoint = await Checkpoint.open(out);
    expect(checkpoint.matrix('a.weight').format).toMatchObject({ bits: 4, groupSize: 32 });
    expect(checkpoint.matrix('layers.0.mlp.gate.weight').format).toMatchObject({ bits: 8, groupSize: 64 });
    expect(checkpoint.matrix('visual.blocks.0.qkv.weight').format.kind).toBe('float');
    expect(checkpoint.matrix('odd.weight').format.kind).toBe('float');
    expect(checkpoint.info('conv.weight')).toMatchObject({ dtype: 'F32', shape: [2, 1, 64] });
    expect([...(await checkpoint.vector('a.bias').read())]).toEqual([1, 2, 3, 4]);
    expect(readFileSync(join(out, 'additional_chat_templates/tool.jinja'), 'utf8')).toBe('tool');
    expect(readdirSync(out).sort()).toEqual(
      [
        'LICENSE',
        'additional_chat_templates',
        'chat_template.jinja',
        'config.json',
        'merges.txt',
        'model.safetensors',
        INDEX_NAME,
      ].sort(),
    );
  });

  it('follows the rule for each name, shape and dtype', () => {
    const spec: AffineSpec = { bits: 4, groupSize: 64 };
    const of = (name: string, shape: number[], dtype: TensorDtype = 'BF16') =>
      quantizationOf({ name, dtype, shape }, spec);
    expect(of('lm_head.weight', [10, 128])).toEqual(spec);
    expect(of('model.embed_tokens.weight', [10, 64])).toEqual(spec);
    expect(of('model.layers.0.mlp.gate_proj.weight', [10, 64])).toEqual(spec);
    expect(of('model.layers.0.mlp.gate.weight', [10, 64])).toEqual({ bits: 8, groupSize: 64 });
    expect(of('model.layers.0.mlp.up_proj.weight', [10, 96])).toBeUndefined();
    expect(of('model.layers.0.mlp.up_proj.weight', [10, 64], 'F64')).toBeUndefined();
    expect(of('model.norm.weight', [64])).toBeUndefined();
    expect(of('model.layers.0.self_attn.q_proj.bias', [64])).toBeUndefined();
    expect(of('model.visual.merger.mlp.0.weight', [64, 64])).toBeUndefined();
    expect(of('vision_tower.x.weight', [64, 64])).toBeUndefined();
    expect(of('model.vision_adapter.fc1.weight', [64, 64])).toBeUndefined();
    expect(of('experts.weight', [8, 64, 64])).toBeUndefined();
  });
});

describe('errors', () => {
  const spec: AffineSpec = { bits: 4, groupSize: 32 };

  it('refuses a folder that is not empty, and a file, and touches neither', async () => {
    using folder = folderWith({ file: 'x' });
    const inside = await failure(quantize(convert, folder.path, spec));
    expect(inside).toMatchObject({
      code: 'quantize-output-exists',
      message: expect.stringMatching(/not empty/),
    });
    expect((await failure(quantize(convert, join(folder.path, 'file'), spec))).code).toBe(
      'quantize-output-exists',
    );
    expect(readdirSync(folder.path)).toEqual(['file']);
  });

  it('refuses a quantised input, and one with nothing to quantise', async () => {
    using folder = folderWith({
      'model.safetensors': safetensors({ 'n.weight': f32([64], new Float32Array(64)) }),
    });
    const out = join(folder.path, 'out');
    expect((await failure(quantize(folder.path, out, spec))).code).toBe('quantize-nothing');
    await quantize(convert, out, spec);
    const again = join(folder.path, 'again');
    expect((await failure(quantize(out, again, spec))).code).toBe('weights-already-quantized');
    expect(existsSync(again)).toBe(false);
  });

  it('says so before it starts when the disk has no room', async () => {
    using folder = folderWith({});
    const out = join(folder.path, 'out');
    const error = await failure(quantize(convert, out, { ...spec, freeBytes: async () => 1000 }));
    expect(error).toMatchObject({ code: 'disk-full', message: expect.stringMatching(/1000 are free/) });
    expect(existsSync(out)).toBe(false);
  });

  it.each([0, 1, 3, 10])('leaves nothing behind when the disk fills up after %d writes', async (writes) => {
    using folder = folderWith({});
    const out = join(folder.path, 'out');
    mkdirSync(out);
    let left = writes;
    const openFile: WriteQuantizedOptions['openFile'] = async (path) => {
      const handle = await open(path, 'wx');
      const write = (async (...args: Parameters<typeof handle.write>) => {
        if (left-- <= 0)
          throw Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' });
        return await handle.write(...args);
      }) as typeof handle.write;
      return { write, datasync: () => handle.datasync(), close: () => handle.close() };
    };
    const error = await failure(quantize(convert, out, { ...spec, openFile, maxShardBytes: 4000 }));
    expect(error).toMatchObject({ code: 'disk-full', message: expect.stringMatching(/ran out/) });
    expect(readdirSync(out)).toEqual([]);
  });

  it('stops when it is cancelled, and removes what it wrote', async () => {
    using folder = folderWith({});
    const out = join(folder.path, 'out');
    const controller = new AbortController();
    const work = quantize(convert, out, { ...spec, signal: controller.signal }, ({ index }) => {
      if (index === 3) controller.abort();
    });
    expect((await failure(work)).code).toBe('cancelled');
    expect(existsSync(out)).toBe(false);
  });

  it('removes what it wrote when a weight is not finite', async () => {
    const values = new Float32Array(64).fill(1);
    values[7] = Number.NaN;
    using folder = folderWith({
      'model.safetensors': safetensors({
        'a.weight': { dtype: 'F32', shape: [2, 32], data: bytesOf(values) },
      }),
    });
    const out = join(folder.path, 'out');
    expect((await failure(quantize(folder.path, out, spec))).code).toBe('weights-not-finite');
    expect(existsSync(out)).toBe(false);
  });
});
