import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { F32 } from '../../../../test/devices/kv-cases.js';
import { Random, relativeError } from '../../../../test/devices/numbers.js';
import * as reference from '../../../../test/devices/reference.js';
import { randomMatrix } from '../../../../test/devices/sources.js';
import { casesOf } from '../../../../test/setup/every-case.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { runKernel } from '../../../../test/setup/run-kernel.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { QueryGrowth } from '../../graph.js';
import { makeRopeTable, type RopeStyle } from '../../rope.js';
import type { WebGpuDevice } from '../device.js';
import type { LinearShape } from '../kernel.js';
import { allRows } from '../kernels/kv-rows.js';
import { linearKernel } from '../kernels/linear-choice.js';
import type { RopeAppendShape } from '../shapes.js';
import { linearCandidates } from './linear-candidates.js';

const [HIDDEN, HEADS, KV_HEADS, HEAD_DIM] = [512, 4, 2, 64];
const ROWS = HEADS + 2 * KV_HEADS;
const N = ROWS * HEAD_DIM;
const EPS = 1e-6;
const [BLOCK, BLOCKS] = [16, 4];
/** The second block of the slot is block 1. */
const [POSITION, TABLE] = [21, [3, 1, 0, 2]];

interface Case {
  readonly headNorm: boolean;
  readonly bias: boolean;
  readonly style: RopeStyle;
  readonly dims: number;
  readonly growth?: QueryGrowth;
}

describe('candidates of a product that appends', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice({ minLanes: 4 }));
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const empty = (floats: number): GPUBuffer => raw.createBuffer({ size: floats * 4, usage: 128 | 4 | 8 });
  async function floatsOf(buffer: GPUBuffer): Promise<Float32Array> {
    const staging = raw.createBuffer({ size: buffer.size, usage: 1 | 8 });
    const encoder = raw.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, buffer.size);
    raw.queue.submit([encoder.finish()]);
    await staging.mapAsync(1);
    const floats = new Float32Array(staging.getMappedRange()).slice();
    staging.destroy();
    return floats;
  }

  const cases = casesOf<Case>(
    [
      { headNorm: false, bias: true, style: 'interleaved', dims: 24 },
      { headNorm: true, bias: false, style: 'half', dims: 64, growth: { beta: 0.3, every: 2 } },
    ],
    [
      { headNorm: true, bias: true, style: 'half', dims: 64 },
      { headNorm: false, bias: false, style: 'half', dims: 32 },
    ],
  );
  it.each(cases)(
    'leave what float64 says, each in its place: %o',
    async ({ headNorm, bias, style, dims, growth }) => {
      const random = new Random(dims);
      const append: RopeAppendShape = {
        heads: HEADS,
        kvHeads: KV_HEADS,
        headDim: HEAD_DIM,
        key: F32,
        value: F32,
        rows: allRows(BLOCKS),
        blockTokens: BLOCK,
        maxBlocksPerSlot: TABLE.length,
        normEps: headNorm ? EPS : null,
        rope: { dims, style },
        queryGrowth: growth ?? null,
      };
      const shape: LinearShape = {
        rowKind: 'tokens',
        rows: 1,
        n: N,
        k: HIDDEN,
        weight: { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' },
        xStride: HIDDEN,
        outStride: N,
        outOffset: 0,
        bias,
        residual: false,
        norm: { eps: EPS },
        glu: null,
        append,
      };
      const format = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' } as const;
      const { source, values } = randomMatrix(random, N, HIDDEN, format);
      const shard = (await device.loadMatrix([source], { use: 'linear' })).shards[0]!;
      const x = random.normals(HIDDEN);
      const gain = random.normals(HIDDEN);
      const biases = random.normals(N);
      const gammas = { q: random.normals(HEAD_DIM), k: random.normals(HEAD_DIM) };
      const frequencies = Float64Array.from({ length: dims / 2 }, (_, i) => 10000 ** ((-2 * i) / dims));
      const maxContext = TABLE.length * BLOCK;
      const rope = makeRopeTable({ dims, style, frequencies, attentionFactor: 1, maxContext });

      const normed = reference.rmsNorm(x, gain, 1, HIDDEN, EPS);
      const qkv = reference.linear(normed, values, 1, HIDDEN, N, bias ? biases : undefined);
      const wanted = Array.from({ length: ROWS }, (_, h) => {
        let head: Float64Array = qkv.slice(h * HEAD_DIM, (h + 1) * HEAD_DIM);
        if (h >= HEADS + KV_HEADS) return head;
        if (headNorm) head = reference.rmsNorm(head, h < HEADS ? gammas.q : gammas.k, 1, HEAD_DIM, EPS);
        reference.rotate(head, POSITION, frequencies, style);
        if (h >= HEADS || growth === undefined) return head;
        return head.map((x) => x * (1 + growth.beta * Math.log(1 + Math.floor(POSITION / growth.every))));
      });

      const perHead = headNorm ? [gammas.q, gammas.k] : [];
      const constants = [gain, ...(bias ? [biases] : []), ...perHead].flatMap((part) => [...part]);
      const step = new Uint32Array(16);
      step.set([1, 1, 1, 0]);
      step.set([0, 0, POSITION, 0], 12);
      const cache = BLOCKS * KV_HEADS * BLOCK * HEAD_DIM;
      const roles = {
        x: uploadTo(raw, x),
        codes: shard.codes,
        metas: shard.metas!,
        step: uploadTo(raw, step),
        constants: uploadTo(raw, Float32Array.from(constants)),
        tables: uploadTo(raw, Uint32Array.from(TABLE)),
        rope: uploadTo(raw, Float32Array.from([...rope.fine, ...rope.coarse])),
        out: empty(HEADS * HEAD_DIM),
        keys: empty(cache),
        values: empty(cache),
      };
      // Those with the bits of the rule's, and a third of the others: they share their code.
      const candidates = linearCandidates(device.capabilities, shape).filter(
        ({ neutral }, i) => neutral || i % 3 === 0,
      );
      expect(candidates.some(({ choice: { config } }) => 'splits' in config && config.splits > 1)).toBe(true);
      let rule: Uint32Array | null = null;
      for (const { id, choice, neutral } of candidates) {
        for (const written of [roles.out, roles.keys, roles.values])
          raw.queue.writeBuffer(written, 0, new Float32Array(written.size / 4).fill(-7));
        const q = await runKernel(raw, linearKernel(device.capabilities, shape, choice), 1, roles);
        const stored = [await floatsOf(roles.keys), await floatsOf(roles.values)];
        const all = Float32Array.from([...q, ...stored.flatMap((side) => [...side])]);
        const bits = new Uint32Array(all.buffer);
        rule ??= bits;
        if (neutral) expect(bits, id).toEqual(rule);
        wanted.forEach((head, h) => {
          const side = h < HEADS ? q : stored[h < HEADS + KV_HEADS ? 0 : 1]!;
          const kv = (h - HEADS) % KV_HEADS;
          const vector = h < HEADS ? h : (TABLE[1]! * KV_HEADS + kv) * BLOCK + (POSITION % BLOCK);
          const got = side.subarray(vector * HEAD_DIM, (vector + 1) * HEAD_DIM);
          expect(relativeError(got, head), `${id} head ${h}`).toBeLessThan(2e-5);
          side.fill(-7, vector * HEAD_DIM, (vector + 1) * HEAD_DIM);
        });
        for (const side of stored)
          expect(
            side.every((v) => v === -7),
            `${id} wrote elsewhere`,
          ).toBe(true);
      }
      for (const [name, buffer] of Object.entries(roles))
        if (name !== 'codes' && name !== 'metas') buffer.destroy();
    },
  );
});
