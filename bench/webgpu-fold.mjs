// The product of q, k and v of one row and the rope-append behind it: two launches, beside one that does both, in several
// sizes. All are checked, against float64 and against each other, before any is timed; a round walks over more weights than caches
// hold, every launch waiting for the one before.
//
//   node bench/webgpu-fold.mjs [--shapes qwen3-0.6b,llama-8b] [--sizes '[[32,4,1],[16,8,1]]'] [--kv f16|f32] [--position 600]
//       [--mb 512] [--seconds 15]
//
// A size is [subgroups, weight rows of each, subgroups that share a row]. `+` marks the sizes that are chosen by rule. A saving is that of
// one layer; of a step it is as many times that as the model has layers. Needs a build.

import { built, countdown, option } from './options.mjs';
import { Arena, Bench, capabilitiesOf, normals, openDevice, relativeError } from './webgpu-harness.mjs';
import { codeBytes, metaBytes, weightRow } from './webgpu-linear.mjs';

const load = (name) => built(`device/${name}.js`);
const { chooseAppend, chooseGemv } = await load('webgpu/kernels/linear-fast');
const { gemvKernel } = await load('webgpu/kernels/linear-gemv');
const { gemvFits } = await load('webgpu/kernels/linear-gemv-plan');
const { ropeAppendKernel } = await load('webgpu/kernels/rope-append');
const { allRows } = await load('webgpu/kernels/kv-rows');
const { makeRopeTable } = await load('rope');

const seconds = Number(option('--seconds', '15'));
const left = countdown(seconds);
const position = Number(option('--position', '600'));
const dtype = option('--kv', 'f16');
const MB = 2 ** 20;
const mb = Number(option('--mb', '512'));

const SHAPES = {
  'qwen3-0.6b': { hidden: 1024, heads: 16, kvHeads: 8, headDim: 128, layers: 28, headNorm: true },
  'qwen3-4b': { hidden: 2560, heads: 32, kvHeads: 8, headDim: 128, layers: 36, headNorm: true },
  'qwen3-8b': { hidden: 4096, heads: 32, kvHeads: 8, headDim: 128, layers: 36, headNorm: true },
  'qwen2.5-7b': { hidden: 3584, heads: 28, kvHeads: 4, headDim: 128, layers: 28, bias: true },
  'llama-1b': { hidden: 2048, heads: 32, kvHeads: 8, headDim: 64, layers: 16 },
  'llama-8b': { hidden: 4096, heads: 32, kvHeads: 8, headDim: 128, layers: 32 },
};
const WHOLE_HEADS = [
  [32, 4, 1],
  [32, 2, 1],
  [16, 8, 1],
  [16, 4, 1],
  [32, 8, 2],
  [16, 16, 2],
  [32, 16, 4],
];
const RUNS = [
  [8, 2, 1],
  [4, 2, 1],
  [4, 4, 1],
  [8, 4, 1],
  [16, 2, 1],
  [16, 4, 2],
  [8, 4, 2],
  [16, 1, 1],
];
const sizes = option('--sizes', null);

const opened = await openDevice();
const bench = new Bench(opened);
const { features, device } = bench;
const base = { subgroupSize: features.subgroupSize, workgroupBytes: features.workgroupBytes };
const threads = device.limits.maxComputeInvocationsPerWorkgroup;
const capabilities = { ...capabilitiesOf(opened), matrices: [] };
console.log(
  `${bench.info.description || bench.info.device}: ${threads} threads, ${capabilities.storageBuffers} storage buffers, ${features.timestamps ? 'timestamps' : 'wall time'}`,
);
const arenas = {
  codes: new Arena(bench, mb * MB, { seed: 1 }),
  metas: new Arena(bench, (mb / 8) * MB, { seed: 2, and: 0x03ff03ff, or: 0xa8001c00 }),
};
const weight = { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' };
const BLOCK = 32;
const PER_SLOT = Math.ceil((position + 1) / BLOCK);
const BLOCKS = 8;
const entry = 5;
const align = (n) => Math.ceil(n / 256) * 256;

/** A stage of the runtime as the harness takes kernels. */
function staged({ stages }) {
  const [{ label, wgsl, bindings, params, workgroups }] = stages;
  const out = [0, 0, 0];
  workgroups({ tokens: 1, outputs: 1 }, out);
  return {
    label,
    wgsl,
    params,
    workgroups: out,
    bindings: bindings.map(({ name }) => name),
    writes: bindings.filter(({ access }) => access === 'read_write').map(({ name }) => name),
  };
}

/** Heads of q, k and v as they are left, in float64. */
function expected(spec, shape, given, head) {
  const { hidden, heads, kvHeads, headDim } = shape;
  const x = Float64Array.from(given.x);
  let squares = 0;
  for (const v of x) squares += v * v;
  const inverse = 1 / Math.sqrt(squares / hidden + 1e-6);
  for (let c = 0; c < hidden; c++) x[c] *= inverse * given.norm[c];
  const row = new Float64Array(hidden);
  const out = new Float64Array(headDim);
  for (let d = 0; d < headDim; d++) {
    weightRow(arenas, spec, head * headDim + d, row);
    let sum = spec.bias ? given.bias[head * headDim + d] : 0;
    for (let c = 0; c < hidden; c++) sum += row[c] * x[c];
    out[d] = sum;
  }
  if (head >= heads + kvHeads) return out;
  if (shape.headNorm) {
    let own = 0;
    for (const v of out) own += v * v;
    const scale = 1 / Math.sqrt(own / headDim + 1e-6);
    const gamma = head < heads ? given.qNorm : given.kNorm;
    for (let d = 0; d < headDim; d++) out[d] *= scale * gamma[d];
  }
  const half = headDim / 2;
  for (let i = 0; i < half; i++) {
    const angle = position * given.frequencies[i];
    const [a, b] = [out[i], out[i + half]];
    out[i] = a * Math.cos(angle) - b * Math.sin(angle);
    out[i + half] = a * Math.sin(angle) + b * Math.cos(angle);
  }
  return out;
}

for (const name of option('--shapes', 'qwen3-0.6b,llama-8b').split(',')) {
  const shape = SHAPES[name];
  const { hidden: k, heads, kvHeads, headDim, layers, headNorm = false, bias = false } = shape;
  const n = (heads + 2 * kvHeads) * headDim;
  const format = { kind: 'float', dtype };
  const append = {
    heads,
    kvHeads,
    headDim,
    key: format,
    value: format,
    rows: allRows(BLOCKS),
    blockTokens: BLOCK,
    maxBlocksPerSlot: PER_SLOT,
    normEps: headNorm ? 1e-6 : null,
    rope: { dims: headDim, style: 'half' },
  };
  const spec = {
    n,
    k,
    rows: 1,
    weight,
    x: 'f32',
    out: 'f32',
    bias,
    residual: null,
    norm: { eps: 1e-6 },
    glu: null,
    xStride: k,
    outStride: n,
    outOffset: 0,
  };
  const frequencies = Float64Array.from({ length: headDim / 2 }, (_, i) => 1e6 ** ((-2 * i) / headDim));
  const gains = (count, seed) => normals(count, seed).map((v) => 1 + v / 4);
  const given = {
    frequencies,
    x: normals(k, 11),
    norm: gains(k, 12),
    bias: normals(n, 13),
    qNorm: gains(headDim, 14),
    kNorm: gains(headDim, 15),
  };
  const table = makeRopeTable({
    dims: headDim,
    style: 'half',
    frequencies,
    attentionFactor: 1,
    maxContext: position + 1,
  });
  const joined = (...parts) => {
    const all = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  };
  const step = new Uint32Array(16);
  step.set([1, 1, 1, 0]);
  step.set([7, 0, position, 0], 12);
  const heads2 = headNorm ? [given.qNorm, given.kNorm] : [];
  const shared = {
    x: bench.upload(given.x),
    norm: bench.upload(given.norm),
    bias: bench.upload(given.bias),
    headNorms: bench.upload(joined(given.qNorm, given.kNorm)),
    constants: bench.upload(joined(given.norm, ...(bias ? [given.bias] : []), ...heads2)),
    rope: bench.upload(joined(table.fine, table.coarse)),
    step: bench.upload(step),
    tables: bench.upload(new Uint32Array(PER_SLOT).fill(entry)),
    qkv: bench.buffer(n * 4),
    q: bench.buffer(heads * headDim * 4),
    keys: bench.buffer(BLOCKS * kvHeads * BLOCK * headDim * 4),
    values: bench.buffer(BLOCKS * kvHeads * BLOCK * headDim * 4),
  };
  const codes = align(codeBytes(spec));
  const metas = align(metaBytes(spec));
  const count = Math.max(
    1,
    Math.min(64, Math.floor(arenas.codes.bytes / codes), Math.floor(arenas.metas.bytes / metas)),
  );
  const weights = (i) => ({
    codes: { buffer: arenas.codes.buffer, offset: i * codes, size: codeBytes(spec) },
    metas: { buffer: arenas.metas.buffer, offset: i * metas, size: metaBytes(spec) },
  });

  const plain = chooseGemv(capabilities, spec);
  const rule = chooseAppend(capabilities, { ...spec, append });
  const nameOf = ({ subgroups, rowsPerSubgroup, splits }) => `${subgroups} ${rowsPerSubgroup} ${splits}`;
  const folds = (sizes === null ? [...(headNorm ? [] : RUNS), ...WHOLE_HEADS] : JSON.parse(sizes)).map(
    ([subgroups, rowsPerSubgroup, splits]) => ({ ...base, subgroups, rowsPerSubgroup, splits }),
  );
  if (rule !== null && !folds.some((c) => nameOf(c) === nameOf(rule))) folds.unshift(rule);
  const jobs = [
    {
      label: `apart, ${nameOf(plain)}`,
      kernels: [gemvKernel(spec, plain), staged(ropeAppendKernel(append))],
    },
  ];
  for (const config of folds) {
    if (config.subgroups * config.subgroupSize > threads || !gemvFits({ ...spec, append }, config)) continue;
    const mark = rule !== null && nameOf(rule) === nameOf(config) ? '+' : ' ';
    jobs.push({
      label: `fold ${mark} ${nameOf(config)}`,
      kernels: [gemvKernel({ ...spec, append }, config)],
    });
  }
  jobs.push({ label: `product alone, ${nameOf(plain)}`, kernels: [gemvKernel(spec, plain)], alone: true });
  await Promise.all(
    jobs.map(async (job) => {
      try {
        job.compiled = await Promise.all(job.kernels.map((kernel) => bench.compile(kernel)));
      } catch (error) {
        console.log(`${name} ${job.label}: ${error.message.slice(0, 300)}`);
      }
    }),
  );
  const launches = (job, i) =>
    job.compiled.map((compiled, at) =>
      bench.launch(compiled, {
        ...shared,
        ...weights(i),
        out: (job.kernels.length === 2 && at === 0) || job.alone ? shared.qkv : shared.q,
      }),
    );

  const wanted = [0, heads - 1, heads, heads + kvHeads - 1, n / headDim - 1].map((head) => [
    head,
    expected(spec, shape, given, head),
  ]);
  for (const job of jobs) {
    if (job.compiled === undefined || job.alone) continue;
    // All ones are no number.
    for (const buffer of [shared.q, shared.keys, shared.values, shared.qkv])
      device.queue.writeBuffer(buffer, 0, new Uint8Array(buffer.size).fill(0xff));
    bench.run(launches(job, 0));
    const q = await bench.readFloats(shared.q, heads * headDim, 'f32');
    const cached = async (buffer) => {
      const all = await bench.readFloats(buffer, BLOCKS * kvHeads * BLOCK * headDim, dtype);
      return (head) => {
        const from = ((entry * kvHeads + head) * BLOCK + (position % BLOCK)) * headDim;
        return all.subarray(from, from + headDim);
      };
    };
    const [keys, values] = [await cached(shared.keys), await cached(shared.values)];
    const own = (head) => {
      if (head < heads) return q.subarray(head * headDim, (head + 1) * headDim);
      return head < heads + kvHeads ? keys(head - heads) : values(head - heads - kvHeads);
    };
    job.all = joined(...Array.from({ length: n / headDim }, (_, head) => own(head)));
    job.error = Math.max(...wanted.map(([head, values]) => relativeError(own(head), values)));
    job.apart = relativeError(job.all, jobs[0].all);
    if (!(job.error < 2e-3 && job.apart < 2e-3)) job.wrong = true;
  }

  let apart = Number.NaN;
  let warmMs = 400;
  for (const job of jobs) {
    if (job.compiled === undefined || left() < 0.2) continue;
    const all = Array.from({ length: count }, (_, i) => launches(job, i)).flat();
    const { us, spread } = await bench.time(all, { targetUs: 2000, samples: 7, warmMs });
    warmMs = 12;
    const each = us * job.kernels.length;
    if (job === jobs[0]) apart = each;
    const checked = job.alone
      ? '-'
      : job.wrong
        ? `WRONG ${job.error} ${job.apart}`
        : `${job.error.toExponential(1)} ${job.apart === 0 ? 'same bits' : job.apart.toExponential(1)}`;
    const saves =
      job.alone || job === jobs[0]
        ? ''
        : `saves ${(apart - each).toFixed(2)} µs, ${((apart - each) * layers).toFixed(0)} a step`;
    console.log(
      `${name.padEnd(11)} ${job.label.padEnd(22)} ${checked.padEnd(18)} ${each.toFixed(2).padStart(7)} µs ±${(100 * spread).toFixed(0)} %  ${saves}`,
    );
  }
  for (const buffer of Object.values(shared)) buffer.destroy();
}
process.exit(0);
