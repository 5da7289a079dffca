/** What loading holds beside the weights themselves: a few pieces on their way, and no tensor twice. */
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import type { MatrixRows, MatrixSource } from '../../src/device/weights.js';
import { Engine } from '../../src/engine/engine.js';
import { estimateActivations } from '../../src/engine/memory-use.js';
import { parseModelConfig } from '../../src/models/families.js';
import { loadModel } from '../../src/models/load.js';
import type { WeightSource } from '../../src/models/resolve-weights.js';
import { Checkpoint } from '../../src/weights/checkpoint.js';
import { safetensors, type TestTensor } from '../fixtures/weights/build.js';
import { f32, ggufBytes, string, u32, type WrittenTensor } from '../setup/gguf-writer.js';

const MODEL = fileURLToPath(new URL('../../models/demo-text', import.meta.url));
/** Of that model. */
const WIDTHS = {
  hiddenSize: 384,
  intermediateSize: 1024,
  heads: 4,
  kvHeads: 2,
  headDim: 128,
  vocabSize: 4096,
};
const MB = 1e6;

it('reads every piece into one of three rooms', async () => {
  await using checkpoint = await Checkpoint.open(MODEL);
  await using device = await createCpuDevice({ threads: 1 });
  const rooms = new Set<ArrayBufferLike>();
  let pieces = 0;
  const watched = (source: MatrixSource): MatrixSource => ({
    ...{ name: source.name, rows: source.rows, cols: source.cols, format: source.format },
    async readRows(start, end, room): Promise<MatrixRows> {
      const rows = await source.readRows(start, end, room);
      expect(rows.data.buffer).toBe(room);
      rooms.add(rows.data.buffer);
      pieces++;
      return rows;
    },
  });
  const source: WeightSource = {
    has: (name) => checkpoint.has(name),
    matrix: (name, expected) => watched(checkpoint.matrix(name, expected)),
    vector: (name, length) => checkpoint.vector(name, length),
    info: (name) => checkpoint.info(name),
    unusedNames: () => checkpoint.unusedNames(),
  };
  const model = await loadModel(source, parseModelConfig(checkpoint.config), device);
  expect(pieces).toBeGreaterThan(40);
  // A room that is too small for a later matrix is given up for a larger one.
  const bytes = [...rooms].reduce((sum, room) => sum + room.byteLength, 0);
  expect(rooms.size).toBeLessThanOrEqual(6);
  expect(bytes).toBeLessThan(10 * MB);
  expect(model.parameterBytes).toBeGreaterThan(3 * bytes);
  // Weights as they were stored, with the factors and paddings of their rows.
  expect(device.stats().bytes).toBeLessThan(1.03 * checkpoint.totalBytes);
});

it('takes little beside weights and KV, whatever their size', async () => {
  const over: number[] = [];
  for (const [maxContext, maxRows] of [
    [256, 1],
    [4096, 4],
  ] as const) {
    await using engine = await Engine.load(MODEL, {
      device: 'cpu',
      threads: 2,
      maxContext,
      maxRows,
      worker: false,
    });
    const { device } = await engine.stats();
    const { memory, kv, limits } = engine.info;
    expect(memory.weights).toBe(engine.info.model.weightBytes);
    expect(memory.caches.reduce((sum, bytes) => sum + bytes, memory.floatStart)).toBe(kv.bytes);
    // Rows' own lists come when the engine begins.
    expect(device.bytes - memory.total).toBeLessThan(10_000);
    expect(device.bytes - memory.total).toBeGreaterThanOrEqual(0);
    expect(device.peakBytes).toBeGreaterThanOrEqual(memory.total);
    // What `kvant inspect` says before anything is loaded is near it.
    const told = estimateActivations(WIDTHS, limits.maxBatchTokens, limits.maxRows);
    expect(told / memory.activations).toBeGreaterThan(0.5);
    expect(told / memory.activations).toBeLessThan(1.5);
    over.push(device.bytes - engine.info.model.weightBytes - engine.info.kv.bytes);
  }
  // Activations of a step of 256 tokens and the threads' scratch; with the context grow tables and lists, not copies.
  expect(over[0]).toBeGreaterThan(0);
  expect(over[1]).toBeLessThan(30 * MB);
  expect(over[1]! - over[0]!).toBeLessThan(10 * MB);
});

describe('a process that loads 60 MB and more', () => {
  const VOCAB = 4096;
  const HEAD_DIM = 64;
  interface Sizes {
    readonly width: number;
    readonly inner: number;
    readonly layers: number;
  }
  /** Its name in a GGUF file and in a checkpoint, and its shape. */
  type Named = readonly [string, string, ...number[]];

  /** A Llama's tensors, whose head is the embedding. */
  function tensorsOf({ width, inner, layers }: Sizes): Named[] {
    const at = (layer: number): Named[] =>
      (
        [
          ['attn_norm', 'input_layernorm', width],
          ['attn_q', 'self_attn.q_proj', width, width],
          ['attn_k', 'self_attn.k_proj', width, width],
          ['attn_v', 'self_attn.v_proj', width, width],
          ['attn_output', 'self_attn.o_proj', width, width],
          ['ffn_norm', 'post_attention_layernorm', width],
          ['ffn_gate', 'mlp.gate_proj', inner, width],
          ['ffn_up', 'mlp.up_proj', inner, width],
          ['ffn_down', 'mlp.down_proj', width, inner],
        ] as const
      ).map(([one, other, ...shape]) => [`blk.${layer}.${one}`, `model.layers.${layer}.${other}`, ...shape]);
    return [
      ['token_embd', 'model.embed_tokens', VOCAB, width],
      ['output_norm', 'model.norm', width],
      ...Array.from({ length: layers }, (_, layer) => at(layer)).flat(),
    ];
  }
  const count = (shape: readonly number[]): number => shape.reduce((product, size) => product * size, 1);

  function gguf(path: string, sizes: Sizes, [type, elements, bytes]: readonly number[]): void {
    const { width, inner, layers } = sizes;
    const tensors = tensorsOf(sizes).map(([name, , ...shape]): WrittenTensor => {
      const size = shape.length === 1 ? 4 * width : (count(shape) / elements!) * bytes!;
      return {
        name: `${name}.weight`,
        shape,
        type: shape.length === 1 ? 0 : type!,
        data: Buffer.alloc(size, 1),
      };
    });
    const numbers = {
      block_count: layers,
      context_length: 64,
      embedding_length: width,
      feed_forward_length: inner,
    };
    const metadata = {
      'general.architecture': string('llama'),
      ...Object.fromEntries(Object.entries(numbers).map(([key, value]) => [`llama.${key}`, u32(value)])),
      'llama.attention.head_count': u32(width / HEAD_DIM),
      'llama.attention.layer_norm_rms_epsilon': f32(1e-5),
    };
    writeFileSync(path, ggufBytes({ metadata, tensors }));
  }

  function safetensorsFolder(path: string, sizes: Sizes): void {
    const { width, inner, layers } = sizes;
    const tensors = tensorsOf(sizes).map(([, name, ...shape]): [string, TestTensor] => {
      const data = Buffer.alloc(count(shape) * 2, 1);
      return [`${name}.weight`, { dtype: 'BF16', shape, data }];
    });
    mkdirSync(path);
    writeFileSync(join(path, 'model.safetensors'), safetensors(Object.fromEntries(tensors)));
    const config = {
      vocab_size: VOCAB,
      head_dim: HEAD_DIM,
      tie_word_embeddings: true,
      model_type: 'llama',
      architectures: ['LlamaForCausalLM'],
      hidden_size: width,
      intermediate_size: inner,
      num_hidden_layers: layers,
      num_attention_heads: width / HEAD_DIM,
      rms_norm_eps: 1e-5,
      max_position_embeddings: 64,
    };
    writeFileSync(join(path, 'config.json'), JSON.stringify(config));
  }

  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'kvant-memory-'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  const CHILD = fileURLToPath(new URL('./load-memory-child.mjs', import.meta.url));
  const OPTIONS = { device: 'cpu', threads: 1, maxContext: 64, maxRows: 1 };
  /** Pieces on their way, a thread's scratch, and what the heap grows by. A copy of the weights is twice that. */
  const SLACK = 40 * MB;

  it.each<[string, string, number, (path: string, sizes: Sizes) => void]>([
    ['GGUF, Q8_0', '.gguf', 4, (path, sizes) => gguf(path, sizes, [8, 32, 34])],
    ['GGUF, Q4_K', '.gguf', 8, (path, sizes) => gguf(path, sizes, [12, 256, 144])],
    ['GGUF, F16', '.gguf', 2, (path, sizes) => gguf(path, sizes, [1, 1, 2])],
    ['safetensors, BF16', '', 2, (path, sizes) => safetensorsFolder(path, sizes)],
  ])('holds no second copy of %s', async (name, ending, layers, write) => {
    const small = join(folder, `small ${name}${ending}`);
    const large = join(folder, `large ${name}${ending}`);
    write(small, { width: 256, inner: 256, layers: 1 });
    write(large, { width: 1024, inner: 4096, layers });
    const asked = JSON.stringify({ small, large, options: { ...OPTIONS, tokenizer: MODEL } });
    const { stdout } = await promisify(execFile)(process.execPath, ['--expose-gc', CHILD, asked]);
    const { before, peak, device, weights } = JSON.parse(stdout) as Record<string, number>;
    expect(weights).toBeGreaterThan(75 * MB);
    expect(peak! - before! - device!).toBeLessThan(SLACK);
  });
});
