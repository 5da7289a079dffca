/**
 * Families as mlx-lm writes them, quantised: the same bytes, made here of the names of the weights, and its answers to prompts of 1,
 * window + 3 and 3 · window + 7 tokens and 8 cached tokens behind each, with the activations in f32 (scripts/fixtures/mlx_text_layouts.py). Where
 * mlx-lm leaves out what the published code does, the answers are those of transformers to what the quantised weights stand for.
 */

import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { packCodes } from '../../src/weights/affine.js';
import { decodeFloats, encodeFloats } from '../../src/weights/dtypes.js';
import { quantizeRow } from '../../src/weights/quantize.js';
import { devices } from '../devices/devices.js';
import { readPacked } from '../fixtures/read-packed.js';
import { bytesOf, safetensors, type TestTensor } from '../fixtures/weights/build.js';
import { generatedFixture, layersOf, type Shapes, valuesOf } from './generated.js';
import { createReferenceDevice } from './reference-device.js';
import { decidedTokens, loadFolder, Runner } from './runner.js';

/** Of one source: its axes in an order, and along one of them what begins there, in steps. */
type Part = readonly [
  source: string,
  axes?: readonly number[] | null,
  axis?: number,
  from?: number,
  step?: number,
];
interface Made {
  readonly of?: Part;
  readonly stack?: readonly Part[];
  readonly plus?: number;
  /** What multiplies its rows: so many, and their factor. */
  readonly times?: readonly (readonly [rows: number, factor: number])[];
}
interface Layout {
  readonly tied: boolean;
  readonly quantization: Readonly<Record<string, unknown>> & {
    readonly bits: number;
    readonly group_size: number;
  };
  readonly packed: readonly string[];
  readonly dtypes?: Readonly<Record<string, string>>;
  /** Name, shape and what it is made of. */
  readonly tensors: Readonly<Record<string, readonly [shape: readonly number[], made: Made]>>;
  readonly sha256: string;
  readonly runs: readonly {
    readonly prompt: readonly number[];
    readonly greedy: readonly number[];
    readonly margins: readonly number[];
    readonly largest: readonly number[];
    readonly logits: readonly (readonly number[])[];
  }[];
}
interface Values {
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

const LAYOUTS = readPacked(new URL('../fixtures/mlx-text-layouts.json.br', import.meta.url)) as Readonly<
  Record<string, Layout>
>;
const size = (shape: readonly number[]): number => shape.reduce((product, n) => product * n, 1);

function bf16(values: Float32Array): Uint8Array {
  const out = new Uint8Array(2 * values.length);
  encodeFloats(values, 'bf16', out);
  return out;
}

function rounded(values: Float32Array): Float32Array {
  const out = new Float32Array(values.length);
  decodeFloats(bf16(values), 'bf16', out);
  return out;
}

/** What follows a comma tells layouts of one family apart. */
const fixtureOf = (family: string): ReturnType<typeof generatedFixture> =>
  generatedFixture(family.split(',')[0]!);

function weightsOf(shapes: Shapes, layers: number): Map<string, Values> {
  const out = new Map<string, Values>();
  for (const [pattern, shape] of Object.entries(shapes))
    for (let layer = 0; layer < (pattern.includes('*') ? layers : 1); layer++) {
      const name = pattern.replace('*', String(layer));
      out.set(name, { shape, data: rounded(valuesOf(name, size(shape))) });
    }
  return out;
}

/** A part of a source, of the given shape. */
function partOf(sources: ReadonlyMap<string, Values>, part: Part, shape: readonly number[]): Float32Array {
  const [name, axes, axis = 0, from = 0, step = 1] = part;
  const source = sources.get(name)!;
  const lead = source.shape.length - shape.length;
  const own = source.shape.slice(lead);
  const order = axes ?? own.map((_, i) => i);
  const strides = order.map((one) => size(own.slice(one + 1)));
  return Float32Array.from({ length: size(shape) }, (_, i) => {
    let rest = i;
    let at = 0;
    for (let d = shape.length - 1; d >= 0; d--) {
      const index = rest % shape[d]!;
      at += (d === axis ? from + step * index : index) * strides[d]!;
      rest = Math.floor(rest / shape[d]!);
    }
    return source.data[at]!;
  });
}

function madeOf(sources: ReadonlyMap<string, Values>, shape: readonly number[], made: Made): Float32Array {
  if (made.stack !== undefined) {
    const each = size(shape.slice(1));
    const out = new Float32Array(size(shape));
    made.stack.forEach((part, i) => {
      out.set(partOf(sources, part, shape.slice(1)), i * each);
    });
    return out;
  }
  const out = partOf(sources, made.of!, shape);
  if (made.times !== undefined) {
    const factors = made.times.flatMap(([rows, factor]) => Array.from({ length: rows }, () => factor));
    return rounded(out.map((value, i) => value * factors[Math.floor(i / shape[1]!)]!));
  }
  return made.plus === undefined ? out : rounded(out.map((value) => value + made.plus!));
}

/** Codes, scales and biases of a matrix, or of a stack of them. */
function quantised(shape: readonly number[], data: Float32Array, bits: 4 | 8, groupSize: 32): TestTensor[] {
  const cols = shape.at(-1)!;
  const lead = shape.slice(0, -1);
  const rows = size(lead);
  const groups = cols / groupSize;
  const codes = new Uint8Array((rows * cols * bits) / 8);
  const scales = new Float32Array(rows * groups);
  const biases = new Float32Array(rows * groups);
  const levels = new Uint8Array(cols);
  for (let r = 0; r < rows; r++) {
    const at = [r * groups, (r + 1) * groups] as const;
    const fits = quantizeRow(
      data.subarray(r * cols, (r + 1) * cols),
      { bits, groupSize },
      levels,
      scales.subarray(...at),
      biases.subarray(...at),
    );
    expect(fits).toBe(true);
    packCodes(levels, bits, codes.subarray((r * cols * bits) / 8, ((r + 1) * cols * bits) / 8));
  }
  return [
    { dtype: 'U32', shape: [...lead, (cols * bits) / 32], data: codes },
    { dtype: 'BF16', shape: [...lead, groups], data: bf16(scales) },
    { dtype: 'BF16', shape: [...lead, groups], data: bf16(biases) },
  ];
}

function tensorsOf(family: string, layout: Layout): Record<string, TestTensor> {
  const { config, shapes } = fixtureOf(family);
  const sources = weightsOf(shapes, layersOf(config)!);
  const packed = new Set(layout.packed);
  const out: Record<string, TestTensor> = {};
  for (const [name, [shape, made]] of Object.entries(layout.tensors)) {
    const data = madeOf(sources, shape, made);
    if (!packed.has(name)) {
      const wide = layout.dtypes?.[name] === 'float32';
      out[name] = { dtype: wide ? 'F32' : 'BF16', shape, data: wide ? bytesOf(data) : bf16(data) };
      continue;
    }
    const path = name.slice(0, -'.weight'.length);
    const own = (layout.quantization[path] ?? layout.quantization) as { readonly bits: 4 | 8 };
    const [codes, scales, biases] = quantised(shape, data, own.bits, 32);
    Object.assign(out, { [name]: codes, [`${path}.scales`]: scales, [`${path}.biases`]: biases });
  }
  return out;
}

function digest(tensors: Readonly<Record<string, TestTensor>>): string {
  const hash = createHash('sha256');
  for (const name of Object.keys(tensors).sort()) {
    const { dtype, shape, data } = tensors[name]!;
    hash.update(`${name}${dtype}${JSON.stringify(shape)}`).update(data);
  }
  return hash.digest('hex');
}

const scratch = mkdtempSync(join(tmpdir(), 'kvant-mlx-text-'));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Of the largest logit. */
const EXACT = 2e-4;
const MARGIN = 1e-3;
const NMSE = 1e-4;
const relaxed = devices.find(({ name }) => name === 'cpu relaxed')!;
const SIZES = { context: 32, chunk: 8 };

describe('as mlx-lm quantises them', () => {
  it.each(Object.entries(LAYOUTS))('%s', async (family, layout) => {
    const tensors = tensorsOf(family, layout);
    expect(digest(tensors)).toBe(layout.sha256);
    const { config } = fixtureOf(family);
    const { quantization, tied } = layout;
    writeFileSync(join(scratch, 'model.safetensors'), safetensors(tensors, { format: 'mlx' }));
    writeFileSync(
      join(scratch, 'config.json'),
      JSON.stringify({ ...config, tie_word_embeddings: tied, quantization }),
    );
    await using device = createReferenceDevice();
    await using runner = await Runner.create(device, await loadFolder(scratch, device), SIZES);
    for (const { prompt, greedy, margins, largest, logits } of layout.runs) {
      const found = await runner.generate(prompt, greedy.length);
      const decided = decidedTokens(greedy, margins, MARGIN / 2);
      expect(found.tokens.slice(0, decided.length)).toEqual(decided);
      for (const [step, expected] of logits.slice(0, decided.length + 1).entries())
        for (const [i, value] of expected.entries())
          expect(
            Math.abs(value - found.logits[step]![i]!) / largest[step]!,
            `${prompt.length} + ${step}`,
          ).toBeLessThan(EXACT);
    }
    await onTheCpu(layout.runs.at(-1)!.prompt);
  });
});

/** The CPU's default precision, against float64 that rounds activations where the CPU does. */
async function onTheCpu(prompt: readonly number[]): Promise<void> {
  await using cpu = await relaxed.create();
  await using like = createReferenceDevice({ int8: true });
  await using runner = await Runner.create(cpu, await loadFolder(scratch, cpu), SIZES);
  await using reference = await Runner.create(like, await loadFolder(scratch, like), SIZES);
  const [found] = (await runner.generate(prompt, 1)).logits;
  const [expected] = (await reference.generate(prompt, 1)).logits;
  let [error, all] = [0, 0];
  for (const [i, value] of expected!.entries()) {
    error += (value - found![i]!) ** 2;
    all += value ** 2;
  }
  expect(error / all).toBeLessThan(NMSE);
}
