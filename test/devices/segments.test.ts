/** Ops of towers: rotation by angles of each row, attention in segments, rows put side by side. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device, Program } from '../../src/device/device.js';
import type { Tensor } from '../../src/device/graph.js';
import type { Ops } from '../../src/device/ops.js';
import { ROPE_STYLES, type RopeStyle } from '../../src/device/rope.js';
import { realGpu } from '../setup/swiftshader.js';
import { type DeviceSpec, kernelDevices } from './devices.js';
import { Random, worstRow } from './numbers.js';
import { LIMITS, record, rowsStep, stepOf, withProgram } from './run.js';
import { randomMatrix } from './sources.js';

/** Room for a segment of more than one split. */
const MANY = { ...LIMITS, maxTokens: 400 };

interface Rows {
  readonly cols: number;
  readonly data: Float32Array;
}

/** What `build` makes of two inputs. */
async function run(
  device: Device,
  rows: number,
  [a, b]: readonly [Rows, Rows],
  build: (ops: Ops, a: Tensor, b: Tensor) => Tensor,
): Promise<Float32Array> {
  const { graph, tensors } = record((ops) => {
    const x = ops.input('tokens', a.cols);
    const y = ops.input('tokens', b.cols);
    return { x, y, out: ops.keep(build(ops, x, y)) };
  });
  return withProgram(
    device,
    graph,
    null,
    async (program) => {
      program.write(tensors.x, a.data);
      program.write(tensors.y, b.data);
      await program.submit(stepOf([rows], undefined, undefined, MANY));
      return program.read(tensors.out, rows);
    },
    MANY,
  );
}

function rotated(x: Rows, angles: Rows, rows: number, heads: number, headDim: number, style: RopeStyle) {
  const out = Float64Array.from(x.data);
  const half = angles.cols / 2;
  for (let r = 0; r < rows; r++)
    for (let h = 0; h < heads; h++)
      for (let i = 0; i < half; i++) {
        const at = r * x.cols + h * headDim;
        const [p, q] = style === 'half' ? [at + i, at + i + half] : [at + 2 * i, at + 2 * i + 1];
        const c = angles.data[r * angles.cols + i]!;
        const s = angles.data[r * angles.cols + half + i]!;
        out[p] = x.data[p]! * c - x.data[q]! * s;
        out[q] = x.data[q]! * c + x.data[p]! * s;
      }
  return out;
}

function attended(qkv: Float32Array, ends: readonly number[], heads: number, d: number, scale: number) {
  const rows = ends.at(-1)!;
  const width = 3 * heads * d;
  const out = new Float64Array(rows * heads * d);
  ends.forEach((end, s) => {
    const first = s === 0 ? 0 : ends[s - 1]!;
    for (let r = first; r < end; r++)
      for (let h = 0; h < heads; h++) {
        const scores: number[] = [];
        for (let t = first; t < end; t++) {
          let sum = 0;
          for (let i = 0; i < d; i++)
            sum += qkv[r * width + h * d + i]! * qkv[t * width + (heads + h) * d + i]!;
          scores.push(sum * scale);
        }
        const top = Math.max(...scores);
        const weights = scores.map((score) => Math.exp(score - top));
        const all = weights.reduce((sum, w) => sum + w, 0);
        weights.forEach((w, t) => {
          for (let i = 0; i < d; i++)
            out[(r * heads + h) * d + i]! += (w / all) * qkv[(first + t) * width + (2 * heads + h) * d + i]!;
        });
      }
  });
  return out;
}

function boundsOf(ends: readonly number[]): Rows {
  const rows = ends.at(-1)!;
  const data = new Float32Array(rows * 2);
  ends.forEach((end, s) => {
    const first = s === 0 ? 0 : ends[s - 1]!;
    for (let r = first; r < end; r++) data.set([first, end], r * 2);
  });
  return { cols: 2, data };
}

/** Segments by their ends: windows and their rims, one row, more than a split of 256 rows. */
const CASES = [
  { ends: [64, 80, 96, 100], heads: 2, d: 32 },
  { ends: [1, 2, 19], heads: 3, d: 80 },
  { ends: [7], heads: 1, d: 72 },
  { ends: [130, 131, 399], heads: 1, d: 16 },
  { ends: [33, 50], heads: 1, d: 128 },
  { ends: [5, 22], heads: 2, d: 4 },
  { ends: [64, 128, 200, 201, 330], heads: 2, d: 64 },
  { ends: [70, 300], heads: 2, d: 72 },
] as const;

/** A GPU with matrices rounds q, k, v and weights to halves. */
function errorBound({ kind, precision }: DeviceSpec, device: Device): number {
  const halves =
    kind === 'webgpu' && precision === 'default' && device.info.features.includes('subgroup-matrix');
  return halves ? 2e-3 : 5e-6;
}

describe.each(kernelDevices)('ops of towers on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(ROPE_STYLES)('rotates rows by angles of their own, pairs of style %s', async (style) => {
    for (const [rows, heads, headDim, dims, behind] of [
      [1, 1, 4, 2, 0],
      [17, 3, 80, 80, 40],
      [5, 2, 36, 20, 3],
    ] as const) {
      const random = new Random(rows);
      const cols = heads * headDim + behind;
      const x = { cols, data: random.normals(rows * cols) };
      const angles = { cols: dims, data: random.normals(rows * dims) };
      const out = await run(device, rows, [x, angles], (ops, a, b) =>
        ops.rotate(a, b, { heads, headDim, style }),
      );
      const want = rotated(x, angles, rows, heads, headDim, style);
      expect(worstRow(out, want, rows, cols)).toBeLessThan(1e-6);
    }
  });

  it.each(CASES)('attends in segments that end at $ends: $heads heads of $d', async ({ ends, heads, d }) => {
    const rows = ends.at(-1)!;
    const cols = 3 * heads * d;
    const qkv = { cols, data: new Random(rows).normals(rows * cols) };
    const attend = (data: Rows, own: readonly number[]): Promise<Float32Array> =>
      run(device, own.at(-1)!, [data, boundsOf(own)], (ops, a, b) =>
        ops.attendSegments(a, b, { heads, headDim: d }),
      );
    const out = await attend(qkv, ends);
    const want = attended(qkv.data, ends, heads, d, 1 / Math.sqrt(d));
    expect(worstRow(out, want, rows, heads * d)).toBeLessThan(errorBound(spec, device));
    // The last segment alone has the bits it has in company.
    const first = ends.at(-2) ?? 0;
    const alone = await attend({ cols, data: qkv.data.slice(first * cols) }, [rows - first]);
    expect(alone).toEqual(out.slice(first * heads * d));
  });

  it.each([
    { ends: [64, 80, 100], heads: 2, d: 80, dims: 80 },
    { ends: [7, 90], heads: 1, d: 72, dims: 72 },
    // Pairs that lie no whole vectors apart, and dims that stay.
    { ends: [20, 33], heads: 2, d: 20, dims: 20 },
    { ends: [20, 33], heads: 2, d: 32, dims: 16 },
  ])('turns what it attends to in segments: $heads heads of $d, $dims dims', async (one) => {
    const { ends, heads, d, dims } = one;
    const rows = ends.at(-1)!;
    const cols = 3 * heads * d;
    const random = new Random(rows + d);
    const qkv = { cols, data: random.normals(rows * cols) };
    const turns = Float32Array.from({ length: rows * (dims / 2) }, () => random.normals(1)[0]! * 3);
    const data = new Float32Array(rows * dims);
    turns.forEach((turn, i) => {
      const [row, at] = [Math.floor(i / (dims / 2)), i % (dims / 2)];
      data[row * dims + at] = Math.cos(turn);
      data[row * dims + dims / 2 + at] = Math.sin(turn);
    });
    const attend = (own: readonly number[], from: number): Promise<Float32Array> => {
      const count = own.at(-1)!;
      const { graph, tensors } = record((ops) => {
        const [x, angles, bounds] = [cols, dims, 2].map((width) => ops.input('tokens', width)) as [
          Tensor,
          Tensor,
          Tensor,
        ];
        const turned = ops.rotate(x, angles, { heads: 2 * heads, headDim: d, style: 'half' });
        return {
          x,
          angles,
          bounds,
          out: ops.keep(ops.attendSegments(turned, bounds, { heads, headDim: d })),
        };
      });
      const run = async (program: Program): Promise<Float32Array> => {
        program.write(tensors.x, qkv.data.slice(from * cols, (from + count) * cols));
        program.write(tensors.angles, data.slice(from * dims, (from + count) * dims));
        program.write(tensors.bounds, boundsOf(own).data);
        await program.submit(stepOf([count], undefined, undefined, MANY));
        return program.read(tensors.out, count);
      };
      return withProgram(device, graph, null, run, MANY);
    };
    const out = await attend(ends, 0);
    const turned = Float32Array.from(rotated(qkv, { cols: dims, data }, rows, 2 * heads, d, 'half'));
    const want = attended(turned, ends, heads, d, 1 / Math.sqrt(d));
    expect(worstRow(out, want, rows, heads * d)).toBeLessThan(errorBound(spec, device));
    const first = ends.at(-2)!;
    expect(await attend([rows - first], first)).toEqual(out.slice(first * heads * d));
  });

  // Slow elsewhere, and of one launch there.
  if (realGpu && spec.kind === 'webgpu') {
    it('attends to many rows in several launches', async () => {
      const [rows, heads, d] = [16_500, 2, 16];
      const many = { ...LIMITS, maxTokens: 32_768, maxContext: 32_768 };
      const cols = 3 * heads * d;
      const data = new Random(21).normals(rows * cols);
      const { graph, tensors } = record((ops) => {
        const [x, bounds] = [ops.input('tokens', cols), ops.input('tokens', 2)];
        return { x, bounds, out: ops.keep(ops.attendSegments(x, bounds, { heads, headDim: d })) };
      });
      const run = async (program: Program): Promise<Float32Array> => {
        program.write(tensors.x, data);
        program.write(tensors.bounds, boundsOf([100, rows]).data);
        await program.submit(stepOf([rows], undefined, undefined, many));
        return program.read(tensors.out, rows);
      };
      const out = await withProgram(device, graph, null, run, many);
      for (const row of [0, 99, 100, 4095, 4096, 8200, 12_288, rows - 1])
        for (let h = 0; h < heads; h++) {
          const [from, to] = row < 100 ? [0, 100] : [100, rows];
          const want = new Float64Array(d);
          let all = 0;
          for (let t = from; t < to; t++) {
            let score = 0;
            for (let i = 0; i < d; i++)
              score += data[row * cols + h * d + i]! * data[t * cols + (heads + h) * d + i]!;
            const weight = Math.exp(score / Math.sqrt(d));
            all += weight;
            for (let i = 0; i < d; i++) want[i]! += weight * data[t * cols + (2 * heads + h) * d + i]!;
          }
          const at = (row * heads + h) * d;
          expect(
            worstRow(
              out.slice(at, at + d),
              want.map((v) => v / all),
              1,
              d,
            ),
            `${row}`,
          ).toBeLessThan(5e-3);
        }
    });

    it.each([65_536, 65_535])('multiplies %i rows, as the largest pictures have', async (rows) => {
      const [n, k] = [128, 64];
      const weight = randomMatrix(new Random(22), n, k, { kind: 'float', dtype: 'f16' });
      const bias = new Random(23).normals(n);
      const matrix = await device.loadMatrix([weight.source], {
        use: 'linear',
        bias: [{ name: 'bias', length: n, read: async () => bias }],
      });
      const many = { ...LIMITS, maxTokens: 65_536, maxContext: 65_536 };
      const data = new Random(24).normals(rows * k);
      const { graph, tensors } = record((ops) => {
        const x = ops.input('tokens', k);
        return { x, out: ops.keep(ops.linear(x, matrix)) };
      });
      const run = async (program: Program): Promise<Float32Array> => {
        await program.fill(tensors.x, rows, (room) => room.set(data));
        await program.submit(stepOf([rows], undefined, undefined, many));
        return program.read(tensors.out, rows);
      };
      const out = await withProgram(device, graph, null, run, many);
      for (const row of [0, 1, 32_767, 32_768, 65_533, rows - 1]) {
        const want = Float64Array.from({ length: n }, (_, f) => {
          let sum = bias[f]!;
          for (let i = 0; i < k; i++) sum += weight.values[f * k + i]! * data[row * k + i]!;
          return sum;
        });
        expect(worstRow(out.slice(row * n, (row + 1) * n), want, 1, n), `${row}`).toBeLessThan(3e-3);
      }
    });
  }

  it('takes scores that rise from key to key, and shows nothing of a neighbour that is not finite', async () => {
    const [rows, heads, d] = [300, 1, 16];
    const cols = 3 * heads * d;
    const data = new Random(9).normals(rows * cols);
    for (let r = 0; r < rows; r++) for (let i = 0; i < d; i++) data[r * cols + d + i]! *= 1 + r / 20;
    const ends = [20, 280, rows];
    for (let r = 280; r < rows; r++) data.fill(Number.NaN, r * cols, (r + 1) * cols);
    const out = await run(device, rows, [{ cols, data }, boundsOf(ends)], (ops, a, b) =>
      ops.attendSegments(a, b, { heads, headDim: d }),
    );
    const own = 280 * d;
    const want = attended(data.slice(0, 280 * cols), [20, 280], heads, d, 1 / Math.sqrt(d));
    // Scores reach 60 here, of which halves keep eleven bits.
    const bound = 20 * errorBound(spec, device);
    expect(worstRow(out.subarray(0, own), want, 280, d)).toBeLessThan(bound);
  });

  it('gives zeros to a row that sees nothing, and large scores do not overflow', async () => {
    const qkv = { cols: 12, data: new Float32Array(36).fill(40) };
    const bounds = { cols: 2, data: Float32Array.from([0, 2, 0, 2, 2, 2]) };
    const out = await run(device, 3, [qkv, bounds], (ops, a, b) =>
      ops.attendSegments(a, b, { heads: 1, headDim: 4, scale: 1 }),
    );
    for (const value of out.subarray(0, 8)) expect(value).toBeCloseTo(40, 4);
    expect([...out.subarray(8)]).toEqual([0, 0, 0, 0]);
  });

  it('puts rows side by side in the order of the outputs', async () => {
    const [rows, cols, each] = [20, 12, 4];
    const data = new Random(3).normals(rows * cols);
    const { graph, tensors } = record((ops) => {
      const x = ops.input('tokens', cols);
      return { x, out: ops.keep(ops.selectOutputs(x, each)) };
    });
    await withProgram(device, graph, null, async (program) => {
      program.write(tensors.x, data);
      const step = rowsStep(rows);
      step.outputs.set([3, 0, 4]);
      step.outputCount = 3;
      await program.submit(step);
      const out = await program.read(tensors.out, 3);
      const wide = cols * each;
      [3, 0, 4].forEach((at, i) => {
        const want = data.subarray(at * wide, (at + 1) * wide);
        expect(out.slice(i * wide, (i + 1) * wide)).toEqual(want.slice());
      });
    });
  });

  it('takes the mean of rows, in the order of the outputs', async () => {
    const [rows, cols, each] = [24, 20, 4];
    const data = new Random(4).normals(rows * cols);
    const { graph, tensors } = record((ops) => {
      const x = ops.input('tokens', cols);
      return { x, out: ops.keep(ops.meanOutputs(x, each)) };
    });
    await withProgram(device, graph, null, async (program) => {
      program.write(tensors.x, data);
      const step = rowsStep(rows);
      step.outputs.set([3, 0, 5]);
      step.outputCount = 3;
      await program.submit(step);
      const out = await program.read(tensors.out, 3);
      [3, 0, 5].forEach((at, i) => {
        for (let c = 0; c < cols; c++) {
          let sum = 0;
          for (let r = at * each; r < (at + 1) * each; r++) sum += data[r * cols + c]!;
          expect(out[i * cols + c]).toBeCloseTo(sum / each, 5);
        }
      });
    });
  });

  it('refuses shapes that do not fit', () => {
    const shapes = { code: 'shape-mismatch' };
    const wrong = (build: Parameters<typeof record>[0]): unknown => {
      try {
        return record(build);
      } catch (error) {
        return error;
      }
    };
    const of = (cols: number, extra: number) => (use: 'rotate' | 'attend' | 'select') =>
      wrong((ops) => {
        const x = ops.input('tokens', cols);
        const y = ops.input('tokens', extra);
        if (use === 'rotate') ops.rotate(x, y, { heads: 2, headDim: 8, style: 'half' });
        if (use === 'attend') ops.attendSegments(x, y, { heads: 1, headDim: 8 });
        if (use === 'select') ops.selectOutputs(x, 2);
      });
    expect(of(15, 8)('rotate')).toMatchObject(shapes);
    expect(of(16, 10)('rotate')).toMatchObject(shapes);
    expect(of(23, 2)('attend')).toMatchObject(shapes);
    expect(of(24, 3)('attend')).toMatchObject(shapes);
    expect(of(6, 2)('select')).toMatchObject(shapes);
  });
});
