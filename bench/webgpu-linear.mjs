// Linear kernels: a float64 reference over arena weights, the check, and the timing over rotating weights.

import { f16, normals, relativeError } from './webgpu-harness.mjs';

export function weightName(weight) {
  return weight.kind === 'float' ? weight.dtype : `q${weight.bits}g${weight.groupSize}`;
}

/** Bytes of the codes plane of one matrix. */
export function codeBytes(spec) {
  const { weight, n, k } = spec;
  if (weight.kind === 'float') return n * k * (weight.dtype === 'f32' ? 4 : 2);
  return (n * k * weight.bits) / 8;
}
export const metaBytes = (spec) =>
  spec.weight.kind === 'affine' ? (spec.n * spec.k * 4) / spec.weight.groupSize : 0;

/** The arena a weight's codes come from. */
function codesArena(arenas, weight) {
  if (weight.kind === 'affine') return arenas.codes;
  return arenas[weight.dtype];
}

/** Row r of the weight as float64. */
export function weightRow(arenas, spec, r, out) {
  const { weight, k } = spec;
  const arena = codesArena(arenas, weight);
  if (weight.kind === 'affine') {
    const { bits, groupSize } = weight;
    const words = (k * bits) / 32;
    const groups = k / groupSize;
    for (let g = 0; g < groups; g++) {
      const meta = arenas.metas.word(r * groups + g);
      const scale = f16(meta);
      const bias = f16(meta >>> 16);
      for (let c = g * groupSize; c < (g + 1) * groupSize; c++) {
        const bit = c * bits;
        const at = r * words + (bit >>> 5);
        const shift = bit & 31;
        let code = arena.word(at) >>> shift;
        if (shift + bits > 32) code |= arena.word(at + 1) << (32 - shift);
        out[c] = scale * ((code >>> 0) & (2 ** bits - 1)) + bias;
      }
    }
    return out;
  }
  const view = new DataView(new ArrayBuffer(4));
  for (let c = 0; c < k; c++) {
    if (weight.dtype === 'f32') {
      view.setUint32(0, arena.word(r * k + c));
      out[c] = view.getFloat32(0);
      continue;
    }
    const half = (arena.word((r * k + c) >>> 1) >>> (c & 1 ? 16 : 0)) & 0xffff;
    if (weight.dtype === 'f16') out[c] = f16(half);
    else {
      view.setUint32(0, half << 16);
      out[c] = view.getFloat32(0);
    }
  }
  return out;
}

const ACT = {
  silu: (v) => v / (1 + Math.exp(-v)),
  relu: (v) => Math.max(0, v),
  'gelu-tanh': (v) => 0.5 * v * (1 + Math.tanh(0.7978845608028654 * (v + 0.044715 * v ** 3))),
};

export const outWidth = (spec) => (spec.glu === null ? spec.n : spec.n / 2);

/** Rows × chosen features of the result in float64. */
export function reference(arenas, spec, inputs, features) {
  const { rows, k } = spec;
  const width = outWidth(spec);
  const x = new Float64Array(inputs.x);
  if (spec.norm !== null)
    for (let b = 0; b < rows; b++) {
      let squares = 0;
      for (let c = 0; c < k; c++) squares += x[b * k + c] ** 2;
      const inverse = 1 / Math.sqrt(squares / k + spec.norm.eps);
      for (let c = 0; c < k; c++) x[b * k + c] *= inverse * inputs.norm[c];
    }
  const out = new Float64Array(rows * features.length);
  const row = new Float64Array(k);
  const dots = (r) => {
    weightRow(arenas, spec, r, row);
    const sums = new Float64Array(rows);
    for (let b = 0; b < rows; b++) {
      let sum = 0;
      for (let c = 0, at = b * k; c < k; c++) sum += row[c] * x[at + c];
      sums[b] = sum + (spec.bias ? inputs.bias[r] : 0);
    }
    return sums;
  };
  features.forEach((f, i) => {
    const first = dots(f);
    const up = spec.glu === null ? null : dots(f + width);
    for (let b = 0; b < rows; b++) {
      let v = first[b];
      if (up !== null) v = ACT[spec.glu](v) * up[b];
      if (spec.residual !== null) v += inputs.residual[b * width + f];
      out[b * features.length + i] = v;
    }
  });
  return out;
}

const drawn = new Map();
function draw(count, seed) {
  const key = `${count} ${seed}`;
  if (!drawn.has(key)) {
    if (drawn.size > 8) drawn.clear();
    drawn.set(key, normals(count, seed));
  }
  return drawn.get(key);
}

function makeInputs(bench, spec, seed) {
  const width = outWidth(spec);
  const x = bench.uploadFloats(draw(spec.rows * spec.k, seed), spec.x);
  const bias = spec.bias ? normals(spec.n, seed + 1) : null;
  const residual =
    spec.residual === null ? null : bench.uploadFloats(draw(spec.rows * width, seed + 2), spec.residual);
  const norm = spec.norm === null ? null : normals(spec.k, seed + 3).map((v) => 1 + v / 4);
  const outBytes = spec.rows * width * (spec.out === 'f16' ? 2 : 4);
  const out = bench.buffer(outBytes);
  bench.device.queue.writeBuffer(out, 0, new Uint8Array(Math.ceil(outBytes / 4) * 4).fill(0xff)); // NaN
  const resources = {
    x: x.buffer,
    out,
    ...(bias ? { bias: bench.upload(bias) } : {}),
    ...(residual ? { residual: residual.buffer } : {}),
    ...(norm ? { norm: bench.upload(norm) } : {}),
  };
  return { resources, values: { x: x.values, bias, residual: residual?.values, norm } };
}

function destroyInputs(inputs) {
  for (const buffer of Object.values(inputs.resources)) buffer.destroy();
}

const align = (n) => Math.ceil(n / 256) * 256;

function weightsAt(arenas, spec, offset) {
  const codes = codeBytes(spec);
  const metas = metaBytes(spec);
  return {
    codes: { buffer: codesArena(arenas, spec.weight).buffer, offset: offset * align(codes), size: codes },
    ...(metas ? { metas: { buffer: arenas.metas.buffer, offset: offset * align(metas), size: metas } } : {}),
  };
}

/** References of specs, which kernels of several sizes share: their inputs are the same. */
const references = new Map();
function referenceOnce(arenas, spec, values, features) {
  const { out: _, ...same } = spec;
  const key = JSON.stringify([same, features]);
  if (!references.has(key)) {
    if (references.size > 8) references.clear();
    references.set(key, reference(arenas, spec, values, features));
  }
  return references.get(key);
}

/** Relative error over up to `most` features (always the first and last), checking that all outputs are finite. */
export async function checkLinear(bench, arenas, spec, compiled, most = 128) {
  const inputs = makeInputs(bench, spec, 77);
  const launch = bench.launch(compiled, { ...inputs.resources, ...weightsAt(arenas, spec, 0) });
  bench.run([launch]);
  const width = outWidth(spec);
  const out = await bench.readFloats(inputs.resources.out, spec.rows * width, spec.out);
  destroyInputs(inputs);
  for (let i = 0; i < out.length; i++) if (!Number.isFinite(out[i])) return Number.NaN;
  const features = [];
  const take = Math.min(most, width);
  for (let i = 0; i < take; i++)
    features.push(i < take / 2 ? Math.floor((i * width) / take) : width - take + i);
  const ref = referenceOnce(arenas, spec, inputs.values, features);
  const got = new Float64Array(ref.length);
  for (let b = 0; b < spec.rows; b++)
    features.forEach((f, i) => {
      got[b * features.length + i] = out[b * width + f];
    });
  return relativeError(got, ref);
}

/** Median µs of one launch, over as many different weights as make `rotateBytes` (so that no cache holds them). */
export async function timeLinear(bench, arenas, spec, compiled, rotateBytes, options) {
  const inputs = makeInputs(bench, spec, 77);
  const codes = align(codeBytes(spec));
  const metas = align(metaBytes(spec));
  const fits = Math.min(
    Math.floor(codesArena(arenas, spec.weight).bytes / codes),
    metas ? Math.floor(arenas.metas.bytes / metas) : 1e9,
  );
  const count = Math.max(1, Math.min(fits, Math.ceil(rotateBytes / codes), 64));
  const launches = [];
  for (let i = 0; i < count; i++)
    launches.push(bench.launch(compiled, { ...inputs.resources, ...weightsAt(arenas, spec, i) }));
  const timed = await bench.time(launches, options);
  destroyInputs(inputs);
  return timed;
}
