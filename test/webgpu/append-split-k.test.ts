/**
 * Of some dozen rows the product of q, k and v may be cut into slices of K, which the rope-append puts together as it reads them, on a GPU
 * that multiplies halves: the bits are those of a launch between the two, and q agrees with float64.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import type { KvFormat } from '../../src/device/kv.js';
import { makeRopeTable } from '../../src/device/rope.js';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import { devices } from '../devices/devices.js';
import { affine, F16, turbo } from '../devices/kv-cases.js';
import { Random, worstRow } from '../devices/numbers.js';
import * as reference from '../devices/reference.js';
import { LIMITS, record, stepOf } from '../devices/run.js';
import { randomMatrix, vectorSource } from '../devices/sources.js';

const [HIDDEN, HEADS, KV_HEADS, HEAD_DIM] = [1024, 4, 2, 64];
const ALL = HEADS + 2 * KV_HEADS;
const N = ALL * HEAD_DIM;
const Q = HEADS * HEAD_DIM;
const EPS = 1e-6;
const SLOTS = 3;
const PER_SLOT = 10;
const SHAPE = { layer: 0, heads: HEADS, kvHeads: KV_HEADS, headDim: HEAD_DIM };

interface Case {
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly bias: boolean;
  readonly headNorm: boolean;
  readonly floatStart?: boolean;
}
const CASES: readonly Case[] = [
  { key: F16, value: F16, bias: false, headNorm: false },
  { key: F16, value: F16, bias: true, headNorm: true },
  { key: affine(4), value: affine(4), bias: true, headNorm: false },
  { key: turbo(3), value: turbo(4), bias: false, headNorm: true, floatStart: true },
];
/** Some of so many tokens that slices are left, some not. */
const STEPS: readonly (readonly [slots: number[], lengths: number[]])[] = [
  [[0], [20]],
  [
    [1, 0],
    [31, 1],
  ],
  [
    [0, 1, 2],
    [1, 1, 3],
  ],
  [
    [2, 0, 1],
    [23, 1, 1],
  ],
  [[2], [60]],
];

describe.each(devices.filter((d) => d.name === 'webgpu default'))('q, k and v in slices, $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** Two of a kind: q, k and v are kept, and so put together before anybody reads them, or they are not. */
  async function open(c: Case) {
    const random = new Random(31);
    const { source, values } = randomMatrix(random, N, HIDDEN, {
      kind: 'affine',
      bits: 4,
      groupSize: 64,
      dtype: 'f16',
    });
    const biases = random.normals(N);
    const gammas = { q: random.normals(HEAD_DIM), k: random.normals(HEAD_DIM) };
    const bias = c.bias ? { bias: [vectorSource(biases)] } : {};
    const weight = await device.loadMatrix([source], { use: 'linear', ...bias });
    const [q, k] = [
      await device.loadVector(vectorSource(gammas.q)),
      await device.loadVector(vectorSource(gammas.k)),
    ];
    const norm = c.headNorm ? { q, k, eps: EPS } : null;
    const frequencies = Float64Array.from({ length: HEAD_DIM / 2 }, (_, i) => 10000 ** (-i / 32));
    const rope = makeRopeTable({
      dims: HEAD_DIM,
      style: 'half',
      frequencies,
      attentionFactor: 1,
      maxContext: LIMITS.maxContext,
    });
    const made = async (keeps: boolean) => {
      const { graph, tensors } = record((ops) => {
        const x = ops.input('tokens', HIDDEN);
        const qkv = ops.linear(x, weight);
        if (keeps) ops.keep(qkv);
        const turned = ops.keep(ops.ropeAppend(qkv, { ...SHAPE, norm, rope }));
        return { x, turned, out: ops.keep(ops.attend(turned, SHAPE)) };
      });
      const pool = device.createKvPool({
        layers: [{ kvHeads: KV_HEADS, headDim: HEAD_DIM, key: c.key, value: c.value, group: 0 }],
        blocks: SLOTS * PER_SLOT,
        blockTokens: 16,
        slots: SLOTS,
        maxBlocksPerSlot: PER_SLOT,
        floatStart: c.floatStart === true ? { blocks: PER_SLOT, dtype: 'f16' } : null,
      });
      for (let slot = 0; slot < SLOTS; slot++) {
        // The last slot's blocks are float-start where there are such.
        const from = c.floatStart === true && slot === SLOTS - 1 ? SLOTS * PER_SLOT : slot * PER_SLOT;
        pool.setBlocks(
          slot,
          0,
          Uint32Array.from({ length: PER_SLOT }, (_, i) => from + i),
        );
      }
      return { program: await device.compile(graph, LIMITS, pool), pool, ...tensors };
    };
    /** Heads of q in float64. */
    const wanted = (x: Float32Array, positions: readonly number[]): Float64Array => {
      const rows = positions.length;
      const qkv = reference.linear(x, values, rows, HIDDEN, N, c.bias ? biases : undefined);
      const all = new Float64Array(rows * Q);
      positions.forEach((position, row) => {
        for (let h = 0; h < HEADS; h++) {
          let head: Float64Array = qkv.slice(row * N + h * HEAD_DIM, row * N + (h + 1) * HEAD_DIM);
          if (c.headNorm) head = reference.rmsNorm(head, gammas.q, 1, HEAD_DIM, EPS);
          reference.rotate(head, position, frequencies, 'half');
          all.set(head, row * Q + h * HEAD_DIM);
        }
      });
      return all;
    };
    return { plain: await made(true), splitK: await made(false), wanted };
  }

  it.each(CASES)(
    'are appended with the bits of a launch between: $key $value, bias $bias, norms $headNorm',
    async (c) => {
      const { plain, splitK, wanted } = await open(c);
      const labels = ({ program }: typeof plain, rows: number): string[] =>
        (program as WebGpuProgram).describe(rows, 0);
      for (const rows of [1, 8, 20, 32, 60]) {
        const [own, less] = [labels(plain, rows), labels(splitK, rows)];
        const launches = own.filter((label) => label.startsWith('split-k '));
        expect(less.some((label) => label.startsWith('split-k '))).toBe(false);
        expect(less.some((label) => /^rope-append .* of split-k \d+/.test(label))).toBe(launches.length > 0);
        // One row appends in its product, where nobody wants q, k and v.
        if (rows > 1) expect(less).toHaveLength(own.length - launches.length);
      }
      const random = new Random(32);
      const lengths = new Array<number>(SLOTS).fill(0);
      for (const [slots, counts] of STEPS) {
        const starts = slots.map((slot) => lengths[slot]!);
        const positions = slots.flatMap((_, s) =>
          Array.from({ length: counts[s]! }, (_, i) => starts[s]! + i),
        );
        const rows = positions.length;
        const x = random.normals(rows * HIDDEN);
        const results = [];
        for (const { program, x: input, turned, out } of [plain, splitK]) {
          program.write(input, x);
          await program.submit(stepOf(counts, starts, slots));
          results.push([await program.read(turned, rows), await program.read(out, rows)] as const);
        }
        const where = `${rows} rows of slots ${slots}`;
        const [apart, got] = results as [
          readonly [Float32Array, Float32Array],
          readonly [Float32Array, Float32Array],
        ];
        for (const i of [0, 1] as const)
          expect(new Uint32Array(got[i].buffer), where).toEqual(new Uint32Array(apart[i].buffer));
        // Queries of TurboQuant keys are rotated once more.
        if (c.key.kind !== 'turboquant')
          expect(worstRow(got[0], wanted(x, positions), rows, Q), where).toBeLessThan(3e-3);
        slots.forEach((slot, s) => {
          lengths[slot]! += counts[s]!;
        });
      }
      for (const { program, pool } of [plain, splitK]) {
        await program.dispose();
        pool.dispose();
      }
    },
  );
});
