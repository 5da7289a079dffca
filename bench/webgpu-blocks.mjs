// Formats of weights for benchmarks of kernels: random metas of rows, laid out as src/device/webgpu/weights-layout.ts has them, and the numbers
// that codes then stand for, in float64.

import { f16, toF16 } from './webgpu-harness.mjs';

const affine = (bits, groupSize) => ({ kind: 'affine', bits, groupSize, meta: 'f16' });
const symmetric = (bits) => ({ kind: 'symmetric', bits });
const kQuant = (bits) => ({ kind: 'k-quant', bits });
const lut4 = (table, scale) => ({ kind: 'lut4', bits: 4, table, scale });
export const FORMATS = {
  'affine 4': affine(4, 64),
  'affine 8': affine(8, 64),
  q4_1: affine(4, 32),
  q4_0: symmetric(4),
  q5_0: symmetric(5),
  q8_0: symmetric(8),
  q2_k: kQuant(2),
  q3_k: kQuant(3),
  q4_k: kQuant(4),
  q5_k: kQuant(5),
  q6_k: kQuant(6),
  iq4_nl: lut4('iq4', 'f16'),
  iq4_xs: lut4('iq4', 'f16-i8'),
  mxfp4: lut4('e2m1', 'e8m0'),
  nvfp4: lut4('e2m1', 'f32-e4m3'),
};
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];
const IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

let drawn = 1;
const random = () => {
  drawn = (Math.imul(drawn, 1664525) + 1013904223) >>> 0;
  return drawn / 2 ** 32;
};
const int = (below) => Math.floor(random() * below);
const halfNear = (size) => toF16(size * (0.5 + random()));
const pairOf = (low, high) => (low | (high << 16)) >>> 0;
export const words = (count, f) => Array.from({ length: count }, (_, i) => f(i));
const bytes = (count, f) =>
  words(Math.ceil(count / 4), () => [0, 8, 16, 24].reduce((w, s) => (w | (f() << s)) >>> 0, 0));
const halvesOf = (count, size) => words(Math.ceil(count / 2), () => pairOf(halfNear(size), halfNear(size)));

/** The metas of one row, as src/device/webgpu/weights-layout.ts has them. */
export function metasOf(weight, k) {
  if (weight.kind === 'affine')
    return words(k / weight.groupSize, () => pairOf(halfNear(2 ** -weight.bits), 0x8000 | halfNear(0.5)));
  if (weight.kind === 'symmetric') return halvesOf(k / 32, 2 ** -weight.bits);
  if (weight.kind === 'k-quant') {
    const { bits } = weight;
    if (bits === 3 || bits === 6)
      return [...bytes(k / 16, () => int(256)), ...halvesOf(k / 256, 2 ** -bits / 32)];
    const sub = bits === 2 ? bytes(k / 16, () => int(256)) : bytes(k / 16, () => int(64));
    const most = bits === 2 ? 15 : 63;
    return [...sub, ...words(k / 256, () => pairOf(halfNear(2 ** -bits / most), halfNear(0.5 / most)))];
  }
  switch (weight.scale) {
    case 'f16':
      return halvesOf(k / 32, 1 / 128);
    case 'f16-i8':
      return [...bytes(k / 32, () => int(256)), ...halvesOf(k / 256, 2 ** -13)];
    case 'e8m0':
      return bytes(k / 32, () => 122 + int(5));
    default: {
      const whole = new DataView(new ArrayBuffer(4));
      whole.setFloat32(0, 2 ** -8 * (0.5 + random()));
      return [...bytes(k / 16, () => int(2) * 128 + int(0x60)), whole.getUint32(0)];
    }
  }
}

/** Weight c of a row, in float64, of its code and metas. */
export function numberOf(weight, metas, k, c, code) {
  const byte = (i) => (metas[i >> 2] >>> ((i & 3) * 8)) & 255;
  const signed = (i) => (byte(i) << 24) >> 24;
  const half = (from, i) => f16(metas[from + (i >> 1)] >>> ((i & 1) * 16));
  if (weight.kind === 'affine') {
    const meta = metas[Math.floor(c / weight.groupSize)];
    return f16(meta) * code + f16(meta >>> 16);
  }
  if (weight.kind === 'symmetric') return half(0, c >> 5) * (code - 2 ** (weight.bits - 1));
  if (weight.kind === 'k-quant') {
    const head = k / 64;
    switch (weight.bits) {
      case 2: {
        const word = metas[head + (c >> 8)];
        return f16(word) * (byte(c >> 4) & 15) * code - f16(word >>> 16) * (byte(c >> 4) >> 4);
      }
      case 4:
      case 5: {
        const word = metas[head + (c >> 8)];
        return f16(word) * byte(2 * (c >> 5)) * code - f16(word >>> 16) * byte(2 * (c >> 5) + 1);
      }
      default:
        return half(head, c >> 8) * signed(c >> 4) * (code - 2 ** (weight.bits - 1));
    }
  }
  const number = (weight.table === 'iq4' ? IQ4 : E2M1)[code];
  switch (weight.scale) {
    case 'f16':
      return half(0, c >> 5) * number;
    case 'f16-i8':
      return half(k / 128, c >> 8) * signed(c >> 5) * number;
    case 'e8m0':
      return 2 ** (byte(c >> 5) - 127) * number;
    default: {
      const b = byte(c >> 4);
      const [e, m] = [(b >> 3) & 15, b & 7];
      const size = e === 0 ? m * 2 ** -9 : (1 + m / 8) * 2 ** (e - 7);
      const whole = new DataView(new ArrayBuffer(4));
      whole.setUint32(0, metas[metas.length - 1]);
      return whole.getFloat32(0) * (b & 128 ? -size : size) * number;
    }
  }
}

/** Row r of a weight whose codes are an arena's, as float64. */
export function rowOf(weight, k, arena, rowWords, metas, r, out) {
  const { bits } = weight;
  for (let c = 0; c < k; c++) {
    const place = r * rowWords + ((c * bits) >>> 5);
    const shift = (c * bits) & 31;
    let code = arena.word(place) >>> shift;
    if (shift + bits > 32) code |= arena.word(place + 1) << (32 - shift);
    out[c] = numberOf(weight, metas, k, c, (code >>> 0) & (2 ** bits - 1));
  }
  return out;
}

/** The stages of a kernel, compiled, with the workgroups of a step. */
export async function compiledStages(bench, kernel, facts) {
  const stages = [];
  for (const { label, wgsl, bindings, workgroups } of kernel.stages) {
    const out = [1, 1, 1];
    workgroups(facts, out);
    const names = bindings.map(({ name }) => name);
    const writes = bindings.filter(({ access }) => access === 'read_write').map(({ name }) => name);
    stages.push(await bench.compile({ label, wgsl, bindings: names, writes, workgroups: out }));
  }
  return stages;
}
