// Products with the formats of GGUF beside affine ones of 4 and 8 bits: each kernel that the rules choose, first checked against float64,
// then timed over weights that no cache holds. The rate is that of a format's own bytes, and beside it the rate of the affine one of the same run.
//
//   node bench/webgpu-formats.mjs [--format q4_k,q6_k,q8_0,mxfp4,nvfp4,iq4_xs] [--rows 1,8,32,512] [--shapes 4096x4096,4096x14336]
//       [--seconds 300] [--check] [--scan]
//
// Shapes are features × columns. `--check`: no timing. `--scan`: all candidates of tuning, the six fastest are printed; the star is the rules' choice.
// Needs a build.

import { args, built, countdown, option } from './options.mjs';
import { compiledStages, FORMATS, metasOf, rowOf, words } from './webgpu-blocks.mjs';
import { Arena, Bench, capabilitiesOf, normals, openDevice, relativeError } from './webgpu-harness.mjs';

const load = (name) => built(`device/webgpu/${name}.js`);
const { ruleForLinear } = await load('kernels/linear-fast');
const { linearKernel, linearName } = await load('kernels/linear-choice');
const { linearCandidates } = await load('tuning/linear-candidates');
const { weightBytes } = await load('kernels/linear-spec');
const { rowMetaWords, rowWords } = await load('weights-layout');

const list = (name, fallback) => option(name, fallback).split(',');
const seconds = Number(option('--seconds', '300'));
const left = countdown(seconds);

const opened = await openDevice();
const bench = new Bench(opened);
const { device } = bench;
const MB = 2 ** 20;
const align = (n) => Math.ceil(n / 256) * 256;
const arena = new Arena(bench, Number(option('--megabytes', '1024')) * MB, { seed: 1 });
const capabilities = capabilitiesOf(opened);
console.log(`${opened.info.description || opened.info.device}, ${opened.features.matrices.length} matrices`);

/** Codes come from the arena; metas of one matrix are made, and copied as often as codes are read. */
const made = new Map();
function weightsOf(name, n, k) {
  const key = `${name} ${n} ${k}`;
  if (!made.has(key)) made.set(key, makeWeights(FORMATS[name], n, k));
  return made.get(key);
}
function makeWeights(weight, n, k) {
  const codeBytes = n * rowWords(weight, k) * 4;
  const metaWords = rowMetaWords(weight, k);
  const rows = words(n, () => metasOf(weight, k));
  const metaBytes = n * metaWords * 4;
  const count = Math.max(
    1,
    Math.min(Math.floor(arena.bytes / align(codeBytes)), Math.ceil((512 * MB) / codeBytes)),
  );
  const metas = bench.buffer(count * align(metaBytes));
  const data = new Uint32Array(n * metaWords);
  rows.forEach((row, i) => {
    if (row.length !== metaWords) throw new Error(`${row.length} words of metas, not ${metaWords}`);
    data.set(row, i * metaWords);
  });
  for (let i = 0; i < count; i++) device.queue.writeBuffer(metas, i * align(metaBytes), data);
  const at = (i) => ({
    codes: { buffer: arena.buffer, offset: i * align(codeBytes), size: codeBytes },
    metas: { buffer: metas, offset: i * align(metaBytes), size: metaBytes },
  });
  const row = (r, out) => rowOf(weight, k, arena, rowWords(weight, k), rows[r], r, out);
  return { count, at, row };
}

/** Relative error over some features of some rows. */
async function check({ weights, shape, x, launchesOf, out }) {
  bench.run(launchesOf(0));
  const { rows, n, k } = shape;
  const got = await bench.readFloats(out, rows * n, 'f32');
  const some = [...new Set([0, 1, 2, 15, 16, 31, 33, n >> 1, n - 17, n - 2, n - 1])];
  const of = [...new Set([0, 1, 2, rows >> 1, rows - 2, rows - 1])].filter((r) => r >= 0 && r < rows);
  const [ours, wanted] = [[], []];
  const row = new Float64Array(k);
  for (const f of some) {
    weights.row(f, row);
    for (const r of of) {
      let sum = 0;
      for (let c = 0; c < k; c++) sum += row[c] * x[r * k + c];
      ours.push(got[r * n + f]);
      wanted.push(sum);
    }
  }
  return relativeError(ours, wanted);
}

const shapes = list('--shapes', '4096x4096,4096x14336').map((text) => text.split('x').map(Number));
const rowCounts = list('--rows', '1,8,32,512').map(Number);
const formats = [
  ...list('--beside', 'affine 4,affine 8'),
  ...list('--format', 'q4_k,q6_k,q8_0,mxfp4,nvfp4,iq4_xs'),
];
const scan = args.includes('--scan');
const scratch = {};
const jobs = [];
for (const [n, k] of shapes)
  for (const rows of rowCounts) {
    const x = normals(rows * k, 77);
    const held = {
      x: bench.upload(x),
      out: bench.buffer(rows * n * 4),
      step: bench.upload(new Uint32Array([rows, rows, rows, 0])),
    };
    const places = { xStride: k, outStride: n, outOffset: 0 };
    for (const name of formats) {
      const weight = FORMATS[name];
      if (weight === undefined)
        throw new Error(`--format ${name}: one of ${Object.keys(FORMATS).join(', ')}`);
      const weights = weightsOf(name, n, k);
      const plain = { bias: false, residual: false, norm: null, glu: null };
      const shape = { rowKind: 'tokens', rows, n, k, weight, ...places, ...plain };
      const rule = ruleForLinear(capabilities, shape);
      if (rule === null) console.log(`${n}x${k} ×${rows} ${name}: portable`);
      const choices = scan ? linearCandidates(capabilities, shape).map(({ choice }) => choice) : [rule];
      for (const choice of rule === null ? [] : choices) {
        const kernel = linearKernel(capabilities, shape, choice);
        for (const [role, size] of Object.entries(kernel.scratch ?? {}))
          scratch[role] = Math.max(align(size), scratch[role] ?? 0);
        jobs.push({
          name,
          weight,
          weights,
          shape,
          kernel,
          choice,
          rule: choice === rule || choices[0] === choice,
          held,
          x,
          out: held.out,
        });
      }
    }
  }
for (const [role, size] of Object.entries(scratch)) scratch[role] = bench.buffer(size);

// All are compiled and checked before any is timed: a GPU that idles slows down.
let wrong = 0;
const ready = [];
for (let i = 0; i < jobs.length; i += 24)
  await Promise.all(
    jobs.slice(i, i + 24).map(async (job) => {
      const { rows } = job.shape;
      job.stages = await compiledStages(bench, job.kernel, { tokens: rows, outputs: rows, sequences: rows });
      job.launchesOf = (i) =>
        job.stages.map((stage) => bench.launch(stage, { ...job.held, ...scratch, ...job.weights.at(i) }));
    }),
  );
for (const job of jobs) {
  if (left() < seconds / 3 && !args.includes('--check')) break;
  const { shape, name, choice } = job;
  const error = await check(job);
  const good = error < (choice.family === 'dp4a' ? 1.5e-2 : 3e-3);
  if (!good) wrong++;
  job.title = `${shape.n}x${shape.k} ×${shape.rows} ${name}`;
  job.said = `${good ? 'right' : 'WRONG'} (${error.toExponential(1)})`;
  if (args.includes('--check')) console.log(`${job.title}: ${job.said} · ${linearName(choice)}`);
  else ready.push(job);
}
const rates = new Map();
const best = new Map();
let warmMs = 1500;
for (const job of ready) {
  if (left() < 2) break;
  const { shape, weight, weights, name, choice, rule } = job;
  const { n, k, rows } = shape;
  const launches = words(weights.count, job.launchesOf).flat();
  const us = (await bench.time(launches, { targetUs: 3000, samples: 5, warmMs })).us * job.stages.length;
  warmMs = 40;
  const bytes = weightBytes(n, k, weight);
  const rate = bytes / us / 1000;
  const key = `${n} ${k} ${rows}`;
  if (rule) rates.set(`${key} ${name}`, rate);
  const beside = (bytes * 8) / (n * k) > 6 ? 'affine 8' : 'affine 4';
  const ratio = rate / (rates.get(`${key} ${beside}`) ?? Number.NaN);
  const line = `${job.title}: ${job.said}, ${us.toFixed(1)} µs, ${rate.toFixed(0)} GB/s, ${ratio.toFixed(2)} of ${beside} · ${linearName(choice)}${rule && scan ? ' *' : ''}`;
  if (!scan) console.log(line);
  best.set(job.title, [...(best.get(job.title) ?? []), { us, line, rule }]);
}
if (scan)
  for (const found of best.values()) {
    found.sort((a, b) => a.us - b.us);
    for (const [i, { line, rule }] of found.entries()) if (i < 6 || rule) console.log(line);
  }
console.log(wrong === 0 ? 'all right' : `${wrong} WRONG`);
process.exit(wrong === 0 ? 0 : 1);
