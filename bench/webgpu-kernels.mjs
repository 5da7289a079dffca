// The fast WebGPU kernels: each is checked against float64, then timed; a table and JSON come out.
//
//   node bench/webgpu-kernels.mjs [--only linear,matrix,decode,prefill,chosen,check] [--seconds 480] [--json FILE] [--quick]
//
// `chosen`: the linear kernels that the product takes, for the shapes of two models and every bucket of rows. `check`:
// every way to load a subgroup matrix. The others sweep over sizes.
// It needs a built checkout (npm run build) and nothing else but a Dawn binary: npm's `webgpu`, or KVANT_DAWN.

import { writeFileSync } from 'node:fs';
import { args, built, countdown, option } from './options.mjs';
import { checkAttend, makeCase, timeAttend } from './webgpu-attend.mjs';
import { Arena, Bench, capabilitiesOf, openDevice } from './webgpu-harness.mjs';
import { checkLinear, codeBytes, metaBytes, outWidth, timeLinear } from './webgpu-linear.mjs';
import { checkMatrixOps } from './webgpu-matrix-check.mjs';

const load = (path) => built(`device/${path}`);
const { gemvKernel } = await load('webgpu/kernels/linear-gemv.js');
const { gemvFits } = await load('webgpu/kernels/linear-gemv-plan.js');
const { matrixGemmKernel } = await load('webgpu/kernels/linear-matrix.js');
const { matrixGemmFits } = await load('webgpu/kernels/linear-matrix-plan.js');
const { chooseGemv, chooseMatrixGemm } = await load('webgpu/kernels/linear-fast.js');
const { attendKernel } = await load('webgpu/kernels/attend.js');
const { decodeStage } = await load('webgpu/kernels/attend-decode.js');
const { decodeFits } = await load('webgpu/kernels/attend-decode-plan.js');
const { prefillStage } = await load('webgpu/kernels/attend-prefill.js');
const { prefillFits } = await load('webgpu/kernels/attend-prefill-plan.js');
const packing = { ...(await load('webgpu/step-buffer.js')), ...(await load('step.js')) };

const only = option('--only', 'linear,matrix,decode,prefill').split(',');
const seconds = Number(option('--seconds', '480'));
const jsonPath = option('--json', null);
const quick = args.includes('--quick');
const left = countdown(seconds);

const opened = await openDevice();
const bench = new Bench(opened);
const { features } = bench;
const report = { device: opened.info, features, node: process.version, ceilings: {}, rows: [] };
const save = () => jsonPath && writeFileSync(jsonPath, JSON.stringify(report, null, 1));
console.log(`${opened.info.vendor} ${opened.info.device} ${opened.info.description}`);
console.log(
  `f16 ${features.f16}, subgroups of ${features.subgroupSize}, matrices ${features.matrices.map((m) => `${m.component}→${m.result} ${m.M}×${m.N}×${m.K}`).join(', ') || 'none'}, timestamps ${features.timestamps}`,
);

const MB = 2 ** 20;
const big = quick ? 64 * MB : 1024 * MB;
const arenas = {
  codes: new Arena(bench, big, { seed: 1 }),
  // scale in [2^-8, 2^-7), bias in (-2^-4, -2^-5]: 4-bit weights around zero
  metas: new Arena(bench, big / 4, { seed: 2, and: 0x03ff03ff, or: 0xa8001c00 }),
  f16: new Arena(bench, big / 2, { seed: 3, and: 0x83ff83ff, or: 0x2c002c00 }),
  bf16: new Arena(bench, big / 4, { seed: 4, and: 0x807f807f, or: 0x3d803d80 }),
  f32: new Arena(bench, big / 4, { seed: 5, and: 0x807fffff, or: 0x3d800000 }),
};
arenas.keys = arenas.f16;
arenas.values = new Arena(bench, big / 2, { seed: 12, and: 0x83ff83ff, or: 0x2c002c00 });
const rotate = quick ? 8 * MB : 512 * MB;
const timing = quick ? { targetUs: 300, samples: 3 } : {};

// --- ceilings
{
  const words = big / 16;
  const groups = 4096;
  const text = {
    label: 'read',
    bindings: ['data', 'out'],
    writes: ['out'],
    workgroups: [groups, 1, 1],
    wgsl: `@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  var sum = vec4<u32>();
  for (var i = id.x; i < ${words}u; i += ${groups * 256 * 4}u) {
    sum ^= data[i]; sum += data[min(i + ${groups * 256}u, ${words - 1}u)]; sum ^= data[min(i + ${groups * 512}u, ${words - 1}u)]; sum += data[min(i + ${groups * 768}u, ${words - 1}u)];
  }
  if (all(sum == vec4<u32>(0x12345u))) { out[0] = sum; }
}`,
  };
  const out = bench.buffer(16);
  const read = await bench.time(
    [bench.launch(await bench.compile(text), { data: arenas.codes.buffer, out })],
    timing,
  );
  report.ceilings.readGBs = big / read.us / 1000;
  const empty = {
    label: 'empty',
    bindings: ['out'],
    writes: ['out'],
    workgroups: [1, 1, 1],
    wgsl: `@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) { if (i == 0u) { out[0] += 1u; } }`,
  };
  const launch = bench.launch(await bench.compile(empty), { out });
  report.ceilings.dispatchUs = (await bench.time(Array(64).fill(launch), timing)).us;
  const matrix = matrixConfig();
  if (matrix !== null && features.f16) {
    const loops = 512;
    const mma = {
      label: 'mma',
      bindings: ['out'],
      writes: ['out'],
      workgroups: [132 * 8, 1, 1],
      wgsl: `enable f16; enable chromium_experimental_subgroup_matrix; diagnostic(off, chromium.subgroup_matrix_uniformity);
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
var<workgroup> t: array<f16, ${matrix.m * matrix.k}>;
@compute @workgroup_size(128) fn main(@builtin(workgroup_id) w: vec3<u32>) {
  let a = subgroupMatrixLoad<subgroup_matrix_left<f16, ${matrix.k}, ${matrix.m}>, row_major>(&t, 0u, ${matrix.k}u);
  let b = subgroupMatrixLoad<subgroup_matrix_right<f16, ${matrix.n}, ${matrix.k}>, col_major>(&t, 0u, ${matrix.k}u);
  ${Array.from({ length: 8 }, (_, i) => `var c${i}: subgroup_matrix_result<f32, ${matrix.n}, ${matrix.m}>;`).join(' ')}
  for (var i = 0u; i < ${loops}u; i++) { ${Array.from({ length: 8 }, (_, i) => `c${i} = subgroupMatrixMultiplyAccumulate(a, b, c${i});`).join(' ')} }
  if (w.x == 100000u) { ${Array.from({ length: 8 }, (_, i) => `subgroupMatrixStore<row_major>(&out, ${i * 256}u, c${i}, ${matrix.n}u);`).join(' ')} }
}`,
    };
    const room = bench.buffer(65536);
    const timed = await bench.time([bench.launch(await bench.compile(mma), { out: room })], timing);
    report.ceilings.mmaTFLOPs =
      (2 * 132 * 8 * (128 / features.subgroupSize) * loops * 8 * matrix.m * matrix.n * matrix.k) /
      timed.us /
      1e6;
  }
  console.log(
    `read ${report.ceilings.readGBs.toFixed(0)} GB/s, a dependent dispatch ${report.ceilings.dispatchUs.toFixed(2)} µs, matrices alone ${report.ceilings.mmaTFLOPs?.toFixed(0) ?? '–'} TFLOP/s`,
  );
  save();
}

function matrixConfig() {
  const found = features.matrices.find(
    (m) => m.component === 'f16' && m.result === 'f32' && m.M === 16 && m.N === 16 && m.K === 16,
  );
  const any =
    found ?? features.matrices.find((m) => m.result === 'f32' && m.M === 8 && m.N === 8 && m.K === 8);
  return any ? { m: any.M, n: any.N, k: any.K, component: any.component, result: any.result } : null;
}

// --- what is measured

const q4 = { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' };
const spec = (n, k, rows, more = {}) => {
  const s = {
    n,
    k,
    rows,
    weight: q4,
    x: 'f32',
    out: 'f32',
    bias: false,
    residual: null,
    norm: null,
    glu: null,
    ...more,
  };
  return { ...s, xStride: k, outStride: outWidth(s), outOffset: 0 };
};
const norm = { norm: { eps: 1e-6 } };
const layers = {
  'qwen qkv': [4096, 1024, norm],
  'qwen o': [1024, 2048, { residual: 'f32' }],
  'qwen gate-up': [6144, 1024, { ...norm, glu: 'silu' }],
  'qwen down': [1024, 3072, { residual: 'f32' }],
  'qwen head 32k': [32000, 1024, norm],
  'qwen head 152k': [151936, 1024, norm],
  'llama qkv': [6144, 4096, norm],
  'llama o': [4096, 4096, { residual: 'f32' }],
  'llama gate-up': [28672, 4096, { ...norm, glu: 'silu' }],
  'llama down': [4096, 14336, { residual: 'f32' }],
  'llama head 32k': [32000, 4096, norm],
};

const BATCH = 16;

async function compileBatch(list) {
  const done = await Promise.all(
    list.map(async (entry) => {
      try {
        return { ...entry, compiled: await bench.compile(entry.kernel) };
      } catch (error) {
        note({ ...entry.row, failed: String(error.message).slice(0, 500) });
        return null;
      }
    }),
  );
  return done.filter((entry) => entry !== null);
}

/** Entries with their pipelines, a batch ahead of their use. */
async function* compileAhead(list) {
  let next = compileBatch(list.slice(0, BATCH));
  for (let i = 0; i < list.length; i += BATCH) {
    const ready = await next;
    next = compileBatch(list.slice(i + BATCH, i + 2 * BATCH));
    yield* ready;
  }
}

function note(row) {
  report.rows.push(row);
  save();
  const { section, name, config, error, us, gbs, tflops, share, spread, failed } = row;
  console.log(
    [
      section.padEnd(8),
      name.padEnd(26),
      config.padEnd(30),
      failed ? `FAILED ${failed}` : `err ${Number.isNaN(error) ? 'NaN!!' : error.toExponential(1)}`,
      us === undefined ? '' : `${us.toFixed(2)} µs`.padStart(11),
      gbs === undefined ? '' : `${gbs.toFixed(0)} GB/s`.padStart(10),
      tflops === undefined ? '' : `${tflops.toFixed(1)} TFLOP/s`.padStart(14),
      share === undefined ? '' : `${(share * 100).toFixed(0)} %`.padStart(6),
      spread > 0.1 ? `±${(spread * 100).toFixed(0)} %` : '',
    ].join(' '),
  );
}

/** Checks every entry, then times it. */
async function linearCases(section, entries, limits) {
  for await (const { row, compiled, s, timed = true, bound } of compileAhead(entries)) {
    if (left() < 5) return console.log(`(out of time in ${section})`);
    const error = await checkLinear(bench, arenas, s, compiled, s.rows > 64 ? 8 : 32);
    const full = { ...row, error, bound, good: error < bound };
    if (timed && (error < bound || limits?.anyway)) {
      const t = await timeLinear(bench, arenas, s, compiled, rotate, timing);
      full.us = t.us;
      full.spread = t.spread;
      full.gbs = (codeBytes(s) + metaBytes(s)) / t.us / 1000;
      full.tflops = (2 * s.n * s.k * s.rows) / t.us / 1e6;
      full.share =
        s.rows > 64 ? full.tflops / (report.ceilings.mmaTFLOPs ?? 1) : full.gbs / report.ceilings.readGBs;
    }
    note(full);
  }
}

const weights = [
  ...[2, 3, 4, 5, 6, 8].map((bits) => ({ kind: 'affine', bits, groupSize: 64, meta: 'f16' })),
  { kind: 'affine', bits: 4, groupSize: 32, meta: 'f16' },
  { kind: 'affine', bits: 4, groupSize: 128, meta: 'f16' },
  { kind: 'affine', bits: 8, groupSize: 32, meta: 'f16' },
  { kind: 'float', dtype: 'f16' },
  { kind: 'float', dtype: 'bf16' },
  { kind: 'float', dtype: 'f32' },
];
const weightName = (w) => (w.kind === 'float' ? w.dtype : `q${w.bits}g${w.groupSize}`);
const lanes = features.subgroupSize;

if (only.includes('linear') && lanes > 0) {
  const gemv = (name, s, config, extra = {}) => {
    const c = { subgroupSize: lanes, workgroupBytes: features.workgroupBytes, ...config };
    if (!gemvFits(s, c)) return [];
    const kernel = gemvKernel(s, c);
    const label = `s${c.subgroups} r${c.rowsPerSubgroup} k${c.splits}`;
    return [
      {
        s,
        kernel,
        bound: 2e-5,
        row: { section: 'gemv', name: `${name} ×${s.rows}`, config: label },
        ...extra,
      },
    ];
  };
  const set = (subgroups, rowsPerSubgroup, splits) => ({ subgroups, rowsPerSubgroup, splits });
  const entries = [];
  for (const w of quick ? weights.slice(2, 3) : weights)
    for (const more of quick
      ? [{ bias: true, residual: 'f32' }]
      : [{}, { bias: true, residual: 'f32' }, { ...norm, glu: 'gelu-tanh', bias: true }])
      entries.push(
        ...gemv(
          weightName(w),
          spec(quick ? 256 : 4000, 2048, more.glu ? 3 : 1, { weight: w, ...more }),
          set(8, 4, more.bias ? 2 : 1),
          { timed: !quick },
        ),
      );
  const sweep = quick
    ? [set(4, 4, 1)]
    : [
        set(4, 1, 1),
        set(4, 2, 1),
        set(4, 4, 1),
        set(8, 2, 1),
        set(8, 4, 1),
        set(8, 8, 1),
        set(16, 4, 1),
        set(4, 4, 2),
        set(8, 4, 4),
        set(4, 2, 4),
        set(8, 2, 8),
        set(3, 4, 3),
        set(6, 2, 3),
        set(14, 4, 7),
      ];
  for (const [name, [n, k, more]] of Object.entries(layers)) {
    if (quick && name !== 'qwen o') continue;
    for (const c of sweep) {
      if (n > 8192 && (c.splits > 1 || c.subgroups === 4)) continue;
      entries.push(...gemv(name, spec(n, k, 1, more), c));
    }
  }
  const batches = quick ? [] : [2, 3, 4, 6, 8];
  for (const rows of batches)
    for (const name of ['qwen qkv', 'qwen down', 'llama o', 'llama gate-up', 'llama down']) {
      const [n, k, more] = layers[name];
      if (quick && k > 3072) continue;
      for (const c of quick
        ? [set(4, 2, 1)]
        : [set(8, 2, 1), set(8, 4, 1), set(8, 8, 1), set(4, 4, 2), set(8, 4, 4)]) {
        if (n > 8192 && c.splits > 1) continue;
        entries.push(...gemv(name, spec(n, k, rows, more), c));
      }
    }
  await linearCases('gemv', entries);
}

if (only.includes('matrix') && lanes > 0) {
  const matrix = matrixConfig();
  const entries = [];
  const gemm = (name, s, config, extra = {}) => {
    const c = {
      matrix,
      subgroupSize: lanes,
      workgroupBytes: features.workgroupBytes,
      sk: 1,
      depth: 1,
      buffers: 1,
      ...config,
    };
    if (!matrixGemmFits(s, c)) return [];
    const kernel = matrixGemmKernel(s, c);
    const label = `${c.bm}×${c.bn}×${c.bk} s${c.sm}${c.sn}${c.sk} b${c.buffers} d${c.depth}${s.x === 'f16' ? ' x16' : ''}`;
    return [
      {
        s,
        kernel,
        bound: 2e-3,
        row: { section: 'matrix', name: `${name} ×${s.rows}`, config: label },
        ...extra,
      },
    ];
  };
  if (matrix !== null) {
    const large = { bm: 128, bn: 128, bk: 32, sm: 2, sn: 2 };
    const small = { bm: 32, bn: 64, bk: 64, sm: 1, sn: 4 };
    // correctness over the formats and epilogues
    for (const w of weights)
      entries.push(
        ...gemm(
          weightName(w),
          spec(1008, 1024, 100, { weight: w, bias: true, residual: 'f32' }),
          { ...small, buffers: 2 },
          { timed: false },
        ),
      );
    for (const more of [{}, { glu: 'silu' }, { residual: 'f32' }, { bias: true, x: 'f16', out: 'f16' }])
      for (const c of [
        large,
        { ...small, buffers: 2, depth: 2 },
        { bm: 16, bn: 32, bk: 256, sm: 1, sn: 1, sk: 8, depth: 4 },
      ])
        entries.push(...gemm('epilogue', spec(2048, 1024, 144, more), c, { timed: false }));
    const larges = [
      large,
      { ...large, buffers: 2 },
      { ...large, bk: 64 },
      { ...large, sm: 2, sn: 4 },
      { ...large, sm: 2, sn: 4, bk: 64 },
      { ...large, sm: 2, sn: 4, buffers: 2 },
      { ...large, sm: 4, sn: 2, bk: 64 },
      { bm: 128, bn: 64, bk: 64, sm: 2, sn: 2 },
      { bm: 64, bn: 128, bk: 64, sm: 1, sn: 4 },
      { bm: 64, bn: 128, bk: 64, sm: 2, sn: 2 },
      { bm: 64, bn: 64, bk: 64, sm: 2, sn: 2, buffers: 2 },
      { bm: 256, bn: 128, bk: 32, sm: 4, sn: 2 },
      { bm: 128, bn: 256, bk: 32, sm: 2, sn: 4 },
    ];
    for (const c of larges) {
      entries.push(...gemm('4096³', spec(4096, 4096, 4096), c));
      entries.push(...gemm('4096³', spec(4096, 4096, 4096, { x: 'f16' }), c));
    }
    entries.push(
      ...gemm(
        '4096³ f16 weights',
        spec(4096, 4096, 4096, { x: 'f16', weight: { kind: 'float', dtype: 'f16' } }),
        large,
      ),
    );
    const plain = {
      'qwen qkv': {},
      'qwen gate-up': { glu: 'silu' },
      'qwen down': { residual: 'f32' },
      'llama qkv': {},
      'llama gate-up': { glu: 'silu' },
      'llama down': { residual: 'f32' },
    };
    for (const rows of [512])
      for (const [name, more] of Object.entries(plain))
        for (const c of [larges[0], larges[3], larges[5], larges[8], larges[10]])
          entries.push(...gemm(name, spec(layers[name][0], layers[name][1], rows, more), c));
    const skinny = [
      { bm: 16, bn: 32, bk: 256, sm: 1, sn: 1, sk: 8, depth: 1 },
      { bm: 16, bn: 32, bk: 256, sm: 1, sn: 1, sk: 8, depth: 2, buffers: 1 },
      { bm: 16, bn: 32, bk: 256, sm: 1, sn: 1, sk: 8, depth: 4 },
      { bm: 16, bn: 64, bk: 128, sm: 1, sn: 2, sk: 4, depth: 2 },
      { bm: 16, bn: 64, bk: 128, sm: 1, sn: 2, sk: 4, depth: 2, buffers: 2 },
      { bm: 16, bn: 64, bk: 128, sm: 1, sn: 4, sk: 1, depth: 2 },
      { bm: 16, bn: 16, bk: 512, sm: 1, sn: 1, sk: 8, depth: 2 },
      { bm: 16, bn: 128, bk: 64, sm: 1, sn: 4, sk: 1, depth: 2, buffers: 2 },
      { bm: 32, bn: 32, bk: 256, sm: 1, sn: 1, sk: 8, depth: 2 },
      { bm: 32, bn: 64, bk: 128, sm: 1, sn: 2, sk: 4, depth: 2 },
      { bm: 32, bn: 64, bk: 64, sm: 1, sn: 4, sk: 1, depth: 2, buffers: 2 },
      { bm: 32, bn: 64, bk: 128, sm: 1, sn: 4, sk: 2, depth: 2 },
      { bm: 64, bn: 64, bk: 64, sm: 2, sn: 2, sk: 1, depth: 2, buffers: 2 },
      { bm: 64, bn: 64, bk: 128, sm: 1, sn: 2, sk: 2, depth: 1 },
    ];
    for (const rows of [8, 16, 32, 64])
      for (const [name, more] of Object.entries(plain)) {
        if (name.startsWith('qwen') && name !== 'qwen down' && rows !== 32) continue;
        for (const c of skinny) {
          if (c.bm > Math.max(16, rows) || c.bm * 2 < rows) continue;
          entries.push(...gemm(name, spec(layers[name][0], layers[name][1], rows, more), c));
        }
      }
  }
  await linearCases('matrix', entries);
}

const f16kv = { kind: 'float', dtype: 'f16' };
const heads = (h, kv, d) => ({
  heads: h,
  kvHeads: kv,
  headDim: d,
  key: f16kv,
  value: f16kv,
  blockTokens: 32,
  scale: 1 / Math.sqrt(d),
  window: null,
  softcap: null,
});
const models = quick ? { tiny: heads(4, 2, 32) } : { qwen: heads(16, 8, 128), llama: heads(32, 8, 128) };

async function attendCase(section, name, config, c, stages, work, bound) {
  if (left() < 5) return;
  const row = { section, name, config };
  try {
    const error = await checkAttend(bench, arenas, c, stages, c.tokens > 512 ? 6 : 12);
    const full = { ...row, error, bound, good: error < bound };
    const t = await timeAttend(bench, arenas, c, stages, rotate, timing);
    full.us = t.us;
    full.spread = t.spread;
    if (section === 'decode') {
      // What the reduce costs shows in the difference.
      full.firstUs = (await timeAttend(bench, arenas, c, stages.slice(0, 1), rotate, timing)).us;
      full.gbs = work / t.us / 1000;
      full.share = full.gbs / report.ceilings.readGBs;
    } else {
      full.tflops = work / t.us / 1e6;
      full.share = full.tflops / (report.ceilings.mmaTFLOPs ?? 1);
    }
    note(full);
  } catch (error) {
    note({ ...row, failed: String(error.message).slice(0, 500) });
  }
}

if (only.includes('decode') && lanes > 0) {
  for (const [model, shape] of Object.entries(models))
    for (const [rows, context] of quick
      ? [[3, 600]]
      : [
          [1, 512],
          [1, 4096],
          [8, 512],
          [32, 512],
          [4, 20000],
          [1, 20000],
        ]) {
      const sequences = Array.from({ length: rows }, (_, i) => ({
        length: 1,
        position: context - 1 - (i % 7),
      }));
      const c = makeCase(packing, shape, sequences);
      const bytes = sequences.reduce((n, s) => n + (s.position + 1) * shape.kvHeads * shape.headDim * 4, 0);
      const portable = attendKernel(c.shape, features.workgroupBytes).stages;
      const name = `${model} ${rows} × ${context}`;
      await attendCase('decode', name, 'portable', c, portable, bytes, 1e-5);
      for (const [threads, unroll] of quick
        ? [[32, 1]]
        : [
            [64, 4],
            [128, 2],
            [128, 4],
            [256, 2],
            [256, 4],
            [512, 2],
          ]) {
        const config = { subgroupSize: lanes, threads, unroll };
        if (!decodeFits(c.shape, config, features.workgroupBytes)) continue;
        await attendCase(
          'decode',
          name,
          `t${threads} u${unroll}`,
          c,
          [decodeStage(c.shape, config), portable[1]],
          bytes,
          1e-5,
        );
      }
    }
}

if (only.includes('check') && lanes > 0 && matrixConfig() !== null) {
  report.matrixLoads = await checkMatrixOps(bench, matrixConfig());
  save();
}

if (only.includes('prefill') && lanes > 0) {
  const matrix = matrixConfig();
  for (const [model, shape] of Object.entries(models))
    for (const [length, position] of quick
      ? [[40, 5]]
      : [
          [512, 0],
          [4096, 0],
          [512, 8192],
        ]) {
      const c = makeCase(packing, shape, [{ length, position }]);
      const seen = length * position + (length * (length + 1)) / 2;
      const flops = seen * shape.heads * shape.headDim * 4;
      const name = `${model} ${length} at ${position}`;
      if (length <= 512 && position === 0)
        await attendCase(
          'prefill',
          name,
          'portable',
          c,
          attendKernel(c.shape, features.workgroupBytes).stages.slice(-1),
          flops,
          1e-5,
        );
      if (matrix === null) continue;
      for (const [keys, rows] of [
        [64, 64],
        [32, 64],
        [64, 32],
        [32, 32],
        [32, 16],
      ]) {
        if (rows > (shape.heads / shape.kvHeads) * 16) continue;
        const config = {
          matrix,
          subgroupSize: lanes,
          keys,
          rows,
          workgroupBytes: features.workgroupBytes,
        };
        if (!prefillFits(c.shape, config)) continue;
        const stages = [prefillStage(c.shape, config)];
        await attendCase('prefill', name, `k${keys} r${rows}`, c, stages, flops, 4e-3);
      }
    }
}

if (only.includes('chosen') && lanes > 0) {
  const capabilities = capabilitiesOf(opened);
  const entries = [];
  for (const [name, [n, k, more]] of Object.entries(layers)) {
    if (quick && name !== 'qwen o') continue;
    for (const rows of quick ? [1, 8] : [1, 2, 4, 8, 16, 32, 64, 128, 512, 2048]) {
      if (name.includes('head') && rows > 64) continue;
      const row = { section: 'chosen', name: `${name} ×${rows}` };
      const s = spec(n, k, rows, more);
      const gemv = rows <= 8 ? chooseGemv(capabilities, s) : null;
      if (gemv !== null) {
        const config = `gemv s${gemv.subgroups} r${gemv.rowsPerSubgroup} k${gemv.splits}`;
        entries.push({ s, kernel: gemvKernel(s, gemv), bound: 2e-5, row: { ...row, config } });
      }
      // A GEMM has the norm before it.
      const plain = spec(n, k, rows, { ...more, norm: null });
      const c = rows > 4 ? chooseMatrixGemm(capabilities, plain) : null;
      if (c !== null) {
        const config = `${c.bm}×${c.bn}×${c.bk} s${c.sm}${c.sn}${c.sk} b${c.buffers} d${c.depth}`;
        entries.push({ s: plain, kernel: matrixGemmKernel(plain, c), bound: 2e-3, row: { ...row, config } });
      }
    }
  }
  await linearCases('chosen', entries);
}

const bad = report.rows.filter((r) => r.failed || (r.bound !== undefined && !r.good));
report.seconds = seconds - left();
save();
console.log(`\n${report.rows.length} kernels, ${bad.length} wrong or failed, ${report.seconds.toFixed(0)} s`);
for (const r of bad) console.log(`  ${r.section} ${r.name} ${r.config}: ${r.failed ?? r.error}`);

// The best of each case, for reading at a glance.
const best = new Map();
for (const r of report.rows) {
  if (r.us === undefined || !r.good) continue;
  const key = `${r.section} ${r.name}`;
  if (!best.has(key) || best.get(key).us > r.us) best.set(key, r);
}
console.log('\nbest');
for (const r of best.values())
  console.log(
    `${r.section.padEnd(8)} ${r.name.padEnd(26)} ${r.config.padEnd(30)} ${r.us.toFixed(2).padStart(9)} µs ${(r.gbs ?? 0).toFixed(0).padStart(6)} GB/s ${(r.tflops ?? 0).toFixed(1).padStart(7)} TFLOP/s ${(r.share * 100).toFixed(0).padStart(4)} %`,
  );
process.exit(0);
