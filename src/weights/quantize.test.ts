import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { failure } from '../../test/fixtures/weights/build.js';
import {
  AFFINE_BITS,
  FLOAT_DTYPES,
  type FloatDtype,
  GROUP_SIZES,
  type MatrixSource,
} from '../device/weights.js';
import { unpackAffineRow, unpackCodes } from './affine.js';
import { encodeFloats } from './dtypes.js';
import { isQuantizable, quantizedSource } from './quantize.js';
import { SafetensorsFile } from './safetensors.js';

const fixture = fileURLToPath(new URL('../../test/fixtures/weights/affine.safetensors', import.meta.url));

function memorySource(data: Uint8Array, rows: number, cols: number, dtype: FloatDtype): MatrixSource {
  const rowBytes = data.byteLength / rows;
  return {
    name: 'm.weight',
    rows,
    cols,
    format: { kind: 'float', dtype },
    readRows: async (start, end) => ({ data: data.subarray(start * rowBytes, end * rowBytes) }),
  };
}

function floatSource(values: Float32Array, rows: number, dtype: FloatDtype = 'f32'): MatrixSource {
  const data = new Uint8Array(values.length * (dtype === 'f32' ? 4 : 2));
  encodeFloats(values, dtype, data);
  return memorySource(data, rows, values.length / rows, dtype);
}

const MLX_NAME = { f32: 'float32', f16: 'float16', bf16: 'bfloat16' } as const;

describe('against mlx.core.quantize', () => {
  const cases = FLOAT_DTYPES.flatMap((dtype) =>
    AFFINE_BITS.flatMap((bits) => GROUP_SIZES.map((groupSize) => ({ dtype, bits, groupSize }))),
  );
  it.each(cases)('$dtype to $bits bits in groups of $groupSize', async ({ dtype, bits, groupSize }) => {
    const file = await SafetensorsFile.open(fixture);
    const read = async (name: string) => {
      const out = new Uint8Array(file.tensors.get(name)!.byteLength);
      await file.readInto(file.tensors.get(name)!, 0, out);
      return out;
    };
    const input = await read(`${MLX_NAME[dtype]}.input`);
    const key = `${MLX_NAME[dtype]}.b${bits}.g${groupSize}`;
    const expected = {
      data: await read(`${key}.weight`),
      scales: await read(`${key}.scales`),
      biases: await read(`${key}.biases`),
    };
    await file.close();

    const rows = 4;
    const source = quantizedSource(memorySource(input, rows, 256, dtype), { bits, groupSize });
    expect(source.format).toEqual({ kind: 'affine', bits, groupSize, dtype });
    expect(await source.readRows(0, rows)).toEqual(expected);
    // Any cut into ranges gives the same bytes.
    for (let r = 0; r < rows; r++) {
      const part = await source.readRows(r, r + 1);
      for (const plane of ['data', 'scales', 'biases'] as const) {
        const size = expected[plane].length / rows;
        expect(part[plane]).toEqual(expected[plane].subarray(r * size, (r + 1) * size));
      }
    }
  });
});

describe('quantizedSource', () => {
  it('errs by at most half a step, whatever the group holds', async () => {
    const groupSize = 32;
    let state = 1;
    const random = () => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
      return state / 2 ** 32 - 0.5;
    };
    for (const bits of AFFINE_BITS) {
      for (const [spread, offset] of [
        [1, 0],
        [1e-6, 0],
        [1e20, 0],
        [1, 3],
        [1, -3],
        [1e-3, 1],
        [0, 0.3],
        [0, 0],
      ] as const) {
        const values = Float32Array.from({ length: groupSize }, () => offset + spread * random());
        const { data, scales, biases } = await quantizedSource(floatSource(values, 1), {
          bits,
          groupSize,
        }).readRows(0, 1);
        const scale = new Float32Array(scales!.slice().buffer);
        const back = new Float32Array(groupSize);
        unpackAffineRow(data, scale, new Float32Array(biases!.slice().buffer), { bits, groupSize }, back);
        // Meeting one edge exactly may leave the other up to half a step outside.
        const tolerance = Math.abs(scale[0]!) * 0.5 + 1e-6 * Math.max(Math.abs(offset), spread) + 1e-7;
        const span = Math.max(...values) - Math.min(...values);
        const outside = Math.max(0, span - ((1 << bits) - 1) * Math.abs(scale[0]!));
        for (let i = 0; i < groupSize; i++) {
          expect(Math.abs(back[i]! - values[i]!), `${bits} bits, ${spread}, ${offset}`).toBeLessThanOrEqual(
            tolerance + outside,
          );
        }
        expect(outside).toBeLessThanOrEqual(span / 2);
      }
    }
  });

  it('rounds ties to even, and what is next to a tie to its side', async () => {
    // From 0 to 15 the scale is -1 and the bias 15, exactly.
    const values = Float32Array.of(0, 15, ...Array.from({ length: 30 }, (_, i) => (i % 15) + 0.5));
    for (let i = 17; i < 32; i++) values[i]! += i % 2 === 0 ? 2 ** -20 : -(2 ** -20);
    const { data } = await quantizedSource(floatSource(values, 1), { bits: 4, groupSize: 32 }).readRows(0, 1);
    const codes = new Uint8Array(32);
    unpackCodes(data, 4, codes);
    const expected = [...values].map((value) => {
      const level = 15 - value;
      const below = Math.floor(level);
      if (level - below !== 0.5) return Math.round(level);
      return below % 2 === 0 ? below : below + 1;
    });
    expect([...codes]).toEqual(expected);
  });

  it('aligns its planes and keeps one buffer until the last row is out', async () => {
    const source = quantizedSource(
      floatSource(
        new Float32Array(5 * 32).map((_, i) => i),
        5,
        'bf16',
      ),
      { bits: 3, groupSize: 32 },
    );
    const first = await source.readRows(0, 3);
    expect([first.data, first.scales!, first.biases!].map((p) => p.byteOffset % 16)).toEqual([0, 0, 0]);
    expect([first.data, first.scales!, first.biases!].map((p) => p.byteLength)).toEqual([36, 6, 6]);
    expect((await source.readRows(1, 2)).data.buffer).toBe(first.data.buffer);
    await expect(source.readRows(2, 6)).rejects.toThrow(RangeError);
    expect((await source.readRows(2, 2)).data.byteLength).toBe(0);
  });

  it.each([Number.NaN, Infinity, -Infinity])('refuses %d, naming the row', async (bad) => {
    const values = new Float32Array(4 * 64).fill(0.5);
    values[2 * 64 + 40] = bad;
    const source = quantizedSource(floatSource(values, 4), { bits: 4, groupSize: 32 });
    await source.readRows(0, 2);
    const error = await failure(source.readRows(0, 4));
    expect(error).toMatchObject({
      code: 'weights-not-finite',
      message: expect.stringMatching(/m\.weight .*row 2\b/),
    });
  });

  it('refuses a span that f32 cannot hold', async () => {
    const values = new Float32Array(32);
    values[0] = 3e38;
    values[1] = -3e38;
    const error = await failure(
      quantizedSource(floatSource(values, 1), { bits: 4, groupSize: 32 }).readRows(0, 1),
    );
    expect(error.code).toBe('weights-not-finite');
  });

  it('refuses columns that do not divide, and what is quantised already', async () => {
    const source = floatSource(new Float32Array(96), 1);
    expect(isQuantizable(96, { bits: 4, groupSize: 64 })).toBe(false);
    expect(isQuantizable(96, { bits: 4, groupSize: 32 })).toBe(true);
    expect((await failure(() => quantizedSource(source, { bits: 4, groupSize: 64 }))).code).toBe(
      'weights-quantize-shape',
    );
    const once = quantizedSource(source, { bits: 4, groupSize: 32 });
    expect((await failure(() => quantizedSource(once, { bits: 4, groupSize: 32 }))).code).toBe(
      'weights-already-quantized',
    );
  });
});
