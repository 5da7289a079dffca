import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { affine, F16, F32, turbo } from '../../../../test/devices/kv-cases.js';
import { Random, relativeError } from '../../../../test/devices/numbers.js';
import * as reference from '../../../../test/devices/reference.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { runKernel } from '../../../../test/setup/run-kernel.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { KvFormat } from '../../kv.js';
import { makeRopeTable, type RopeStyle } from '../../rope.js';
import type { WebGpuDevice } from '../device.js';
import type { RopeAppendShape } from '../shapes.js';
import { allRows } from './kv-rows.js';
import { SPLIT_K_SUMS } from './linear-split-k.js';
import { ropeAppendKernel } from './rope-append.js';

const [HEADS, KV_HEADS] = [4, 2];
const ALL = HEADS + 2 * KV_HEADS;
const EPS = 1e-6;
const [BLOCK, BLOCKS] = [16, 8];
/** Rows of the bucket, and the places of those of the step: two slots of four blocks each. */
const ROWS = 5;
const TABLES = [3, 1, 0, 2, 7, 4, 6, 5];
const PLACES: readonly (readonly [slot: number, position: number])[] = [
  [0, 21],
  [1, 0],
  [1, 63],
];

interface Case {
  readonly headDim: number;
  readonly splitK: number;
  readonly bias: boolean;
  readonly headNorm: boolean;
  readonly style: RopeStyle | null;
  readonly dims: number;
  readonly format: KvFormat;
}

describe('a rope-append of q, k and v in slices', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const base: Case = {
    headDim: 64,
    splitK: 4,
    bias: false,
    headNorm: false,
    style: 'half',
    dims: 64,
    format: F32,
  };
  it.each<Case>([
    base,
    { ...base, headDim: 128, splitK: 2, dims: 128, headNorm: true },
    { ...base, splitK: 8, bias: true, style: 'interleaved', dims: 24 },
    { ...base, splitK: 3, bias: true, headNorm: true, style: null },
    { ...base, format: F16 },
    { ...base, format: affine(4), bias: true },
    { ...base, headDim: 40, dims: 40, format: affine(3, 32), bias: true },
    // Two heads that share words of the cache are one workgroup's.
    { ...base, format: turbo(3), bias: true },
  ])('appends what it would of their sum: %o', async (c) => {
    const { headDim, splitK, bias, headNorm, style, dims, format } = c;
    const n = ALL * headDim;
    const shape: RopeAppendShape = {
      heads: HEADS,
      kvHeads: KV_HEADS,
      headDim,
      key: format,
      value: format,
      rows: allRows(BLOCKS),
      blockTokens: BLOCK,
      maxBlocksPerSlot: TABLES.length / 2,
      normEps: headNorm ? EPS : null,
      rope: style === null ? null : { dims, style },
    };
    const random = new Random(headDim + splitK);
    const sums = random.normals(splitK * ROWS * n);
    const biases = random.normals(n);
    const gammas = { q: random.normals(headDim), k: random.normals(headDim) };
    const frequencies = Float64Array.from({ length: dims / 2 }, (_, i) => 10000 ** ((-2 * i) / dims));
    const maxContext = (TABLES.length / 2) * BLOCK;
    const table = makeRopeTable({
      dims,
      style: style ?? 'half',
      frequencies,
      attentionFactor: 1,
      maxContext,
    });
    // As f32 is added up, one after the other, the bias last; and in float64.
    const rounded = new Float32Array(ROWS * n);
    const exact = new Float64Array(ROWS * n);
    for (let at = 0; at < ROWS * n; at++) {
      for (let s = 0; s < splitK; s++) {
        const sum = sums[s * ROWS * n + at]!;
        rounded[at] = s === 0 ? sum : rounded[at]! + sum;
        exact[at]! += sum;
      }
      if (!bias) continue;
      rounded[at] = rounded[at]! + biases[at % n]!;
      exact[at]! += biases[at % n]!;
    }
    const step = new Uint32Array(12 + 4 * ROWS);
    step.set([PLACES.length, PLACES.length, PLACES.length, 0]);
    PLACES.forEach(([slot, position], row) => {
      step.set([0, slot, position, 0], 12 + 4 * row);
    });
    // With room for tables: what rotates TurboQuant is the same numbers for both, if not those of a pool.
    const cache = BLOCKS * KV_HEADS * BLOCK * headDim * 4 + 65536;
    const empty = (bytes: number): GPUBuffer => raw.createBuffer({ size: bytes, usage: 128 | 4 | 8 });
    const roles = {
      [SPLIT_K_SUMS]: uploadTo(raw, sums),
      qkv: uploadTo(raw, rounded),
      bias: uploadTo(raw, biases),
      step: uploadTo(raw, step),
      tables: uploadTo(raw, Uint32Array.from(TABLES)),
      headNorms: uploadTo(raw, Float32Array.from([...gammas.q, ...gammas.k])),
      rope: uploadTo(raw, Float32Array.from([...table.fine, ...table.coarse])),
      out: empty(ROWS * HEADS * headDim * 4),
      keys: empty(cache),
      values: empty(cache),
    };
    /** q, keys and values, with all of them filled before. */
    const run = async (kernel: ReturnType<typeof ropeAppendKernel>): Promise<Float32Array[]> => {
      const [stage] = kernel.stages;
      const params = uploadUniform(stage!.params!);
      const got: Float32Array[] = [];
      for (const role of ['out', 'keys', 'values'] as const) {
        for (const name of ['out', 'keys', 'values'] as const)
          raw.queue.writeBuffer(roles[name], 0, new Float32Array(roles[name].size / 4).fill(-7));
        // What is read back is the buffer that is called `out`.
        const swapped = (name: string): string => (name === role ? 'out' : name === 'out' ? role : name);
        const given = { ...roles, params };
        const bindings = stage!.bindings.map((b) => ({ ...b, name: swapped(b.name) }));
        const named = Object.fromEntries(
          Object.entries(given).map(([name, buffer]) => [swapped(name), buffer]),
        );
        got.push(await runKernel(raw, { stages: [{ ...stage!, bindings }] }, PLACES.length, named));
      }
      params.destroy();
      return got;
    };
    const uploadUniform = (words: Uint32Array): GPUBuffer => {
      const buffer = raw.createBuffer({ size: words.byteLength, usage: 64 | 8 });
      raw.queue.writeBuffer(buffer, 0, words as Uint32Array<ArrayBuffer>);
      return buffer;
    };

    const kernel = ropeAppendKernel(shape, { splitK, rows: ROWS, bias });
    const names = kernel.stages[0]!.bindings.map(({ name }) => name);
    expect(names).toContain(SPLIT_K_SUMS);
    expect(names).not.toContain('qkv');
    expect(kernel.stages[0]!.wgsl.includes('half_')).toBe(format.kind === 'turboquant');
    const got = await run(kernel);
    const own = await run(ropeAppendKernel(shape));
    got.forEach((all, i) => {
      expect(new Uint32Array(all.buffer)).toEqual(new Uint32Array(own[i]!.buffer));
    });

    const [q, keys, values] = got as [Float32Array, Float32Array, Float32Array];
    PLACES.forEach(([slot, position], row) => {
      for (let h = 0; h < ALL; h++) {
        let head: Float64Array = exact.slice((row * ALL + h) * headDim, (row * ALL + h + 1) * headDim);
        const isValue = h >= HEADS + KV_HEADS;
        if (!isValue && headNorm)
          head = reference.rmsNorm(head, h < HEADS ? gammas.q : gammas.k, 1, headDim, EPS);
        if (!isValue && style !== null) reference.rotate(head, position, frequencies, style);
        const kv = (h - HEADS) % KV_HEADS;
        const block = TABLES[slot * (TABLES.length / 2) + Math.floor(position / BLOCK)]!;
        const vector = h < HEADS ? row * HEADS + h : (block * KV_HEADS + kv) * BLOCK + (position % BLOCK);
        // What other formats store is what they store of the same numbers; TurboQuant rotates queries too.
        if (format !== F32 && (h >= HEADS || format.kind === 'turboquant')) continue;
        const side = h < HEADS ? q : isValue ? values : keys;
        const part = side.subarray(vector * headDim, (vector + 1) * headDim);
        expect(relativeError(part, head), `row ${row} head ${h}`).toBeLessThan(2e-5);
      }
    });
    expect(q.subarray(PLACES.length * HEADS * headDim).every((v) => v === -7)).toBe(true);
    for (const buffer of Object.values(roles)) buffer.destroy();
  });

  it('has one text for all buckets', () => {
    const shape: RopeAppendShape = {
      heads: HEADS,
      kvHeads: KV_HEADS,
      headDim: 64,
      key: F16,
      value: F16,
      rows: allRows(BLOCKS),
      blockTokens: BLOCK,
      maxBlocksPerSlot: 4,
      normEps: null,
      rope: null,
    };
    const [few, more, plain] = [
      ropeAppendKernel(shape, { splitK: 4, rows: 16, bias: false }),
      ropeAppendKernel(shape, { splitK: 4, rows: 32, bias: false }),
      ropeAppendKernel(shape),
    ].map(({ stages }) => stages[0]!);
    expect(few!.wgsl).toBe(more!.wgsl);
    expect(few!.params).not.toEqual(more!.params);
    expect(few!.bindings).toHaveLength(plain!.bindings.length);
    expect(ropeAppendKernel(shape, { splitK: 4, rows: 16, bias: true }).stages[0]!.bindings).toHaveLength(
      plain!.bindings.length + 1,
    );
  });
});
