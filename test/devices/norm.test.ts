/** Norms of parts of a row and activations without a gate, against float64; a row has the same bits alone and in company. */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device, Vector } from '../../src/device/device.js';
import type { NormPart, Tensor } from '../../src/device/graph.js';
import { UNGATED_ACTIVATIONS } from '../../src/device/graph.js';
import type { Ops } from '../../src/device/ops.js';
import { devices } from './devices.js';
import { Random, worstRow } from './numbers.js';
import * as reference from './reference.js';
import { runOnce } from './run.js';
import { vectorSource } from './sources.js';

/** Rows and columns: whole vectors, none whole, a row of one number, and more rows than threads. */
const SHAPES = [
  [1, 1],
  [3, 2],
  [2, 7],
  [5, 16],
  [17, 61],
  [64, 96],
  [2, 1000],
  [3, 4096],
] as const;

const CLOSE = 4e-6;

/** What a device makes of `rows` rows, each of which must be the same alone. */
async function checked(
  device: Device,
  rows: number,
  cols: number,
  x: Float32Array,
  build: (ops: Ops, x: Tensor) => Tensor,
): Promise<Float32Array> {
  const out = await runOnce(device, rows, { cols, data: x }, build);
  for (const row of new Set([0, rows - 1])) {
    const own = x.slice(row * cols, (row + 1) * cols);
    const alone = await runOnce(device, 1, { cols, data: own }, build);
    expect(alone).toEqual(out.slice(row * cols, (row + 1) * cols));
  }
  return out;
}

describe.each(devices)('norms and activations on $name', (spec) => {
  let device: Device;
  const numbers = new Map<Vector, Float32Array>();
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  async function vector(values: Float32Array): Promise<Vector> {
    const loaded = await device.loadVector(vectorSource(values));
    numbers.set(loaded, values);
    return loaded;
  }

  const known = (parts: readonly NormPart[]): reference.NormedPart[] =>
    parts.map((part) => ({
      ...part,
      weight: part.weight === null ? null : numbers.get(part.weight)!,
      bias: part.bias === null ? null : numbers.get(part.bias)!,
    }));

  it.each([
    [true, true],
    [true, false],
    [false, false],
    [false, true],
  ])('layer norm, weight: %s, bias: %s', async (weighted, biased) => {
    // On a slow device every shape is compiled anew.
    for (const [rows, cols] of spec.slow ? SHAPES.slice(2, 5) : SHAPES) {
      const random = new Random(rows + cols);
      // Far from zero, so that a variance by E(x²) − E(x)² would show.
      const x = random.normals(rows * cols, 3).map((v) => v + 50);
      const weight = weighted ? await vector(random.normals(cols)) : null;
      const bias = biased ? await vector(random.normals(cols)) : null;
      const out = await checked(device, rows, cols, x, (ops, t) => ops.layerNorm(t, weight, bias, 1e-5));
      const parts = known([{ from: 0, cols, groups: 1, weight, bias }]);
      // Of numbers about 50 differences have some 20 bits.
      const bound = cols < 4 ? 1e-3 : 4e-5;
      expect(worstRow(out, reference.norm(x, rows, cols, 'layer', parts, 1e-5), rows, cols)).toBeLessThan(
        bound,
      );
    }
  });

  it.each(['rms', 'layer'] as const)('%s norms of parts, the rest copied', async (kind) => {
    const cases: readonly (readonly [number, number, readonly (readonly [number, number, number])[]])[] = [
      // Two rows of heads, values behind them.
      [
        3,
        128,
        [
          [0, 64, 1],
          [64, 32, 1],
        ],
      ],
      [
        5,
        77,
        [
          [3, 7, 4],
          [40, 5, 3],
        ],
      ],
      [2, 40, [[8, 16, 2]]],
      [64, 48, [[0, 12, 4]]],
    ];
    for (const [rows, cols, shapes] of spec.slow ? cases.slice(0, 2) : cases) {
      const random = new Random(cols);
      const x = random.normals(rows * cols, 3);
      const parts: NormPart[] = [];
      for (const [from, width, groups] of shapes)
        parts.push({
          from,
          cols: width,
          groups,
          weight: await vector(random.normals(width * groups)),
          bias: parts.length === 0 ? null : await vector(random.normals(width * groups)),
        });
      const out = await checked(device, rows, cols, x, (ops, t) => ops.norm(t, kind, parts, 1e-6));
      const expected = reference.norm(x, rows, cols, kind, known(parts), 1e-6);
      expect(worstRow(out, expected, rows, cols)).toBeLessThan(CLOSE);
      const copied = (c: number): boolean =>
        parts.every((part) => c < part.from || c >= part.from + part.cols * part.groups);
      out.forEach((v, i) => {
        if (copied(i % cols)) expect(v).toBe(x[i]);
      });
    }
  });

  it('a row of equal numbers is its bias, and a NaN row stays alone', async () => {
    const cols = 48;
    const x = new Float32Array(3 * cols).fill(7, 0, cols);
    x.set(new Random(1).normals(cols), cols);
    x[2 * cols] = Number.NaN;
    const bias = await vector(new Random(2).normals(cols));
    const out = await runOnce(device, 3, { cols, data: x }, (ops, t) => ops.layerNorm(t, null, bias, 1e-5));
    // A GPU's mean of equal numbers may be off by their last bit, which 1 / √ε makes larger.
    const off = (7 * 2 ** -23) / Math.sqrt(1e-5);
    numbers.get(bias)!.forEach((value, i) => {
      expect(Math.abs(out[i]! - value)).toBeLessThanOrEqual(off + 1e-6);
    });
    expect(out.subarray(cols, 2 * cols).every(Number.isFinite)).toBe(true);
    expect(out.subarray(2 * cols).every(Number.isNaN)).toBe(true);
  });

  it.each(UNGATED_ACTIVATIONS)('%s without a gate', async (name) => {
    const parameters = [0.7, 1.3, 0.5, -1e-6];
    const loaded = name === 'xielu' ? await vector(Float32Array.from(parameters)) : null;
    for (const [rows, cols] of [
      [1, 5],
      [3, 100],
      [17, 260],
    ] as const) {
      const x = new Random(cols).normals(rows * cols, 3);
      // The tails, where nothing may overflow, and what is about 0.
      x.set([-100, 100, -1e-3, 1e-3, 0]);
      if (cols > 5) x.set([-0.5, -0.49, -0.51, -1e-6, -20], 5);
      const out = await checked(device, rows, cols, x, (ops, t) => ops.act(t, name, loaded));
      for (let i = 0; i < out.length; i++) {
        const v = x[i]!;
        const exact = name === 'xielu' ? reference.xielu(v, parameters) : reference.activation(name, v);
        // Each by itself: a sum over the row would hide the small ones.
        expect(Math.abs(out[i]! - exact)).toBeLessThan(1e-7 + 4e-6 * Math.abs(exact) + 2e-7 * Math.abs(v));
      }
    }
  });
});
