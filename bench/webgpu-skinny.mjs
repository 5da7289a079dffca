// Products of 1 to 32 rows, or of more with --rows: every kernel there is for them, checked against float64, then timed side by side.
// Those of the rules are marked with a star. The sizes of a prompt's gate and up, old and new, in some ten seconds:
//
//   node bench/webgpu-skinny.mjs --rows 512,2048 --layers "llama gate-up" --matrix '[[128,128,64,2,2,1,1,1],[128,128,64,2,4,1,1,1,1],[128,256,32,2,4,1,1,1,1]]'
//
//   node bench/webgpu-skinny.mjs [--rows 1,2,4,8,16,32] [--layers "llama gate-up,llama down"] [--seconds 200]
//       [--skinny '[[64,128,4,1,1]]'] [--resident '[[2,1,16,8]]'] [--matrix '[[32,32,128,1,1,4,1,2]]']
//
// `skinny` takes [features of a workgroup, columns of a step, subgroups, depth, buffers], `resident` [words, parts, features,
// weight rows at once],
// `matrix` [rows and features of a tile, columns of a step, subgroups along rows, features and K, buffers, depth,
// 1: neighbouring workgroups have the same features]. Needs a build, and a GPU with subgroup matrices for what runs on them. All kernels are compiled
// and checked before any is timed: a GPU that idles slows down.

import { built, countdown, option } from './options.mjs';
import { Arena, Bench, capabilitiesOf, openDevice } from './webgpu-harness.mjs';
import { checkLinear, codeBytes, metaBytes, outWidth, timeLinear } from './webgpu-linear.mjs';

const load = (name) => built(`device/webgpu/kernels/${name}.js`);
const { skinnyFits, skinnyKernel } = await load('linear-skinny');
const { residentFits, residentKernel } = await load('linear-resident');
const { chooseSkinny, chooseGemv, chooseResident, chooseMatrixGemm } = await load('linear-fast');
const { gemvKernel } = await load('linear-gemv');
const { matrixGemmKernel } = await load('linear-matrix');
const { matrixGemmFits } = await load('linear-matrix-plan');

const seconds = Number(option('--seconds', '200'));
const left = countdown(seconds);

const opened = await openDevice();
const bench = new Bench(opened);
const { features } = bench;
const MB = 2 ** 20;
const arenas = {
  codes: new Arena(bench, 1024 * MB, { seed: 1 }),
  metas: new Arena(bench, 256 * MB, { seed: 2, and: 0x03ff03ff, or: 0xa8001c00 }),
};
const weight = { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' };
const norm = { norm: { eps: 1e-6 } };
const layers = {
  'llama gate-up': [28672, 4096, { ...norm, glu: 'silu' }],
  'llama down': [4096, 14336, { residual: 'f32' }],
  'llama qkv': [6144, 4096, norm],
  'llama o': [4096, 4096, { residual: 'f32' }],
  'llama head': [32000, 4096, norm],
  'qwen qkv': [4096, 1024, norm],
  'qwen o': [1024, 2048, { residual: 'f32' }],
  'qwen gate-up': [6144, 1024, { ...norm, glu: 'silu' }],
  'qwen down': [1024, 3072, { residual: 'f32' }],
};
const capabilities = capabilitiesOf(opened);
const base = { subgroupSize: features.subgroupSize, workgroupBytes: features.workgroupBytes };

const jobs = [];
const skinny = JSON.parse(option('--skinny', '[]'));
const resident = JSON.parse(option('--resident', '[]'));
const matrices = JSON.parse(option('--matrix', '[]'));
for (const rows of option('--rows', '1,2,4,8,16,32').split(',').map(Number))
  for (const name of option('--layers', Object.keys(layers).join(',')).split(',')) {
    const [n, k, more] = layers[name];
    const plain = {
      n,
      k,
      rows,
      weight,
      x: 'f32',
      out: 'f32',
      bias: false,
      residual: null,
      norm: null,
      glu: null,
    };
    const s = { ...plain, ...more, xStride: k, outOffset: 0 };
    s.outStride = outWidth(s);
    const add = (label, spec, kernel) => jobs.push({ name: `${name} ×${rows}`, label, s: spec, kernel });
    // As the product takes them: x of a GEMM is halves already, and normed.
    // What a glu of so many rows leaves the product behind it takes as halves.
    const half = { ...s, norm: null, x: 'f16', ...(rows > 16 && s.glu !== null ? { out: 'f16' } : {}) };
    const gemv = rows <= 8 ? chooseGemv(capabilities, s) : null;
    const matrix = rows > 4 && features.f16 ? chooseMatrixGemm(capabilities, half) : null;
    const chosenResident = chooseResident(capabilities, s);
    const chosenSkinny = chooseSkinny(capabilities, s);
    if (gemv !== null) add('gemv *', s, gemvKernel(s, gemv));
    const matrixName = ({ bm, bn, bk, sm, sn, sk, buffers, depth, rowsFirst }) =>
      `matrices ${[bm, bn, bk, sm, sn, sk, buffers, depth].join(' ')}${rowsFirst ? ' rows' : ''}`;
    if (matrix !== null) add(`${matrixName(matrix)} *`, half, matrixGemmKernel(half, matrix));
    if (chosenResident !== null) add('resident *', s, residentKernel(s, chosenResident));
    if (chosenSkinny !== null) add('skinny *', s, skinnyKernel(s, chosenSkinny));
    const wanted = { m: 16, n: rows > 8 ? 16 : 8, k: 16, component: 'f16', result: 'f32' };
    for (const c of rows > 4 && features.f16 ? matrices : []) {
      const [bm, bn, bk, sm, sn, sk, buffers, depth, first = 0] = c;
      const rowsFirst = first === 1;
      const wanted = { m: 16, n: 16, k: 16, component: 'f16', result: 'f32' };
      const config = {
        ...base,
        matrix: wanted,
        bm,
        bn,
        bk,
        sm,
        sn,
        sk,
        buffers,
        depth,
        rowsFirst,
      };
      if (matrix !== null && matrixName(config) === matrixName(matrix)) continue;
      if (matrixGemmFits(half, config)) add(matrixName(config), half, matrixGemmKernel(half, config));
      else console.log(`${name} ×${rows} ${matrixName(config)}: does not fit`);
    }
    for (const c of skinny) {
      const [bn, bk, subgroups, depth, buffers] = c;
      const config = { ...base, matrix: wanted, bn, bk, subgroups, depth, buffers };
      if (skinnyFits(s, config)) add(`skinny ${c.join(' ')}`, s, skinnyKernel(s, config));
    }
    for (const c of resident) {
      const [words, parts, own, together] = c;
      const config = { ...base, words, parts, features: own, together, workgroupThreads: 1024 };
      if (residentFits(s, config)) add(`resident ${c.join(' ')}`, s, residentKernel(s, config));
    }
  }

for (let i = 0; i < jobs.length; i += 24)
  await Promise.all(
    jobs.slice(i, i + 24).map(async (job) => {
      try {
        job.compiled = await bench.compile(job.kernel);
      } catch (error) {
        console.log(`${job.name} ${job.label}: ${error.message.slice(0, 300)}`);
      }
    }),
  );
for (const job of jobs)
  if (job.compiled !== undefined && left() > seconds / 3)
    job.error = await checkLinear(bench, arenas, job.s, job.compiled, 8);
let warmMs = 500;
for (const { name, label, s, compiled, error } of jobs) {
  if (compiled === undefined || left() < 2) continue;
  const { us } = await timeLinear(bench, arenas, s, compiled, 512 * MB, {
    targetUs: 2000,
    samples: 5,
    warmMs,
  });
  warmMs = 12;
  const rate = ((codeBytes(s) + metaBytes(s)) / us / 1000).toFixed(0);
  const work = s.rows < 32 ? '' : `${((2 * s.rows * s.n * s.k) / us / 1e6).toFixed(0).padStart(5)} TFLOP/s`;
  const checked =
    error === undefined ? 'unchecked' : error < 2e-3 ? error.toExponential(1) : `WRONG ${error}`;
  console.log(
    `${name.padEnd(18)} ${label.padEnd(32)} ${checked.padEnd(9)} ${us.toFixed(1).padStart(7)} µs ${rate.padStart(5)} GB/s ${work}`,
  );
}
process.exit(0);
