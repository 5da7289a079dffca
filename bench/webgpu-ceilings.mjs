// What kernels can count on: operations a cycle, tiles through workgroup memory into matrices, streams of codes.
//
//   node bench/webgpu-ceilings.mjs [--only operations,occupancy,staging,streams,matrices] [--ghz 1.98] [--sms 132]
//
// Needs a GPU with f16 and subgroup matrices of 16 × 16 × 16. Clock and number of multiprocessors are an H200's unless
// given; WebGPU tells neither.

import { option } from './options.mjs';
import { Bench, openDevice } from './webgpu-harness.mjs';

const only = option('--only', 'operations,occupancy,staging,streams,matrices').split(',');
const cyclesPerUs = Number(option('--ghz', '1.98')) * 1000;
const sms = Number(option('--sms', '132'));
const opened = await openDevice();
const bench = new Bench(opened);
if (!opened.features.f16 || opened.features.matrices.length === 0)
  throw new Error('f16 and subgroup matrices are needed');
console.log(`${opened.info.device} ${opened.info.description}`);

const count = (n) => Array.from({ length: n }, (_, i) => i);
const out = bench.buffer(1 << 20);
const MATRICES = `enable f16; enable subgroups; enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);`;
/** A GPU that idled is slow at first. */
let warmMs = 500;

async function time(kernel, resources = {}) {
  const compiled = await bench.compile({ label: 'ceiling', writes: ['out'], ...kernel });
  const launch = bench.launch(compiled, { out, ...resources });
  const { us } = await bench.time([launch], { targetUs: 3000, samples: 5, warmMs });
  warmMs = 20;
  return us;
}

// --- operations of a subgroup, a cycle and multiprocessor

const OPERATIONS = {
  'f32 fma': ['f32', (c) => `${c} = fma(${c}, a, b);`],
  'f16 fma': ['f16', (c) => `${c} = fma(${c}, a, b);`],
  'vec2<f16> fma': ['vec2<f16>', (c) => `${c} = fma(${c}, a, b);`],
  'u32 multiply and add': ['u32', (c) => `${c} = ${c} * a + b;`],
  dot4I8Packed: ['i32', (c) => `${c} = dot4I8Packed(u32(${c}), 0x01020304u + u32(a)) + ${c};`],
  'unpack2x16float, add': ['vec2<f32>', (c) => `${c} = ${c} + unpack2x16float(bitcast<u32>(${c}.x));`],
  pack2x16float: ['u32', (c) => `${c} = pack2x16float(vec2<f32>(bitcast<f32>(${c}), bitcast<f32>(a)));`],
  subgroupShuffleXor: ['f32', (c) => `${c} = ${c} + subgroupShuffleXor(${c}, 4u);`],
  'select by a comparison': ['f32', (c) => `${c} = select(${c}, a, ${c} > b);`],
  exp: ['f32', (c) => `${c} = exp(${c});`],
};
if (only.includes('operations')) {
  const [chains, unroll, loops, workgroups] = [8, 8, 128, 1056];
  for (const [name, [type, operation]] of Object.entries(OPERATIONS)) {
    const part = type.startsWith('vec') ? type.slice(5, 8) : type;
    const c = count(chains).map((i) => `c${i}`);
    const wgsl = `enable f16; enable subgroups;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(256) fn main(@builtin(workgroup_id) w: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let a = ${type}(${part}(lid)); let b = ${type}(${part}(w.x));
  ${c.map((v, i) => `var ${v} = a + ${type}(${i});`).join(' ')}
  for (var t = 0u; t < ${loops}u; t++) { ${count(unroll)
    .map(() => c.map(operation).join(' '))
    .join('\n')} }
  let s = ${c.join(' + ')};
  if (f32(s${part === type ? '' : '.x + s.y'}) == 12345.0) { out[0] = 1.0; }
}`;
    const us = await time({ bindings: ['out'], workgroups: [workgroups, 1, 1], wgsl });
    const operations = workgroups * 8 * loops * unroll * chains;
    console.log(`${name.padEnd(26)} ${(operations / sms / (us * cyclesPerUs)).toFixed(2)} a cycle`);
  }
}

// --- workgroups that a multiprocessor keeps going at once, by their workgroup memory; and loads beside barriers

if (only.includes('occupancy')) {
  const each = 32;
  for (const kib of [1, 4, 8, 12, 16, 24, 32, 46]) {
    const words = kib * 256;
    // Nothing but waiting: each word says where the next one is.
    const wgsl = `@group(0) @binding(0) var<storage, read_write> out: array<f32>;
var<workgroup> next: array<u32, ${words}>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) lid: u32) {
  for (var i = lid; i < ${words}u; i += 64u) { next[i] = (i + 37u) % ${words}u; }
  workgroupBarrier();
  var i = lid;
  for (var t = 0u; t < 2000u; t++) { i = next[i]; }
  if (i == ${words}u) { out[0] = 1.0; }
}`;
    const one = await time({ bindings: ['out'], workgroups: [sms, 1, 1], wgsl });
    const many = await time({ bindings: ['out'], workgroups: [sms * each, 1, 1], wgsl });
    console.log(
      `workgroups of ${kib} KiB: ${((each * one) / many).toFixed(1)} of them at once on a multiprocessor`,
    );
  }
  const data = bench.buffer(2 ** 28);
  for (const [name, load, barriers] of [
    ['work', false, false],
    ['work, a load on its way', true, false],
    ['work, a load on its way, two barriers', true, true],
  ]) {
    const barrier = barriers ? 'workgroupBarrier();' : '';
    const turns = 200;
    const wgsl = `@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> data: array<vec4<u32>>;
var<workgroup> met: array<f32, 64>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) lid: u32, @builtin(workgroup_id) w: vec3<u32>) {
  var at = w.x * 4096u + lid; var now = vec4<u32>(); var sum = 1.0; met[lid] = 0.0;
  for (var t = 0u; t < ${turns}u; t++) {
    var next = vec4<u32>(t);
    ${load ? 'next = data[(at + t * 262148u) & 0xffffffu];' : ''}
    ${barrier}
    ${count(300)
      .map(() => 'sum = fma(sum, 1.0001, 0.5);')
      .join(' ')}
    met[lid] = sum + f32(now.x ^ now.y ^ now.z ^ now.w);
    ${barrier}
    sum += met[lid ^ 1u] * 1e-9;
    now = next;
  }
  if (sum == 12345.0) { out[0] = sum; }
}`;
    const us = await time({ bindings: ['out', 'data'], workgroups: [sms, 1, 1], wgsl }, { data });
    console.log(`${name}: ${((us * cyclesPerUs) / turns).toFixed(0)} cycles a turn`);
  }
}

// --- a tile of 64 × 128 halves through workgroup memory, times 16 rows

/** `map`: lanes of a row that lie side by side; with four, two each wait for the same banks. */
function staging({ map, store = true, matrices = true, barriers = true, threads = 256 }) {
  const [bn, bk, steps] = [64, 128, 32];
  const vectors = (bk + 8) / 8;
  const subgroups = threads / 32;
  const lines = [];
  if (store)
    for (const i of count((bn * bk) / 32 / threads)) {
      const at =
        map === 4
          ? `let row = u / 4u; let c = u % 4u;`
          : `let row = (u / 2u) % ${bn}u; let c = u % 2u + 2u * (u / ${2 * bn}u);`;
      lines.push(`{ let u = lid + ${i * threads}u; ${at}`);
      for (const q of count(16)) lines.push(`let p${q} = (seed * ${2 * q + 3}u) & 0x3fff3fffu;`);
      for (const e of count(4))
        lines.push(
          `tile[row * ${vectors}u + c * 4u + ${e}u] = vec4<u32>(${count(4).map((x) => `p${e * 4 + x}`)});`,
        );
      lines.push('seed += t; }');
    }
  if (barriers) lines.push('workgroupBarrier();');
  const own = bk / subgroups;
  if (matrices)
    for (let k = 0; k < own; k += 16) {
      const offset = `sub * ${own / 8}u + ${k / 8}u`;
      lines.push(
        `{ let a = subgroupMatrixLoad<Left, row_major>(&tile, ${bn * vectors}u + ${offset}, ${vectors}u);`,
      );
      for (const j of count(4))
        lines.push(
          `c${j} = subgroupMatrixMultiplyAccumulate(a, subgroupMatrixLoad<Right, col_major>(&tile, ${j * 16 * vectors}u + ${offset}, ${vectors}u), c${j});`,
        );
      lines.push('}');
    }
  const wgsl = `${MATRICES}
alias Left = subgroup_matrix_left<f16, 16, 16>; alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sum = subgroup_matrix_result<f32, 16, 16>;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
var<workgroup> tile: array<vec4<u32>, ${(bn + 16) * vectors}>;
var<workgroup> back: array<f32, ${subgroups * 256}>;
@compute @workgroup_size(${threads}) fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32, @builtin(subgroup_id) sub: u32) {
  var seed = lid * 0x9e3779b9u + wid.x;
  ${count(4)
    .map((j) => `var c${j} = Sum();`)
    .join(' ')}
  for (var t = 0u; t < ${steps}u; t++) {
    ${barriers ? 'workgroupBarrier();' : ''}
    ${lines.join('\n    ')}
  }
  workgroupBarrier();
  ${count(4)
    .map(
      (j) =>
        `subgroupMatrixStore<row_major>(&back, sub * 256u, c${j}, 16u); workgroupBarrier(); if (back[lid] > 1e30) { out[lid] = back[lid]; }`,
    )
    .join('\n  ')}
  if (f32(tile[lid].x) == 12345.0 || seed == 12345u) { out[1] = 1.0; }
}`;
  return { steps, workgroups: [1056, 1, 1], bindings: ['out'], wgsl };
}
if (only.includes('staging'))
  for (const [name, config] of Object.entries({
    'stored, loaded, multiplied': { map: 2 },
    'with lanes that want one bank': { map: 4 },
    'by 128 threads': { map: 2, threads: 128 },
    'stored alone': { map: 2, matrices: false },
    'loaded and multiplied': { map: 2, store: false },
    'without barriers': { map: 2, barriers: false },
    'barriers alone': { map: 2, store: false, matrices: false },
  })) {
    const kernel = staging(config);
    const us = await time(kernel);
    const cycles = (us * cyclesPerUs) / ((kernel.workgroups[0] / sms) * kernel.steps);
    console.log(`64 × 128 halves ${name.padEnd(32)} ${cycles.toFixed(0)} cycles a multiprocessor`);
  }

// --- streams

const bytes = 512 * 2 ** 20;
const codes = only.some((part) => part === 'streams' || part === 'matrices') ? bench.buffer(bytes) : null;
const spread = (n) => [Math.min(n, 32768), Math.ceil(n / 32768), 1];
const rate = (us) => `${(bytes / us / 1000).toFixed(0)} GB/s`;
if (only.includes('streams'))
  for (const rowBytes of [2048, 7168])
    for (const lanes of [2, 4]) {
      const threads = 256;
      const step = (threads / 32) * lanes;
      const steps = rowBytes / 16 / step;
      if (!Number.isInteger(steps)) continue;
      const workgroups = spread(Math.floor(bytes / rowBytes / (32 / lanes)));
      const wgsl = `@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> codes: array<vec4<u32>>;
@compute @workgroup_size(${threads}) fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let lane = lid % 32u;
  let row = (wid.x + wid.y * 32768u) * ${32 / lanes}u + lane / ${lanes}u;
  let base = row * ${rowBytes / 16}u + lane % ${lanes}u + lid / 32u * ${lanes}u;
  var s = vec4<u32>();
  for (var t = 0u; t < ${steps}u; t++) { s = (s ^ codes[base + t * ${step}u]) * 3u; }
  if (s.x + s.y + s.z + s.w == 12345u) { out[0] = 1.0; }
}`;
      const us = await time({ bindings: ['out', 'codes'], workgroups, wgsl }, { codes });
      console.log(`rows of ${rowBytes} bytes, ${lanes * 16} of each at a time: ${rate(us)}`);
    }
if (only.includes('matrices'))
  for (const kind of ['f16', 'u8']) {
    const half = kind === 'f16';
    const [rowBytes, rows, threads, k] = [half ? 256 : 128, 256, 128, half ? 16 : 32];
    const workgroups = spread(Math.floor(bytes / rowBytes / rows));
    const parts = count(128 / k);
    const wgsl = `${MATRICES}
alias Left = subgroup_matrix_left<${kind}, ${k}, 16>; alias Right = subgroup_matrix_right<${kind}, 16, ${k}>;
alias Sum = subgroup_matrix_result<${half ? 'f32' : 'u32'}, 16, 16>;
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> codes: array<vec4<u32>>;
var<workgroup> tile: array<vec4<u32>, 2048>;
var<workgroup> back: array<${half ? 'f32' : 'u32'}, ${threads * 8}>;
@compute @workgroup_size(${threads}) fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32, @builtin(subgroup_id) sub: u32) {
  let base = (wid.x + wid.y * 32768u) * ${(rows * rowBytes) / 16}u;
  ${parts.map((i) => `let a${i} = subgroupMatrixLoad<Left, row_major>(&tile, ${i * 4}u, ${rowBytes / 16}u);`).join('\n  ')}
  var c = Sum();
  for (var t = sub; t < ${rows / 16}u; t += ${threads / 32}u) {
    ${parts
      .map(
        (i) =>
          `c = subgroupMatrixMultiplyAccumulate(a${i}, subgroupMatrixLoad<Right, col_major>(&codes, base + t * ${rowBytes}u + ${(i * k * (half ? 2 : 1)) / 16}u, ${rowBytes / 16}u), c);`,
      )
      .join('\n    ')}
  }
  subgroupMatrixStore<row_major>(&back, sub * 256u, c, 16u);
  workgroupBarrier();
  if (f32(back[lid]) == 12345.0) { out[0] = 1.0; }
}`;
    const us = await time({ bindings: ['out', 'codes'], workgroups, wgsl }, { codes });
    console.log(`matrices of ${kind} straight from storage: ${rate(us)}`);
  }
process.exit(0);
