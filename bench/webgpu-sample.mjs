// The sampler alone on a GPU: checks what it draws against sorting in float64, then times its launches.
//
//   node bench/webgpu-sample.mjs [--vocab 151936] [--rows 1,32] [--seconds 240] [--only check|time] [--case NAME]
//       [--steps 60] [--json FILE] [--software]
//   node bench/webgpu-sample.mjs --only time --rows 32 --case 'all different' [--kinds]
//
// The second takes some ten seconds: the launches of 32 rows as different as those of `kvant bench sampler`, beside
// greedy ones; with --kinds, also 32 rows of each of its kinds. With KVANT_DIST=../dist-old it times another build.
//
// Needs a built checkout. `gpu` is the time of the compute pass of a step between two timestamps, the median of many;
// `over greedy` is what a parameter adds. The launches of a step are then timed one by one in passes of their own, which
// makes each look longer than it is: read them against each other.

import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { args, built, option } from './options.mjs';

const load = (path) => built(`device/${path}`);
const { createWebGpuDevice } = await load('webgpu/index.js');
const { Ops } = await load('ops.js');
const { StepInputs } = await load('step.js');
const { FEATURE } = await load('sampling.js');
const { gumbelFromWord, randomWord } = await load('random.js');

const software = args.includes('--software');
const only = option('--only', null);
const wantedCase = option('--case', null);
const steps = Number(option('--steps', software ? '3' : '60'));
const V = Number(option('--vocab', software ? '5000' : '151936'));
const rowsList = option('--rows', software ? '1,4' : '1,32')
  .split(',')
  .map(Number);
const maxRows = Math.max(...rowsList);
const DRY_WINDOW = software ? 2048 : 32768;
const deadline = performance.now() + Number(option('--seconds', '240')) * 1000;
const report = { vocab: V, checks: [], cases: [] };

/** While set, passes carry timestamps: 'pass', or 'launch' for one pass a launch. */
let probe = null;
let gpuDevice = null;
// `KVANT_DAWN` names another dawn.node.
const dawn = software
  ? null
  : createRequire(import.meta.url)(process.env.KVANT_DAWN ?? `webgpu/dist/linux-${process.arch}/dawn.node`);
if (dawn !== null) {
  Object.assign(globalThis, dawn.globals);
  const requestDevice = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (...rest) {
    gpuDevice = await requestDevice.apply(this, rest);
    return gpuDevice;
  };
  const prototype = GPUCommandEncoder.prototype;
  const begin = prototype.beginComputePass;
  prototype.beginComputePass = function (...rest) {
    if (probe === null) return begin.apply(this, rest);
    const { queries, labels, resolved, mode } = probe;
    const pair = (at) => ({
      timestampWrites: { querySet: queries, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 },
    });
    const whole = mode === 'pass' ? begin.call(this, pair(0)) : null;
    let pipeline;
    let group;
    return {
      setPipeline: (p) => {
        pipeline = p;
        whole?.setPipeline(p);
      },
      setBindGroup: (i, g) => {
        group = g;
        whole?.setBindGroup(i, g);
      },
      dispatchWorkgroups: (x, y, z) => {
        labels.push(pipeline.label);
        if (whole !== null) return whole.dispatchWorkgroups(x, y, z);
        const pass = begin.call(this, pair((labels.length - 1) * 2));
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(x, y, z);
        pass.end();
      },
      end: () => {
        whole?.end();
        this.resolveQuerySet(queries, 0, mode === 'pass' ? 2 : labels.length * 2, resolved, 0);
      },
    };
  };
}
const gpu =
  dawn === null
    ? undefined
    : dawn.create([
        'enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia,disable_workgroup_init,disable_robustness',
        'disable-dawn-features=timestamp_quantization',
      ]);
const device = await createWebGpuDevice({ gpu, allowSoftware: software });
console.log(device.info.name, device.info.features.join(' '), `vocabulary ${V}`);

const limits = {
  maxTokens: maxRows,
  maxOutputs: maxRows,
  maxSequences: maxRows,
  maxContext: DRY_WINDOW + 4096,
  inFlight: 2,
};
const ops = new Ops();
const logits = ops.input('outputs', V);
ops.sample(logits);
const program = await device.compile(ops.finish(), limits, null);
const started = performance.now();
await Promise.all(rowsList.map((r) => program.prepare(r, r)));
console.log(`prepare ${(performance.now() - started).toFixed(0)} ms`);

// Logits: `flat` as a random model has them, `peaked` as a trained one: a few hundred tokens stand out.
let seed = 1;
const random = () => {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return (seed + 0.5) / 2 ** 32;
};
const normal = () => Math.sqrt(-2 * Math.log(random())) * Math.cos(2 * Math.PI * random());
const flatRow = () => Float32Array.from({ length: V }, () => 2 * normal());
const peakedRow = () => {
  const row = Float32Array.from({ length: V }, () => 2.5 * normal());
  for (let i = 0; i < 300; i++) row[Math.floor(random() ** 2 * V)] += 4 - 4 * Math.log(random());
  return row;
};
const equalRow = () => new Float32Array(V).fill(1.25);
/** As `kvant bench sampler` has them: the rows of its random weights begin anew after so many. */
const randomRow = () => {
  const row = Float32Array.from({ length: V }, () => normal());
  for (let i = 65_521; i < V; i++) row[i] = row[i - 65_521];
  return row;
};
const tiedRow = () => flatRow().map((x) => Math.round(x));

const SPEC = {
  features: 0,
  repetitionWindow: 0,
  dryWindow: 0,
  biasIds: new Uint32Array(0),
  biasValues: new Float32Array(0),
  withheld: new Uint32Array(0),
  banned: [],
  breakers: { ids: new Uint32Array(0), sequences: [] },
  mu: 0,
};
const T = 0.9;
const bias = { spec: { biasIds: Uint32Array.of(5, 77, 900), biasValues: Float32Array.of(2, -100, 1) } };
const repetition = { features: FEATURE.REPETITION, repetitionPenalty: 1.2 };
const counts = { features: FEATURE.COUNTS, frequencyPenalty: 0.5, presencePenalty: 0.3 };
const dry = { features: FEATURE.DRY, dryMultiplier: 0.8, dryLogBase: Math.log(1.75), dryAllowedLength: 2 };
const both = (...parts) => ({
  ...Object.assign({}, ...parts),
  features: parts.reduce((bits, p) => bits | (p.features ?? 0), 0),
  spec: Object.assign({}, ...parts.map((p) => p.spec ?? {})),
});
const penalties = both(repetition, counts, dry, { features: FEATURE.BIAS, ...bias });
/** Columns of SamplingInputs, `spec` beside them, `history` a length or 'equal'. */
const CASES = {
  greedy: {},
  temperature: { temperature: T },
  'top-k 40': { temperature: T, topK: 40 },
  'top-k 2000': { temperature: T, topK: 2000 },
  'top-p 0.95': { temperature: T, topP: 0.95 },
  'min-p 0.05': { temperature: T, minP: 0.05 },
  'top-k 40, top-p 0.95, min-p 0.05': { temperature: T, topK: 40, topP: 0.95, minP: 0.05 },
  repetition,
  'repetition, window 64': { ...repetition, repetitionWindow: 64, spec: { repetitionWindow: 64 } },
  'frequency + presence': counts,
  penalties,
  'penalties, top-k, top-p, min-p': { ...penalties, temperature: T, topK: 40, topP: 0.95, minP: 0.05 },
  'penalties, top-p, min-p': { ...penalties, temperature: T, topP: 0.95, minP: 0.05 },
  'dry, 512 tokens': dry,
  [`dry, ${DRY_WINDOW} equal tokens`]: { ...dry, history: 'equal' },
  'logprobs 5': { features: FEATURE.LOGPROBS, topLogprobs: 5 },
  'logprobs 20': { features: FEATURE.LOGPROBS, topLogprobs: 20 },
  'logprobs 5 of penalised': both(repetition, { features: FEATURE.LOGPROBS, topLogprobs: 5 }),
  'typical-p 0.9': { temperature: T, features: FEATURE.TYPICAL, typicalP: 0.9 },
  'top-k 40, typical-p 0.9': { temperature: T, topK: 40, features: FEATURE.TYPICAL, typicalP: 0.9 },
  'top-n-sigma 1': { temperature: T, features: FEATURE.SIGMA, topNSigma: 1 },
  'xtc 1, 0.05': { temperature: T, features: FEATURE.XTC, xtcProbability: 1, xtcThreshold: 0.05 },
  'mirostat 3': {
    temperature: T,
    features: FEATURE.MIROSTAT,
    mirostatTau: 3,
    mirostatEta: 0.1,
    spec: { mu: 6 },
  },
};
/** The rows of `kvant bench sampler`, src/cli/bench/sampler-cases.ts. */
const filters = { temperature: 0.8, topK: 50, topP: 0.95, minP: 0.02 };
const MIXED = [
  {},
  { temperature: 0.7 },
  { temperature: 0.8, topK: 40 },
  { temperature: 1, topP: 0.9 },
  { ...repetition },
  { ...counts, temperature: 0.9 },
  { ...dry, temperature: 0.6 },
  { temperature: 1, features: FEATURE.TYPICAL, typicalP: 0.9 },
  { temperature: 1.2, features: FEATURE.SIGMA, topNSigma: 1.5 },
  { temperature: 1, features: FEATURE.XTC, xtcProbability: 0.5, xtcThreshold: 0.1 },
  { temperature: 1, features: FEATURE.MIROSTAT, mirostatTau: 5, mirostatEta: 0.1, spec: { mu: 10 } },
  { features: FEATURE.BIAS, ...bias, minP: 0.05, temperature: 1 },
  { features: FEATURE.LOGPROBS, topLogprobs: 5 },
  { ...penalties, ...filters },
  { ...repetition, temperature: 0.5, repetitionWindow: 64, spec: { repetitionWindow: 64 } },
  { features: FEATURE.BIAS, ...bias, temperature: 0.9, topP: 0.8 },
];
const ALL_DIFFERENT = 'all different';
const wanted = (name) => wantedCase === null || name === wantedCase || name === 'greedy';

async function sync(slot, row) {
  if (!row.features) return 0;
  const length = row.history === 'equal' ? DRY_WINDOW : 512;
  const history = Int32Array.from({ length }, (_, i) =>
    row.history === 'equal' ? 7 : (i * 7919 + slot) % 300,
  );
  await program.sampler.sync(slot, { ...SPEC, ...row.spec, features: row.features }, history, length >> 1);
  return length;
}

const step = new StepInputs(limits.maxTokens, limits.maxSequences, limits.maxOutputs);
function fill(rows, positions) {
  step.tokenCount = rows.length;
  step.sequenceCount = rows.length;
  step.outputCount = rows.length;
  rows.forEach((row, r) => {
    step.seqSlot[r] = r;
    step.seqStart[r] = r;
    step.seqLength[r] = 1;
    step.seqPosition[r] = 0;
    step.outputs[r] = r;
    step.outputSlot[r] = r;
    step.sampling.clearRow(r);
    for (const [name, value] of Object.entries(row)) {
      if (name !== 'spec' && name !== 'history') step.sampling[name][r] = value;
    }
    step.sampling.seedLow[r] = 1 + r;
    step.sampling.position[r] = positions[r];
  });
}
function write(rows) {
  const data = new Float32Array(rows.length * V);
  rows.forEach((row, r) => {
    data.set(row, r * V);
  });
  program.write(logits, data);
}

/** Which token a row without penalties draws, by sorting, and how near the decision was. */
function expected(x, row, seedLow, position) {
  const order = Array.from({ length: V }, (_, i) => i).sort((a, b) => x[b] - x[a] || a - b);
  const best = x[order[0]];
  if (!row.temperature) return { token: order[0], margin: 1, order };
  const z = (i) => (x[i] - best) / row.temperature;
  let ids = order;
  let margin = 1;
  const cut = (list, share, total) => {
    let sum = 0;
    for (let n = 0; n < list.length; n++) {
      sum += Math.exp(z(list[n]));
      margin = Math.min(margin, Math.abs(sum / total - share) * 100);
      if (sum >= share * total) return list.slice(0, n + 1);
    }
    return list;
  };
  const mass = (list) => list.reduce((sum, i) => sum + Math.exp(z(i)), 0);
  if (row.topK) ids = ids.slice(0, row.topK);
  if (row.topP) ids = cut(ids, row.topP, mass(ids));
  if (row.minP) ids = ids.filter((i) => Math.exp(z(i)) >= row.minP);
  if (row.typicalP) {
    const total = mass(ids);
    const entropy = ids.reduce((sum, i) => sum + (Math.exp(z(i)) / total) * (Math.log(total) - z(i)), 0);
    const away = new Map(ids.map((i) => [i, Math.abs(Math.log(total) - z(i) - entropy)]));
    ids = cut(
      [...ids].sort((a, b) => away.get(a) - away.get(b) || a - b),
      row.typicalP,
      total,
    );
  }
  let token = -1;
  let most = Number.NEGATIVE_INFINITY;
  let second = most;
  for (const i of ids) {
    const noisy = z(i) + gumbelFromWord(randomWord(seedLow, 0, 0, position, i));
    if (noisy > most || (noisy === most && i < token)) [second, most, token] = [most, noisy, i];
    else if (noisy > second) second = noisy;
  }
  return { token, margin: Math.min(margin, most - second), order };
}

async function check() {
  let wrong = 0;
  let compared = 0;
  const names = Object.keys(CASES).filter(
    (n) => !/repetition|frequency|penal|dry|sigma|xtc|mirostat/.test(n),
  );
  for (const [kind, make] of [
    ['flat', flatRow],
    ['peaked', peakedRow],
    ['ties', tiedRow],
    ['equal', equalRow],
  ]) {
    const x = make();
    for (let at = 0; at < names.length; at += maxRows) {
      const rows = names.slice(at, at + maxRows).map((name) => CASES[name]);
      write(rows.map(() => x));
      for (const [slot, row] of rows.entries()) await sync(slot, row);
      fill(
        rows,
        rows.map(() => 600),
      );
      const result = await program.submit(step);
      const { ids } = result;
      rows.forEach((row, r) => {
        const want = expected(x, row, 1 + r, 600);
        const name = `${kind}: ${names[at + r]}`;
        if (want.margin > 1e-4) {
          compared++;
          if (ids[r] !== want.token) {
            wrong++;
            console.log(`WRONG ${name}: ${ids[r]} for ${want.token}, margin ${want.margin}`);
          }
        }
        if (!row.topLogprobs) return;
        const got = result.record(r);
        const total = want.order.reduce((sum, i) => sum + Math.exp(x[i] - x[want.order[0]]), 0);
        const own = x[ids[r]] - x[want.order[0]] - Math.log(total);
        const right =
          Math.abs(got.logprob - own) < 1e-4 &&
          got.rank === want.order.indexOf(ids[r]) + 1 &&
          [...got.ids].join() === want.order.slice(0, row.topLogprobs).join();
        compared++;
        if (!right) {
          wrong++;
          console.log(`WRONG ${name}: record ${JSON.stringify(got)}, log-probability ${own}`);
        }
      });
      for (const slot of rows.keys()) program.sampler.release(slot);
    }
  }
  report.checks.push({ compared, wrong });
  console.log(`checked ${compared} draws against float64: ${wrong} wrong`);
}

/** Work that keeps the GPU's clocks up between steps, which are too short for that. */
let spinning = null;
function spin() {
  if (software) return;
  if (spinning === null) {
    const code = `@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  var x = f32(id.x) * 1e-9;
  for (var i = 0u; i < 60000u; i++) { x = fma(x, 0.999, 1e-7); }
  if (x == 7.0) { out[0] = x; }
}`;
    const module = gpuDevice.createShaderModule({ code });
    const pipeline = gpuDevice.createComputePipeline({
      label: 'spin',
      layout: 'auto',
      compute: { module, entryPoint: 'main' },
    });
    const buffer = gpuDevice.createBuffer({ size: 16, usage: GPUBufferUsage.STORAGE });
    const group = gpuDevice.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: [{ binding: 0, resource: { buffer } }],
    });
    spinning = { pipeline, group };
  }
  const encoder = gpuDevice.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(spinning.pipeline);
  pass.setBindGroup(0, spinning.group);
  pass.dispatchWorkgroups(1056);
  pass.end();
  gpuDevice.queue.submit([encoder.finish()]);
}
async function warmUp(milliseconds) {
  if (software) return;
  const until = performance.now() + milliseconds;
  while (performance.now() < until) {
    for (let i = 0; i < 8; i++) spin();
    await gpuDevice.queue.onSubmittedWorkDone();
  }
}

/** The timestamps of one step. */
const SIZE = 64 * 8;
let queries = null;
let resolved = null;
let staging = null;
async function probed(mode) {
  if (queries === null) {
    queries = gpuDevice.createQuerySet({ type: 'timestamp', count: 64 });
    resolved = gpuDevice.createBuffer({
      size: SIZE,
      usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC,
    });
    staging = gpuDevice.createBuffer({
      size: SIZE,
      usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ,
    });
  }
  spin();
  probe = { queries, resolved, labels: [], mode };
  const done = program.submit(step);
  const { labels } = probe;
  probe = null;
  await done;
  const encoder = gpuDevice.createCommandEncoder();
  encoder.copyBufferToBuffer(resolved, 0, staging, 0, SIZE);
  gpuDevice.queue.submit([encoder.finish()]);
  await staging.mapAsync(1);
  const times = new BigUint64Array(staging.getMappedRange().slice(0));
  staging.unmap();
  const count = mode === 'pass' ? 1 : labels.length;
  return {
    labels,
    us: Array.from({ length: count }, (_, i) => Number(times[2 * i + 1] - times[2 * i]) / 1000),
  };
}
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

async function time(name, rows, kind, greedy) {
  const base = [];
  for (const [slot, row] of rows.entries()) base.push(await sync(slot, row));
  const at = (i) =>
    fill(
      rows,
      base.map((n) => n + i),
    );
  await warmUp(60);
  const passes = [];
  let walls = 0;
  let launches = [];
  const each = [];
  for (let i = 0; i < steps; i++) {
    at(i);
    const t = performance.now();
    if (software) await program.submit(step);
    else {
      const { labels, us } = await probed('pass');
      passes.push(us[0]);
      launches = labels;
    }
    walls += performance.now() - t;
  }
  for (let i = 0; i < 10 && !software; i++) {
    at(steps + i);
    each.push((await probed('launch')).us);
  }
  for (const slot of rows.keys()) program.sampler.release(slot);
  const us = software ? (walls / steps) * 1000 : median(passes);
  const row = { name, rows: rows.length, kind, us, launches: launches.length };
  row.each = launches.map((label, l) => ({ label, us: median(each.map((e) => e[l])) }));
  report.cases.push(row);
  const over = greedy === null ? '' : `, over greedy ${(us - greedy).toFixed(1)} µs`;
  const detail = row.each
    .map((l) => `${l.label.replace(/sample | \[.*|ith features/g, '')} ${l.us.toFixed(1)}`)
    .join(', ');
  console.log(
    `${String(rows.length).padStart(2)} rows ${kind.padEnd(6)} ${name.padEnd(34)} ${us.toFixed(1).padStart(7)} µs, ${launches.length} launches${over}  (${detail})`,
  );
  return us;
}

if (only !== 'time') await check();
if (only !== 'check') {
  await warmUp(2500);
  for (const count of rowsList) {
    for (const [kind, make] of [
      ['peaked', peakedRow],
      ['flat', flatRow],
      ['random', randomRow],
    ]) {
      write(Array.from({ length: count }, make));
      let greedy = null;
      for (const [name, row] of Object.entries(CASES)) {
        if (performance.now() > deadline) break;
        if (!wanted(name)) continue;
        if (row.history === 'equal' && count > 1) continue;
        const rows = Array.from({ length: count }, () => row);
        const us = await time(name, rows, kind, greedy);
        greedy ??= us;
      }
      if (count > 1 && wanted(ALL_DIFFERENT) && performance.now() < deadline) {
        const rows = Array.from({ length: count }, (_, r) => MIXED[r % MIXED.length]);
        await time(ALL_DIFFERENT, rows, kind, greedy);
      }
      for (const row of args.includes('--kinds') ? MIXED : []) {
        if (performance.now() > deadline) break;
        const name = JSON.stringify({ ...row, spec: undefined, seed: undefined }).replaceAll('"', '');
        const rows = Array.from({ length: count }, () => row);
        await time(name, rows, kind, greedy);
      }
    }
  }
}
if (option('--json', null)) writeFileSync(option('--json'), JSON.stringify(report, null, 1));
await program.dispose();
process.exit(report.checks.some((c) => c.wrong > 0) ? 1 : 0);
