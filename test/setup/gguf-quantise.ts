/** Floats as blocks of GGUF, for tests that need files of real weights: the plainest rounding, by the layouts alone. */

import { encodeFloats } from '../../src/weights/dtypes.js';

/** GGML's number of a type, columns of a block, its bytes, and what makes one. */
export interface BlockWriter {
  readonly type: number;
  readonly cols: number;
  readonly bytes: number;
  readonly write: (x: Float32Array, out: Uint8Array) => void;
}

function putHalf(out: Uint8Array, at: number, value: number): number {
  encodeFloats(Float32Array.of(value), 'f16', out.subarray(at, at + 2));
  // As it is read back: codes are rounded against what is stored.
  const bits = out[at]! | (out[at + 1]! << 8);
  const exponent = (bits >> 10) & 31;
  const mantissa = bits & 1023;
  const size = exponent === 0 ? mantissa * 2 ** -24 : (1 + mantissa / 1024) * 2 ** (exponent - 15);
  return bits & 0x8000 ? -size : size;
}

const largest = (x: Float32Array): number => x.reduce((top, value) => Math.max(top, Math.abs(value)), 0);
const within = (value: number, low: number, high: number): number =>
  Math.min(high, Math.max(low, Math.round(value)));
/** By a step that may be 0. */
const over = (value: number, step: number): number => (step === 0 ? 0 : value / step);

export const Q8_0: BlockWriter = {
  type: 8,
  cols: 32,
  bytes: 34,
  write: (x, out) => {
    const d = putHalf(out, 0, largest(x) / 127);
    x.forEach((value, i) => {
      out[2 + i] = within(over(value, d), -128, 127) & 255;
    });
  },
};

export const Q5_0: BlockWriter = {
  type: 6,
  cols: 32,
  bytes: 22,
  write: (x, out) => {
    const d = putHalf(out, 0, largest(x) / 15);
    x.forEach((value, i) => {
      const code = within(over(value, d) + 16, 0, 31);
      out[6 + (i % 16)]! |= (code & 15) << (i < 16 ? 0 : 4);
      out[2 + (i >> 3)]! |= (code >> 4) << (i & 7);
    });
  },
};

export const Q4_K: BlockWriter = {
  type: 12,
  cols: 256,
  bytes: 144,
  write: (x, out) => {
    const groups = Array.from({ length: 8 }, (_, g) => x.subarray(32 * g, 32 * g + 32));
    const minima = groups.map((group) => Math.max(0, -Math.min(...group)));
    const steps = groups.map((group, g) => (Math.max(0, ...group) + minima[g]!) / 15);
    const d = putHalf(out, 0, Math.max(...steps) / 63);
    const dmin = putHalf(out, 2, Math.max(...minima) / 63);
    groups.forEach((group, g) => {
      const scale = within(over(steps[g]!, d), 0, 63);
      const minimum = within(over(minima[g]!, dmin), 0, 63);
      if (g < 4) {
        out[4 + g]! |= scale;
        out[8 + g]! |= minimum;
      } else {
        out[8 + g] = (scale & 15) | ((minimum & 15) << 4);
        out[g]! |= (scale >> 4) << 6;
        out[4 + g]! |= (minimum >> 4) << 6;
      }
      group.forEach((value, i) => {
        const code = within(over(value + dmin * minimum, d * scale), 0, 15);
        out[16 + 32 * (g >> 1) + i]! |= code << (4 * (g & 1));
      });
    });
  },
};

export const Q6_K: BlockWriter = {
  type: 14,
  cols: 256,
  bytes: 210,
  write: (x, out) => {
    const steps = Array.from({ length: 16 }, (_, g) => largest(x.subarray(16 * g, 16 * g + 16)) / 31);
    const d = putHalf(out, 208, Math.max(...steps) / 127);
    steps.forEach((step, g) => {
      out[192 + g] = within(over(step, d), 0, 127);
    });
    x.forEach((value, i) => {
      const code = within(over(value, d * out[192 + (i >> 4)]!) + 32, 0, 63);
      const half = i >> 7;
      const run = (i >> 5) & 3;
      const l = i & 31;
      out[64 * half + 32 * (run & 1) + l]! |= (code & 15) << (run < 2 ? 0 : 4);
      out[128 + 32 * half + l]! |= (code >> 4) << (2 * run);
    });
  },
};

/** All blocks of rows whose columns are whole ones. */
export function quantise(values: Float32Array, { cols, bytes, write }: BlockWriter): Uint8Array {
  const out = new Uint8Array((values.length / cols) * bytes);
  for (let b = 0; b < values.length / cols; b++)
    write(values.subarray(b * cols, (b + 1) * cols), out.subarray(b * bytes, (b + 1) * bytes));
  return out;
}
