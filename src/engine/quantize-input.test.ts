import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import {
  f32,
  f32s,
  ggufBytes,
  i32s,
  string,
  strings,
  u32,
  type Value,
  type WrittenTensor,
} from '../../test/setup/gguf-writer.js';
import { ggufInput } from '../models/gguf/quantize-input.js';
import type { GgufSource } from '../models/gguf/source.js';
import { openModel } from '../models/open.js';
import { Tokenizer } from '../text/tokenizer.js';
import { Checkpoint } from '../weights/checkpoint.js';
import { dequantiseRows } from '../weights/dequantise.js';
import { quantizeRow } from '../weights/quantize.js';
import { checkpointInput } from '../weights/quantize-input.js';
import { writeQuantized } from '../weights/write-quantized.js';
import { openQuantizeInput } from './quantize-input.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-quantize-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

const HIDDEN = 64;
const LAYERS = 2;
let state = 7;
const byte = (): number => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state >>> 24;
};

/** Blocks of random codes with f16 scales of 2^-6, and minima of -2^-3 where the type has them. */
function blocks(name: string, rows: number, cols: number, type: 2 | 3 | 8): WrittenTensor {
  const [size, head] = { 2: [18, 2], 3: [20, 4], 8: [34, 2] }[type] as [number, number];
  const data = Uint8Array.from({ length: ((rows * cols) / 32) * size }, byte);
  for (let at = 0; at < data.length; at += size) {
    data.set([0, 0x24], at);
    if (head === 4) data.set([0, 0xb0], at + 2);
  }
  return { name: `${name}.weight`, shape: [rows, cols], type, data };
}

function vector(name: string, values: readonly number[]): WrittenTensor {
  return {
    name: `${name}.weight`,
    shape: [values.length],
    type: 0,
    data: new Uint8Array(Float32Array.from(values).buffer),
  };
}

const layer = (i: number): WrittenTensor[] => [
  vector(
    `blk.${i}.attn_norm`,
    Array.from({ length: HIDDEN }, (_, j) => 1 + j / 128),
  ),
  vector(
    `blk.${i}.ffn_norm`,
    Array.from({ length: HIDDEN }, (_, j) => 1 + j / 1000),
  ),
  blocks(`blk.${i}.attn_q`, 64, HIDDEN, 2),
  blocks(`blk.${i}.attn_k`, 32, HIDDEN, 8),
  blocks(`blk.${i}.attn_v`, 32, HIDDEN, 8),
  blocks(`blk.${i}.attn_output`, HIDDEN, 64, 3),
  blocks(`blk.${i}.ffn_gate`, 96, HIDDEN, 2),
  blocks(`blk.${i}.ffn_up`, 96, HIDDEN, 2),
  blocks(`blk.${i}.ffn_down`, HIDDEN, 96, 8),
];

const TOKENS = ['<s>', '</s>', ...Array.from('abcdefgh'), 'ab'];
const METADATA: Record<string, Value> = {
  'general.architecture': string('llama'),
  'general.sampling.temp': f32(0.5),
  'llama.block_count': u32(LAYERS),
  'llama.context_length': u32(64),
  'llama.embedding_length': u32(HIDDEN),
  'llama.feed_forward_length': u32(96),
  'llama.attention.head_count': u32(2),
  'llama.attention.head_count_kv': u32(1),
  'llama.attention.layer_norm_rms_epsilon': f32(1e-5),
  'tokenizer.ggml.model': string('gpt2'),
  'tokenizer.ggml.pre': string('qwen2'),
  'tokenizer.ggml.tokens': strings(TOKENS),
  'tokenizer.ggml.token_type': i32s(TOKENS.map((_, i) => (i < 2 ? 3 : 1))),
  'tokenizer.ggml.merges': strings(['a b']),
  'tokenizer.ggml.eos_token_id': u32(1),
};

function file(name: string, metadata: Record<string, Value> = METADATA): string {
  const path = join(folder, name);
  const tensors = [
    blocks('token_embd', TOKENS.length, HIDDEN, 8),
    vector('output_norm', new Array(HIDDEN).fill(1)),
    ...Array.from({ length: LAYERS }, (_, i) => layer(i)).flat(),
  ];
  writeFileSync(path, ggufBytes({ metadata, tensors }));
  return path;
}

/** All numbers of a matrix of a model. */
async function numbers(path: string, name: string, rows: number, cols: number): Promise<Float32Array> {
  await using model = await openModel(path);
  const matrix = model.source.matrix(name, { rows, cols });
  const out = new Float32Array(rows * cols);
  dequantiseRows(await matrix.readRows(0, rows), rows, cols, matrix.format, out);
  return out;
}

it('quantises a GGUF file to a folder that loads, with its tokenizer and defaults', async () => {
  const path = file('model.gguf');
  const out = join(folder, 'out');
  await using opened = await openQuantizeInput(path);
  expect(opened.notices).toEqual([]);
  const result = await writeQuantized(opened.input, out, { bits: 4, groupSize: 32 });
  // What has the codes that are asked for keeps them: Q4_1 is 4 bits in groups of 32.
  expect(result).toMatchObject({ quantized: 1 + 7 * LAYERS, again: 1 + 6 * LAYERS, kept: 1 + 2 * LAYERS });
  const kept = 'model.layers.1.self_attn.o_proj.weight';
  expect(await numbers(out, kept, HIDDEN, 64)).toEqual(await numbers(path, kept, HIDDEN, 64));
  for (const [name, rows, cols] of [
    ['self_attn.q_proj', 64, HIDDEN],
    ['self_attn.k_proj', 32, HIDDEN],
    ['mlp.down_proj', HIDDEN, 96],
  ] as const) {
    const full = `model.layers.0.${name}.weight`;
    const stored = await numbers(path, full, rows, cols);
    const made = await numbers(out, full, rows, cols);
    const [codes, scales, biases] = [
      new Uint8Array(cols),
      new Float32Array(cols / 32),
      new Float32Array(cols / 32),
    ];
    for (let r = 0; r < rows; r++) {
      expect(
        quantizeRow(
          stored.subarray(r * cols, (r + 1) * cols),
          { bits: 4, groupSize: 32 },
          codes,
          scales,
          biases,
        ),
      ).toBe(true);
      for (let c = 0; c < cols; c++) {
        const group = Math.floor(c / 32);
        const exact = codes[c]! * scales[group]! + biases[group]!;
        // Scales and biases are bf16.
        const room = 2 ** -8 * (Math.abs(codes[c]! * scales[group]!) + Math.abs(biases[group]!));
        expect(Math.abs(made[r * cols + c]! - exact)).toBeLessThanOrEqual(room);
      }
    }
  }
  await using checkpoint = await Checkpoint.open(out);
  expect(checkpoint.info('model.layers.0.input_layernorm.weight')?.dtype).toBe('BF16');
  expect(checkpoint.info('model.layers.0.post_attention_layernorm.weight')?.dtype).toBe('F32');
  const norm = await checkpoint.vector('model.layers.0.post_attention_layernorm.weight').read();
  expect([...norm]).toEqual(Array.from({ length: HIDDEN }, (_, j) => Math.fround(1 + j / 1000)));
  const tokenizer = await Tokenizer.load(out);
  expect([...tokenizer.encode('abc', { addSpecialTokens: false })]).toEqual([10, 4]);
  const json = (name: string) => JSON.parse(readFileSync(join(out, name), 'utf8'));
  expect(json('generation_config.json')).toMatchObject({ eos_token_id: [1], temperature: 0.5 });
  expect(json('config.json')).toMatchObject({ model_type: 'llama', tie_word_embeddings: true });

  // Once more: as it is, it is refused; with other codes its errors add up, which is told.
  const again = { bits: 8, groupSize: 32 } as const;
  await expect(
    writeQuantized(checkpointInput(checkpoint), join(folder, 'same'), { bits: 4, groupSize: 32 }),
  ).rejects.toMatchObject({ code: 'weights-already-quantized' });
  const wide = await writeQuantized(checkpointInput(checkpoint), join(folder, 'wide'), again);
  expect(wide).toMatchObject({ quantized: 1 + 7 * LAYERS, again: 1 + 7 * LAYERS });
  const name = 'model.layers.0.mlp.up_proj.weight';
  const [narrow, wider] = [
    await numbers(out, name, 96, HIDDEN),
    await numbers(join(folder, 'wide'), name, 96, HIDDEN),
  ];
  expect(Math.max(...narrow.map((value, i) => Math.abs(value - wider[i]!)))).toBeLessThan(0.02);
});

it('leaves out what scales a tensor, and nothing else that is called a scale', async () => {
  const at = 'model.layers.0.';
  const names = ['mlp.up_proj.weight', 'mlp.up_proj.scale', 'mlp.up_proj.input_scale', 'router.scale'];
  const source = {
    architecture: {},
    names: () => names.map((name) => at + name),
    listedNumbers: () => [],
    info: (name: string) => ({ shape: name.endsWith('.weight') ? [2, 32] : [1], byteLength: 4 }),
    vector: () => ({ read: async () => Float32Array.of(2) }),
    matrix: () => ({ rows: 2, cols: 32, format: { kind: 'float', dtype: 'f32' } }),
  } as unknown as GgufSource;
  const tensors = await ggufInput(source, {}).tensors();
  expect(tensors.map(({ name }) => name)).toEqual([`${at}mlp.up_proj.weight`, `${at}router.scale`]);
});

it('follows a mixed recipe', async () => {
  await using opened = await openQuantizeInput(file('mixed.gguf'));
  const out = join(folder, 'mixed');
  await writeQuantized(opened.input, out, { bits: 4, groupSize: 32, recipe: 'mixed_3_6' });
  const { quantization } = JSON.parse(readFileSync(join(out, 'config.json'), 'utf8'));
  expect(quantization).toMatchObject({ bits: 3, group_size: 32 });
  // Of two layers the last is in the last eighth.
  const more = Object.keys(quantization).filter((key) => quantization[key].bits === 6);
  expect(more.sort()).toEqual(['model.layers.1.mlp.down_proj', 'model.layers.1.self_attn.v_proj']);
});

it('writes weights alone where the file has no tokenizer that is known', async () => {
  const strange = {
    ...METADATA,
    'tokenizer.ggml.pre': string('of-my-own'),
    'tokenizer.ggml.scores': f32s([]),
  };
  await using opened = await openQuantizeInput(file('strange.gguf', strange));
  expect(opened.notices).toEqual([expect.stringMatching(/no tokenizer is written: .*"of-my-own"/)]);
  const { files } = await writeQuantized(opened.input, join(folder, 'bare'), { bits: 8, groupSize: 64 });
  expect(files).not.toContain('tokenizer.json');
});
