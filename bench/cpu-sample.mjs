// What the sampler adds to a step on the CPU: Qwen3-0.6B shapes (its products and norms, no attention), random weights.
//
//   npm run build && node bench/cpu-sample.mjs [--threads 2] [--layers 28] [--vocab 151936] [--history 1000]
//     [--rounds 12] [--steps 4] [--case NAME,NAME] [--json FILE]
//
// One row. The cases take turns, a few steps each, round after round; `ratio` is the time of a greedy step without extras
// to that of the case, both the least of their rounds: on a busy machine others only ever add. `cpu` is the same of the
// CPU time over all threads: on a busy machine the better figure, with --threads 1.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';

const { createCpuDevice } = await import('../dist/device/cpu/index.js');
const { Ops } = await import('../dist/device/ops.js');
const { StepInputs } = await import('../dist/device/step.js');
const { FEATURE } = await import('../dist/device/sampling.js');
const { rowBytes } = await import('../dist/device/weights.js');

const { values: options } = parseArgs({
  options: {
    threads: { type: 'string', default: '2' },
    layers: { type: 'string', default: '28' },
    vocab: { type: 'string', default: '151936' },
    history: { type: 'string', default: '1000' },
    rounds: { type: 'string', default: '12' },
    steps: { type: 'string', default: '4' },
    case: { type: 'string' },
    json: { type: 'string' },
  },
});
const vocab = Number(options.vocab);
const format = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'bf16' };
const sizes = (cols) => rowBytes(cols, format);

function source(rows, cols) {
  const data = new Uint8Array(rows * sizes(cols).data);
  for (let i = 0, state = rows; i < data.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    data[i] = state >>> 24;
  }
  // Scales of 0.0115 and biases of -7.5 times that: weights about 0.
  const meta = (low, high) =>
    Uint8Array.from({ length: rows * sizes(cols).scales }, (_, i) => [low, high][i & 1]);
  const scales = meta(0x3c, 0x3c);
  const biases = meta(0xb0, 0xbd);
  return {
    name: 'random',
    rows,
    cols,
    format,
    readRows: async (start, end) => {
      const { data: a, scales: b } = sizes(cols);
      return {
        data: data.subarray(start * a, end * a),
        scales: scales.subarray(start * b, end * b),
        biases: biases.subarray(start * b, end * b),
      };
    },
  };
}

const device = await createCpuDevice({ threads: Number(options.threads) });
const matrix = async (rows, cols) => device.loadMatrix([source(rows, cols)], { use: 'linear' });
const ones = await device.loadVector({
  name: 'ones',
  length: 1024,
  read: async () => new Float32Array(1024).fill(1),
});
const ops = new Ops();
const input = ops.input('tokens', 1024);
let x = input;
for (let layer = 0; layer < Number(options.layers); layer++) {
  const qkv = ops.linear(ops.rmsNorm(x, ones, 1e-6), await matrix(4096, 1024));
  x = ops.linear(ops.glu(qkv, 'silu'), await matrix(1024, 2048), x);
  const up = ops.linear(ops.rmsNorm(x, ones, 1e-6), await matrix(6144, 1024));
  x = ops.linear(ops.glu(up, 'silu'), await matrix(1024, 3072), x);
}
ops.sample(ops.linear(ops.selectOutputs(ops.rmsNorm(x, ones, 1e-6)), await matrix(vocab, 1024)));
const limits = { maxTokens: 1, maxOutputs: 1, maxSequences: 1, maxContext: 32768, inFlight: 2 };
const program = await device.compile(ops.finish(), limits, null);
program.write(
  input,
  Float32Array.from({ length: 1024 }, (_, i) => Math.sin(i * i)),
);

const history = Int32Array.from(
  { length: Number(options.history) },
  (_, i) => (i * i * 31 + (i % 7)) % vocab,
);
const penalties = {
  features: FEATURE.REPETITION | FEATURE.COUNTS | FEATURE.DRY,
  repetitionPenalty: 1.1,
  frequencyPenalty: 0.1,
  presencePenalty: 0.2,
  dryMultiplier: 0.8,
  dryLogBase: Math.log(1.75),
  dryAllowedLength: 2,
};
const cases = {
  greedy: {},
  repetition: { features: FEATURE.REPETITION, repetitionPenalty: 1.1 },
  'frequency + presence': { features: FEATURE.COUNTS, frequencyPenalty: 0.1, presencePenalty: 0.2 },
  dry: { ...penalties, features: FEATURE.DRY },
  'all penalties': penalties,
  'all penalties, top-k, top-p, min-p': { ...penalties, temperature: 0.8, topK: 40, topP: 0.95, minP: 0.05 },
  'temperature 1': { temperature: 1 },
  'top-p 0.95': { temperature: 1, topP: 0.95 },
  'typical-p 0.9': { features: FEATURE.TYPICAL, temperature: 1, typicalP: 0.9 },
  'mirostat 2': { features: FEATURE.MIROSTAT, temperature: 1, mirostatTau: 5, mirostatEta: 0.1 },
  'top-5 logprobs': { features: FEATURE.LOGPROBS, topLogprobs: 5 },
};
const chosen = options.case?.split(',') ?? Object.keys(cases);
const none = new Uint32Array(0);
const step = new StepInputs(1, 1, 1);
step.tokenCount = 1;
step.sequenceCount = 1;
step.outputCount = 1;
step.seqLength[0] = 1;

/** Milliseconds a step, over a few: by the clock, and of CPU time. */
async function time(row) {
  const { sampling } = step;
  sampling.clearRow(0);
  for (const [field, value] of Object.entries(row)) sampling[field][0] = value;
  sampling.position[0] = history.length;
  const features = row.features ?? 0;
  if (features !== 0) {
    const lists = { biasIds: none, biasValues: new Float32Array(0), withheld: none, banned: [] };
    const breakers = { ids: none, sequences: [] };
    const spec = { features, repetitionWindow: 0, dryWindow: 0, ...lists, breakers, mu: 10 };
    await program.sampler.sync(0, spec, history, 10);
  }
  const next = async () => {
    const {
      ids: [id],
    } = await program.submit(step);
    if (id === 0xffff_ffff) throw new Error('The row was invalid.');
    sampling.position[0]++;
  };
  await next();
  const before = process.cpuUsage();
  const start = performance.now();
  for (let i = 0; i < Number(options.steps); i++) await next();
  const took = (performance.now() - start) / Number(options.steps);
  const { user, system } = process.cpuUsage(before);
  program.sampler.release(0);
  return { took, cpu: (user + system) / 1000 / Number(options.steps) };
}

const least = new Map();
const names = ['greedy', ...chosen.filter((name) => name !== 'greedy')];
for (let round = 0; round < Number(options.rounds); round++) {
  for (const name of names) {
    const { took, cpu } = await time(cases[name]);
    const known = least.get(name) ?? { took, cpu };
    least.set(name, { took: Math.min(known.took, took), cpu: Math.min(known.cpu, cpu) });
  }
}
const base = least.get('greedy');
const results = names.map((name) => {
  const { took, cpu } = least.get(name);
  return { name, ms: took, cpuMs: cpu, ratio: base.took / took, cpuRatio: base.cpu / cpu };
});
console.log(`${device.info.name}, vocabulary ${vocab}, history of ${history.length}`);
for (const { name, ms, cpuMs, ratio, cpuRatio } of results) {
  const wall = `${ms.toFixed(2).padStart(8)} ms ${ratio.toFixed(4)}`;
  console.log(`${name.padEnd(36)} ${wall}   cpu ${cpuMs.toFixed(2).padStart(8)} ms ${cpuRatio.toFixed(4)}`);
}
if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(results, null, 1)}\n`);
await device[Symbol.asyncDispose]();
