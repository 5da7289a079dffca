/**
 * A norm between two dp4a products, without a launch of its own: the first leaves its result as ever, bit for bit, and bytes of it
 * with sums of squares; what the second makes of those agrees with float64, as kernels and in a program.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import type { Capabilities, LinearShape } from '../../src/device/webgpu/kernel.js';
import { HANDED_BYTES } from '../../src/device/webgpu/kernels/linear-bytes.js';
import { gemvSpec, linearFits, linearKernel } from '../../src/device/webgpu/kernels/linear-choice.js';
import { dp4aLayout } from '../../src/device/webgpu/kernels/linear-dp4a-plan.js';
import { bytesStage } from '../../src/device/webgpu/kernels/linear-dp4a-x.js';
import { normHanded } from '../../src/device/webgpu/kernels/linear-handed.js';
import type { GpuMatrix } from '../../src/device/webgpu/matrix.js';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import { grid } from '../devices/devices.js';
import { Random, worstRow } from '../devices/numbers.js';
import * as reference from '../devices/reference.js';
import { record, rowsStep, withProgram } from '../devices/run.js';
import { randomMatrix, vectorSource } from '../devices/sources.js';
import { type Dp4aSizes, dp4aBound, dp4aChoice } from '../setup/dp4a-sizes.js';
import { emulateSubgroups } from '../setup/emulate-subgroups.js';
import { casesOf } from '../setup/every-case.js';
import { emptyOn, uploadTo } from '../setup/raw-buffers.js';
import { runKernel } from '../setup/run-kernel.js';
import { openTestDevice } from '../setup/swiftshader.js';

const EPS = 1e-5;
const INNER = 512;
/** For subgroups of four. 32 features of a workgroup, by values in registers and by sums that subgroups share. */
const ALONE: Dp4aSizes = { across: 2, pieces: 1, each: 2, subgroups: 8, splits: 1, chunks: 1, planes: 2 };
const SHARED: Dp4aSizes = { ...ALONE, subgroups: 16, splits: 2, chunks: 0 };
const CONSUMER: Dp4aSizes = { across: 2, pieces: 1, each: 2, subgroups: 4, splits: 1, chunks: 0, planes: 2 };

interface Case {
  readonly name: string;
  readonly rows: number;
  /** Features between the products. */
  readonly hidden: number;
  readonly glu: 'silu' | null;
  /** Of the second product. */
  readonly bias: boolean;
  readonly producer: Dp4aSizes;
  readonly consumer: Dp4aSizes;
  /** Of subgroups, if not as the device has them. */
  readonly lanes?: 32;
}

const AXES = {
  rows: casesOf([1, 3], [2, 5, 8]),
  planes: [1, 2],
  pieces: [1, 2],
  ends: ['in registers', 'together'],
  taking: ['in registers', 'together', 'staged'],
  glu: ['silu', null],
  bias: [false, true],
} as const;
const FORMS = grid(AXES, true).map(({ rows, planes, pieces, ends, taking, glu, bias }): Case => {
  const producer = ends === 'together' ? SHARED : ALONE;
  const more = { 'in registers': {}, together: { subgroups: 8, splits: 2 }, staged: { chunks: 1 } }[taking];
  return {
    name: `${rows} rows, planes ${planes}, pieces ${pieces}, sums ${ends} and ${taking}${glu === null ? '' : `, ${glu}`}${bias ? ', a bias' : ''}`,
    rows,
    hidden: 256,
    glu,
    bias,
    producer: { ...producer, subgroups: producer.subgroups * pieces },
    consumer: { ...CONSUMER, planes, pieces, ...more },
  };
});
const USUAL: Case = {
  name: '',
  rows: 3,
  hidden: 256,
  glu: 'silu',
  bias: false,
  producer: ALONE,
  consumer: CONSUMER,
};
const OTHERS: Case[] = [
  { ...USUAL, name: 'sums of squares that are no multiple of the lanes', hidden: 320 },
  { ...USUAL, name: 'fewer subgroups than rows', rows: 5, consumer: { ...CONSUMER, subgroups: 2 } },
];
/** Sizes as large GPUs get them. */
const OF_32: Case[] = [
  {
    ...USUAL,
    name: 'subgroups of 32, two pieces of a workgroup, to gate and up',
    rows: 4,
    lanes: 32,
    producer: { across: 4, pieces: 2, each: 4, subgroups: 4, splits: 2, chunks: 0, planes: 1 },
    consumer: { across: 8, pieces: 1, each: 4, subgroups: 8, splits: 1, chunks: 1, planes: 1 },
  },
  {
    ...USUAL,
    name: 'subgroups of 32, to q, k and v',
    rows: 2,
    glu: null,
    lanes: 32,
    producer: { across: 4, pieces: 2, each: 2, subgroups: 4, splits: 2, chunks: 1, planes: 2 },
    consumer: { across: 4, pieces: 1, each: 2, subgroups: 2, splits: 2, chunks: 0, planes: 2 },
  },
];

describe('bytes handed on through a norm', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  let plainly: Capabilities;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice({ minLanes: 4 }));
    plainly = device.capabilities;
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** Both products of x and a residual, whose numbers at some places may be others. */
  async function both(c: Case, poisoned: readonly (readonly [at: number, value: number])[] = []) {
    const { rows, hidden, glu, bias: biased } = c;
    const random = new Random(11);
    const format = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' } as const;
    const features = 192;
    const weights = [
      randomMatrix(random, hidden, INNER, format),
      randomMatrix(random, glu === null ? features : 2 * features, hidden, format),
    ] as const;
    const [first, second] = await Promise.all(
      weights.map(({ source }) => device.loadMatrix([source], { use: 'linear' })),
    );
    const [narrow, wide] = [first as GpuMatrix, second as GpuMatrix];
    const base = { rowKind: 'tokens', rows, outOffset: 0 } as const;
    const producer: LinearShape = {
      ...base,
      n: hidden,
      k: INNER,
      weight: narrow.shards[0]!.layout,
      xStride: INNER,
      outStride: hidden,
      bias: false,
      residual: true,
      norm: null,
      glu: null,
    };
    const consumer: LinearShape = {
      ...base,
      n: weights[1].source.rows,
      k: hidden,
      weight: wide.shards[0]!.layout,
      xStride: hidden,
      outStride: features,
      bias: biased,
      residual: false,
      norm: { eps: EPS },
      glu,
    };
    const choices = [
      dp4aChoice(plainly, c.producer, c.lanes),
      dp4aChoice(plainly, c.consumer, c.lanes),
    ] as const;
    const form = normHanded(plainly, producer, consumer, (shape) => choices[shape === producer ? 0 : 1]);
    if (form === null || form === 'halves') throw new Error(`${c.name} hands no bytes on`);

    const x = random.normals(rows * INNER);
    const residual = random.normals(rows * hidden);
    const gain = Float32Array.from(random.normals(hidden), (v) => 1 + 0.3 * v);
    const bias = biased ? random.normals(consumer.n) : new Float32Array(consumer.n);
    // A row of zeros, where there are several.
    if (rows > 2) {
      x.fill(0, 2 * INNER, 3 * INNER);
      residual.fill(0, 2 * hidden, 3 * hidden);
    }
    for (const [at, value] of poisoned) residual[at] = value;
    const layout = dp4aLayout(gemvSpec(producer), choices[0].config);
    const handed = {
      [HANDED_BYTES.bytes]: emptyOn(raw, rows * INNER * layout.planes),
      [HANDED_BYTES.terms]: emptyOn(raw, ((rows * INNER) / (32 * layout.pieces)) * 8),
    };
    const left = {
      scratchBytes: emptyOn(raw, rows * hidden * form.bytes.planes),
      scratchTerms: emptyOn(raw, ((rows * hidden) / (32 * form.bytes.pieces)) * 8),
      scratchSquares: emptyOn(raw, form.tiles * rows * 4),
    };
    const shared = {
      x: uploadTo(raw, x),
      residual: uploadTo(raw, residual),
      outNorm: uploadTo(raw, gain),
      bias: uploadTo(raw, bias),
      plain: emptyOn(raw, rows * hidden * 4),
      stream: emptyOn(raw, rows * hidden * 4),
      out: emptyOn(raw, rows * features * 4),
    };
    const codesOf = ({ shards: [shard] }: GpuMatrix) => ({ codes: shard!.codes, metas: shard!.metas! });
    const emulated = c.lanes === undefined ? undefined : emulateSubgroups;
    const lanes = choices[0].config.subgroupSize;
    const stage = bytesStage(producer, layout, lanes, plainly.workgroupThreads, HANDED_BYTES);
    await runKernel(
      raw,
      { stages: [stage] },
      rows,
      { ...shared, ...handed, out: handed[HANDED_BYTES.bytes]! },
      emulated,
    );
    const given = { ...producer, xHanded: layout };
    const run = (shape: LinearShape, at: 0 | 1, roles: Record<string, GPUBuffer>) =>
      runKernel(raw, linearKernel(plainly, shape, choices[at]), rows, { ...shared, ...roles }, emulated);
    const plain = await run(given, 0, { ...codesOf(narrow), ...handed, out: shared.plain });
    const stream = await run({ ...given, outNorm: { eps: EPS, form } }, 0, {
      ...codesOf(narrow),
      ...handed,
      ...left,
      out: shared.stream,
    });
    const results = await run({ ...consumer, xNormed: form }, 1, { ...codesOf(wide), ...left });
    for (const buffer of Object.values({ ...shared, ...handed, ...left })) buffer.destroy();

    const sums = reference.linear(x, weights[0].values, rows, INNER, hidden, undefined, residual);
    const normed = reference.rmsNorm(sums, gain, rows, hidden, EPS);
    const outs = reference.linear(normed, weights[1].values, rows, hidden, consumer.n, bias);
    const expected = glu === null ? outs : reference.glu(outs, rows, features, glu);
    return { plain, stream, results, expected, features };
  }

  it.each([...FORMS, ...OTHERS, ...OF_32])('are of what the first leaves: $name', async (c) => {
    const { plain, stream, results, expected, features } = await both(c);
    expect(new Uint32Array(stream.buffer)).toEqual(new Uint32Array(plain.buffer));
    expect(results.every(Number.isFinite)).toBe(true);
    // Rows without numbers have none to compare with: zeros, or the bias alone.
    const zeros = (row: number): boolean => c.rows > 2 && row === 2 && !c.bias;
    if (c.rows > 2 && !c.bias)
      expect(results.slice(2 * features, 3 * features).every((v) => v === 0)).toBe(true);
    for (let row = 0; row < c.rows; row++) {
      if (zeros(row)) continue;
      const of = <T extends { slice(a: number, b: number): T }>(all: T): T =>
        all.slice(row * features, (row + 1) * features);
      const own = of(results);
      expect(worstRow(own, of(expected), 1, features), `row ${row}`).toBeLessThan(
        dp4aBound(c.consumer.planes) + dp4aBound(c.producer.planes),
      );
    }
  });

  it('of a row that went wrong say so, and its neighbours are as they were', async () => {
    const usual = await both(USUAL);
    const { features } = usual;
    for (const value of [Number.NaN, Number.NEGATIVE_INFINITY]) {
      const { results } = await both(USUAL, [[USUAL.hidden + 5, value]]);
      for (let row = 0; row < USUAL.rows; row++) {
        const [own, before] = [results, usual.results].map((all) =>
          all.slice(row * features, (row + 1) * features),
        );
        if (row === 1) expect(own!.every(Number.isNaN)).toBe(true);
        else expect(own).toEqual(before);
      }
    }
  });

  it('are not left where a workgroup has no whole pieces', () => {
    const layout = { rows: 2, k: 256, bits: 4, pieces: 1, planes: 1, across: 2, chunkSteps: 4 } as const;
    const shape: LinearShape = {
      rowKind: 'tokens',
      rows: 2,
      n: 256,
      k: INNER,
      weight: { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' },
      xStride: INNER,
      outStride: 256,
      outOffset: 0,
      bias: false,
      residual: true,
      norm: null,
      glu: null,
    };
    const fits = (
      bytes: object,
      sizes: Partial<Dp4aSizes> = {},
      more: Partial<LinearShape> = {},
    ): boolean => {
      const form = { bytes: { ...layout, ...bytes }, tiles: 8 };
      return linearFits(
        plainly,
        { ...shape, ...more, outNorm: { eps: EPS, form } },
        dp4aChoice(plainly, { ...ALONE, ...sizes }, 4),
      );
    };
    expect(fits({})).toBe(true);
    expect(fits({ pieces: 2 })).toBe(false);
    expect(fits({ pieces: 2 }, { subgroups: 16 })).toBe(true);
    expect(fits({}, { subgroups: 4 })).toBe(false);
    // 96 features of a workgroup: 256 are no multiple of those.
    expect(fits({}, { subgroups: 24 })).toBe(false);
    expect(fits({ rows: 4 })).toBe(false);
    expect(fits({ k: 512 })).toBe(false);
    expect(fits({}, {}, { norm: { eps: EPS } })).toBe(false);
    expect(fits({}, {}, { outOffset: 32, outStride: 512 })).toBe(false);
  });

  it('are handed on in a program, over layers, of steps of fewer rows than their bucket too', async () => {
    const random = new Random(43);
    const format = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' } as const;
    const [hidden, layers] = [256, 3];
    const gateUp = randomMatrix(random, 2 * INNER, hidden, format);
    const down = randomMatrix(random, hidden, INNER, format);
    const gain = random.normals(hidden);
    const norm = await device.loadVector(vectorSource(gain));
    const [wide, narrow] = [
      await device.loadMatrix([gateUp.source], { use: 'linear' }),
      await device.loadMatrix([down.source], { use: 'linear' }),
    ];
    const { graph, tensors } = record((ops) => {
      const x = ops.input('tokens', hidden);
      let y = x;
      for (let layer = 0; layer < layers; layer++)
        y = ops.linear(ops.glu(ops.linear(ops.rmsNorm(y, norm, EPS), wide), 'silu'), narrow, y);
      return { x, y: ops.keep(y) };
    });
    const dp4a: Capabilities = {
      ...plainly,
      tuned: {
        linear: ({ glu, rows }) => {
          if (rows > 8) return undefined;
          const planes = rows > 2 ? 1 : 2;
          // Gate and up leave whole pieces too.
          return dp4aChoice(plainly, { ...(glu === null ? SHARED : { ...ALONE, subgroups: 16 }), planes });
        },
        decode: () => undefined,
      },
    };
    Object.assign(device, { capabilities: dp4a });
    try {
      const results = await withProgram(device, graph, null, async (program) => {
        const labels = (program as WebGpuProgram).describe(4, 0);
        expect(labels.filter((label) => label.endsWith('to bytes of a norm'))).toHaveLength(layers - 1);
        expect(labels.filter((label) => label.includes('of sums of squares'))).toHaveLength(layers - 1);
        expect(labels.filter((label) => label.startsWith('rms-norm'))).toHaveLength(1);
        expect(labels).toHaveLength(2 * layers + 1);
        const all: Float32Array[] = [];
        for (const rows of [8, 1, 2, 3, 5, 8]) {
          program.write(tensors.x, new Random(rows).normals(rows * hidden));
          await program.submit(rowsStep(rows));
          all.push(await program.read(tensors.y, rows));
        }
        return all;
      });
      for (const got of results) {
        const rows = got.length / hidden;
        let y: ArrayLike<number> = new Random(rows).normals(rows * hidden);
        for (let layer = 0; layer < layers; layer++) {
          const normed = reference.rmsNorm(y, gain, rows, hidden, EPS);
          const gated = reference.glu(
            reference.linear(normed, gateUp.values, rows, hidden, 2 * INNER),
            rows,
            INNER,
            'silu',
          );
          y = reference.linear(gated, down.values, rows, INNER, hidden, undefined, y);
        }
        expect(worstRow(got, y, rows, hidden), `${rows} rows`).toBeLessThan(rows > 2 ? 5e-2 : 5e-4);
      }
    } finally {
      Object.assign(device, { capabilities: plainly });
    }
  });
});
