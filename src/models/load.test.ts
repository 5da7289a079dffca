import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createReferenceDevice } from '../../test/parity/reference-device.js';
import type { Device, MatrixOptions, PlacementGroup } from '../device/device.js';
import { KvantError } from '../errors.js';
import { Checkpoint } from '../weights/checkpoint.js';
import { parseModelConfig } from './families.js';
import { type LoadModelOptions, loadModel, type Model } from './load.js';
import { resolveWeights } from './resolve-weights.js';
import { renamed } from './tensor-names.js';

const FIXTURES = fileURLToPath(new URL('../../test/fixtures/models/', import.meta.url));

interface Header {
  [name: string]: { dtype: string; shape: number[]; data_offsets: [number, number] };
}

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-load-'));
});
afterAll(() => rm(scratch, { recursive: true }));

/** A copy of a fixture with its header changed. */
async function altered(name: string, change: (header: Header) => void): Promise<string> {
  const folder = await mkdtemp(join(scratch, `${name}-`));
  await cp(join(FIXTURES, name), folder, { recursive: true });
  const path = join(folder, 'model.safetensors');
  const file = await readFile(path);
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + length)) as Header;
  const before = end(header);
  change(header);
  const text = Buffer.from(JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  const added = Buffer.alloc(end(header) - before);
  await writeFile(path, Buffer.concat([size, text, file.subarray(8 + length), added]));
  return folder;
}

function end(header: Header): number {
  return Math.max(...Object.values(header).map(({ data_offsets }) => data_offsets?.[1] ?? 0));
}

function addTensor(header: Header, name: string, shape: number[]): void {
  const at = end(header);
  const bytes = shape.reduce((a, b) => a * b, 2);
  header[name] = { dtype: 'BF16', shape, data_offsets: [at, at + bytes] };
}

function entry(header: Header, name: string): Header[string] {
  const found = header[name];
  if (found === undefined) throw new Error(`the fixture has no ${name}`);
  return found;
}

async function load(
  folder: string,
  options: LoadModelOptions = {},
  device = createReferenceDevice(),
): Promise<Model> {
  await using checkpoint = await Checkpoint.open(folder);
  return await loadModel(checkpoint, parseModelConfig(checkpoint.config), device, options);
}

async function failure(folder: string, options?: LoadModelOptions, device?: Device): Promise<KvantError> {
  try {
    await load(folder, options, device);
  } catch (error) {
    if (error instanceof KvantError) return error;
    throw error;
  }
  throw new Error('the model was loaded');
}

/** A device on which nothing may be loaded. */
function untouched(): Device {
  const refuse = (): never => {
    throw new Error('weights were loaded before they were checked');
  };
  return { ...createReferenceDevice(), place: refuse, loadMatrix: refuse, loadVector: refuse };
}

describe('loadModel refuses, before any weight is read,', () => {
  const norm = 'model.layers.1.input_layernorm.weight';
  const down = 'model.layers.0.mlp.down_proj.weight';

  it('a checkpoint that lacks tensors, naming them', async () => {
    const folder = await altered('llama-untied', (header) => {
      for (const name of [norm, down]) {
        header[`other.${name}`] = entry(header, name);
        delete header[name];
      }
    });
    const error = await failure(folder, {}, untouched());
    expect(error).toMatchObject({ code: 'weights-tensor-missing', kind: 'model' });
    expect(error.message).toContain(norm);
    expect(error.message).toContain(down);
  });

  it('a checkpoint that lacks a stack of experts, naming it', async () => {
    const stack = 'model.layers.0.block_sparse_moe.input_linear.weight';
    const folder = await altered('granite4-h', (header) => {
      header[`other.${stack}`] = entry(header, stack);
      delete header[stack];
    });
    const error = await failure(folder, {}, untouched());
    expect(error).toMatchObject({ code: 'weights-tensor-missing', kind: 'model' });
    expect(error.message).toContain(stack);
  });

  it('a missing tensor, by the name that its file would have for it', async () => {
    // Nemotron-H's own names, and those within a wrapper.
    for (const [name, prefix, embedding] of [
      ['nemotron-h', 'backbone.', 'backbone.embeddings.weight'],
      ['nemotron-h', 'model.', 'model.embeddings.weight'],
      ['llama-untied', 'model.language_model.', 'model.language_model.embed_tokens.weight'],
      ['llama-untied', 'model.', 'model.embed_tokens.weight'],
    ] as const) {
      const folder = await altered(name, (header) => {
        for (const own of Object.keys(header)) {
          const renamed = own.replace(/^(model|backbone)\./, prefix);
          if (renamed === own) continue;
          header[renamed] = entry(header, own);
          delete header[own];
        }
        header.other = entry(header, embedding);
        delete header[embedding];
      });
      await using checkpoint = await Checkpoint.open(folder);
      const { layout } = parseModelConfig(checkpoint.config);
      expect(() => resolveWeights(renamed(checkpoint), layout, undefined)).toThrow(
        expect.objectContaining({
          code: 'weights-tensor-missing',
          where: embedding,
          message: expect.stringContaining(`has no ${embedding} (`),
        }),
      );
    }
  });

  it('a missing head, with a hint at ties', async () => {
    const folder = await altered('llama-tied-f16', () => {});
    const config = await readFile(join(folder, 'config.json'), 'utf8');
    await writeFile(
      join(folder, 'config.json'),
      config.replace(/("tie_word_embeddings":) *true/, '$1 false'),
    );
    const error = await failure(folder, {}, untouched());
    expect(error).toMatchObject({ code: 'weights-tensor-missing', where: 'lm_head.weight' });
    expect(error.fix).toContain('tie_word_embeddings');
  });

  it('a missing bias that the config calls for', async () => {
    const folder = await altered('llama-untied', () => {});
    const config = await readFile(join(folder, 'config.json'), 'utf8');
    await writeFile(join(folder, 'config.json'), config.replace(/("attention_bias":) *false/, '$1 true'));
    const error = await failure(folder, {}, untouched());
    expect(error).toMatchObject({
      code: 'weights-tensor-missing',
      where: 'model.layers.0.self_attn.q_proj.bias',
    });
  });

  it('a tensor of the wrong shape', async () => {
    const folder = await altered('llama-untied', (header) => entry(header, down).shape.reverse());
    const error = await failure(folder, {}, untouched());
    expect(error).toMatchObject({ code: 'weights-tensor-shape', where: down });
    expect(error.message).toMatch(/\[96, 64\].*\[64, 96\]/);
    const vector = await altered('llama-untied', (header) => {
      entry(header, norm).shape = [8, 8];
    });
    expect(await failure(vector, {}, untouched())).toMatchObject({
      code: 'weights-tensor-shape',
      where: norm,
    });
  });

  it('a tensor of the wrong dtype', async () => {
    const folder = await altered('llama-untied', (header) => {
      entry(header, down).dtype = 'I16';
    });
    const error = await failure(folder, {}, untouched());
    expect(error).toMatchObject({ code: 'weights-tensor-dtype', where: down });
  });

  it('tensors of its layers that it would not compute with', async () => {
    const folder = await altered('llama-untied', (header) => {
      for (let i = 0; i < 5; i++) addTensor(header, `model.layers.1.mlp.experts.${i}.weight`, [2, 2]);
    });
    const error = await failure(folder, {}, untouched());
    expect(error).toMatchObject({
      code: 'weights-tensor-extra',
      where: 'model.layers.1.mlp.experts.0.weight',
    });
    expect(error.message).toContain('and 2 more');
  });

  it('a context longer than the model has', async () => {
    const error = await failure(join(FIXTURES, 'llama-untied'), { maxContext: 513 }, untouched());
    expect(error).toMatchObject({ code: 'context-too-long', kind: 'invalid-request' });
    expect(error.message).toContain('512');
    const odd = await failure(join(FIXTURES, 'llama-untied'), { maxContext: 0 }, untouched());
    expect(odd.code).toBe('invalid-option');
  });
});

/** A copy of a fixture with the bytes of one element of a tensor changed. */
async function poisoned(name: string, tensor: string, element: number, bytes: Uint8Array): Promise<string> {
  let at = 0;
  const folder = await altered(name, (header) => {
    at = entry(header, tensor).data_offsets[0] + element * bytes.length;
  });
  const path = join(folder, 'model.safetensors');
  const file = await readFile(path);
  file.set(bytes, 8 + Number(file.readBigUInt64LE(0)) + at);
  await writeFile(path, file);
  return folder;
}

describe('loadModel finds weights that are no numbers, by name:', () => {
  const NAN = Uint8Array.of(0xc0, 0x7f);
  const INFINITY = Uint8Array.of(0x80, 0xff);
  it.each([
    ['NaN in a matrix', 'llama-untied', 'model.layers.1.mlp.down_proj.weight', 96 * 3 + 95, NAN, 3],
    ['an infinity in a matrix', 'llama-untied', 'model.layers.0.self_attn.q_proj.weight', 0, INFINITY, 0],
    ['NaN in the embedding', 'llama-untied', 'model.embed_tokens.weight', 258 * 64 + 63, NAN, 258],
    ['NaN in the head', 'llama-untied', 'lm_head.weight', 64, NAN, 1],
    ['NaN in a norm', 'llama-untied', 'model.norm.weight', 5, NAN, 5],
    ['NaN in a bias', 'llama-bias', 'model.layers.0.self_attn.k_proj.bias', 7, NAN, 7],
    [
      'an infinity in f16',
      'llama-tied-f16',
      'model.layers.1.mlp.up_proj.weight',
      64,
      Uint8Array.of(0, 0x7c),
      1,
    ],
    ['NaN in a scale', 'mlx-qwen3-4bit', 'model.layers.0.mlp.up_proj.scales', 2, NAN, 2],
  ])('%s', async (_, name, tensor, element, bytes, row) => {
    const error = await failure(await poisoned(name, tensor, element, bytes));
    const weight = tensor.replace(/\.scales$/, '.weight');
    expect(error).toMatchObject({ code: 'weights-not-finite', kind: 'model', where: weight });
    expect(error.message).toContain(`row ${row})`);
    expect(error.fix).toBeDefined();
  });

  it('NaN in a matrix that is quantised on load', async () => {
    const tensor = 'model.layers.1.mlp.up_proj.weight';
    const folder = await poisoned('llama-untied', tensor, 64, NAN);
    expect(await failure(folder, { quantize: { bits: 4, groupSize: 64 } })).toMatchObject({
      code: 'weights-not-finite',
      where: tensor,
    });
  });
});

describe('loadModel', () => {
  it('lets pass what is known to be harmless', async () => {
    const folder = await altered('llama-llama3', (header) => {
      addTensor(header, 'model.layers.0.self_attn.rotary_emb.inv_freq', [8]);
      addTensor(header, 'lm_head.weight', [259, 64]);
    });
    const model = await load(folder);
    expect(model.facts.tied).toBe(true);
    expect(model.parameters).toBe((await load(join(FIXTURES, 'llama-llama3'))).parameters);
  });

  it('refuses a head of its own only where the embedding is not tied to it', async () => {
    const folder = await altered('llama-untied', (header) => addTensor(header, 'lm_head.bias', [259]));
    expect((await failure(folder)).message).toContain('lm_head.bias');
  });

  it('places the embedding, each layer with its KV, and the head', async () => {
    let placed: readonly PlacementGroup[] = [];
    const groups: (number | undefined)[] = [];
    const inner = createReferenceDevice();
    const device: Device = {
      ...inner,
      place: (given) => {
        placed = given;
      },
      loadMatrix: (parts, options: MatrixOptions) => {
        expect(placed.length).toBeGreaterThan(0);
        groups.push(options.group);
        return inner.loadMatrix(parts, options);
      },
    };
    const model = await load(join(FIXTURES, 'mistral-window'), { kvTokens: 100 }, device);
    // f32 K and V, 2 heads of 16.
    expect(placed.map(({ kvBytes }) => kvBytes)).toEqual([0, 25_600, 25_600, 25_600, 0]);
    expect(placed.map(({ matrices }) => matrices.length)).toEqual([1, 7, 7, 7, 0]);
    expect(placed[1]?.matrices[0]).toEqual({ rows: 64, cols: 64, format: { kind: 'float', dtype: 'bf16' } });
    expect(groups).toEqual([0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
    expect(model.kvLayers.map(({ group }) => group)).toEqual([1, 2, 3]);
  });

  it('gives each layer the KV format that is chosen for it', async () => {
    const f16 = { kind: 'float', dtype: 'f16' } as const;
    const f32 = { kind: 'float', dtype: 'f32' } as const;
    const folder = join(FIXTURES, 'llama-untied');
    expect((await load(folder)).kvLayers[0]).toMatchObject({ key: f32, value: f32, kvHeads: 2, headDim: 16 });
    expect((await load(folder, { kvFormat: f16 })).kvLayers[1]).toMatchObject({ key: f16, value: f16 });
    const chosen = await load(folder, {
      kvFormat: (_, layer) => ({ key: f16, value: layer === 1 ? f32 : f16 }),
    });
    expect(chosen.kvLayers.map(({ value }) => value)).toEqual([f16, f32]);
  });

  it('tells keys apart that the served context rotates otherwise', async () => {
    const identity = async (name: string, maxContext: number): Promise<string> =>
      (await load(join(FIXTURES, name), { maxContext })).facts.identity;
    expect(await identity('phi3-longrope', 32)).toBe(await identity('phi3-longrope', 64));
    expect(await identity('phi3-longrope', 65)).not.toBe(await identity('phi3-longrope', 64));
    expect(await identity('phi3', 65)).toBe(await identity('phi3', 64));
  });

  it('reports progress that rises to the whole', async () => {
    const seen: [number, number, string][] = [];
    await load(join(FIXTURES, 'qwen2-bias'), { onProgress: (...args) => seen.push(args) });
    const total = seen[0]?.[1] as number;
    for (const [i, [loaded, all]] of seen.entries()) {
      expect(all).toBe(total);
      expect(loaded).toBeGreaterThanOrEqual(seen[i - 1]?.[0] ?? 0);
    }
    expect(seen.at(-1)?.[0]).toBe(total);
    // Every matrix, in bf16.
    expect(total).toBe(2 * (2 * 259 * 64 + 2 * (64 * 64 * 2 + 32 * 64 + 3 * 64 * 96)));
    // Lanes load at once, so any may be the last.
    expect(seen.map(([, , item]) => item)).toContain('lm_head.weight');
  });

  it('stops between matrices when told to', async () => {
    const controller = new AbortController();
    const onProgress = () => controller.abort();
    await expect(
      load(join(FIXTURES, 'llama-untied'), { signal: controller.signal, onProgress }),
    ).rejects.toThrow(/abort/i);
  });

  it('quantises what groups divide and leaves the rest', async () => {
    const formats = new Map<string, string>();
    const inner = createReferenceDevice();
    const device: Device = {
      ...inner,
      loadMatrix: (parts, options) => {
        for (const { name, format } of parts) formats.set(name, format.kind);
        return inner.loadMatrix(parts, options);
      },
    };
    const quantize = { bits: 4, groupSize: 64 } as const;
    await load(join(FIXTURES, 'llama-untied'), { quantize }, device);
    expect(formats.get('model.layers.0.self_attn.q_proj.weight')).toBe('affine');
    expect(formats.get('lm_head.weight')).toBe('affine');
    // 96 columns are no whole number of groups.
    expect(formats.get('model.layers.0.mlp.down_proj.weight')).toBe('float');
  });

  it('does not quantise what is quantised already, or cannot be', async () => {
    const quantize = { bits: 8, groupSize: 64 } as const;
    for (const name of ['mlx-qwen3-4bit', 'mlx-llama-3bit', 'mlx-qwen3-mixed'])
      expect(await failure(join(FIXTURES, name), { quantize }, untouched()), name).toMatchObject({
        code: 'weights-already-quantized',
        where: 'quantize',
        status: 400,
        message: expect.stringMatching(/ [2-8] bits/),
        fix: expect.stringContaining('without'),
      });
    // Rows of 64 and 96 values: no group of 128 divides them.
    const wide = { bits: 4, groupSize: 128 } as const;
    expect(await failure(join(FIXTURES, 'llama-untied'), { quantize: wide }, untouched())).toMatchObject({
      code: 'quantize-nothing',
      where: 'quantize',
      status: 400,
    });
  });

  it('takes weights that have the wanted bits and groups already', async () => {
    const quantize = { bits: 8, groupSize: 64 } as const;
    const bits: number[] = [];
    const inner = createReferenceDevice();
    const device: Device = {
      ...inner,
      loadMatrix: (parts, options) => {
        for (const { format } of parts) if (format.kind === 'affine') bits.push(format.bits);
        return inner.loadMatrix(parts, options);
      },
    };
    await load(join(FIXTURES, 'mlx-llama-8bit'), { quantize }, device);
    expect(new Set(bits)).toEqual(new Set([8]));
  });

  it('builds graphs with and without sampling and kept logits', async () => {
    const model = await load(join(FIXTURES, 'qwen3-tied'));
    const plain = model.buildGraph();
    expect(plain.graph.kept).toEqual([]);
    expect(plain.graph.nodes.at(-1)).toMatchObject({ op: 'sample', logits: plain.logits });
    const kept = model.buildGraph({ keepLogits: true, sample: false });
    expect(kept.graph.kept).toEqual([kept.logits]);
    expect(kept.graph.nodes.some(({ op }) => op === 'sample')).toBe(false);
    expect(kept.logits).toMatchObject({ rows: 'outputs', cols: 259 });
    // What the head reads, behind the last norm.
    const { graph, logits } = model.buildGraph({ hidden: 'outputs' });
    const head = graph.nodes.find((node) => node.op === 'linear' && node.out === logits);
    expect(graph.hidden).toMatchObject({ rows: 'outputs', cols: model.facts.hiddenSize });
    expect(head).toMatchObject({ x: graph.hidden });
    expect(graph.nodes.find((node) => node.op === 'rms-norm' && node.out === graph.hidden)).toBeDefined();
    expect(plain.graph.hidden).toBeNull();
  });
});
