// Attention over the KV cache on the CPU, and nothing else: K and V in every format, one layer's op over as many layers as
// a model has, sequences long since filled (with codes of random vectors).
//
//   npm run build && node bench/cpu-attend.mjs [--formats f16,f32,affine8,affine4,turbo3.5] [--contexts 8192] [--rows 4]
//     [--tokens 1] [--heads 16] [--kv-heads 8] [--dim 128] [--layers 28] [--block 16] [--threads 2] [--rounds 7]
//     [--distinct N] [--simd auto|simd128] [--precision default|reference]
//
// A format is written as in `kvFormatName` (affine4, affine8-g32, turbo3), as `turbo3.5` or `turbo2.5`, or as K/V
// (affine8/turbo4). --tokens: of each row in a step, 1 for decode, more for a prompt chunk that ends at the context.
//
// --distinct 1: every layer reads the cache of the first, so that a short context stays in the processor's caches and the
// time is that of the arithmetic.
//
// Formats take turns in every round. Prints the median time of a step over all layers, the bytes of K and V it reads in
// GB/s, and the ratio to the fastest float format of the run: by that time, and by the least CPU time of a round over all
// threads (on a busy machine the better figure with --threads 1).
import { parseArgs } from 'node:util';
import { createCpuDevice } from '../dist/device/cpu/index.js';
import { kvTokenBytes } from '../dist/device/kv.js';
import { Ops } from '../dist/device/ops.js';
import { StepInputs } from '../dist/device/step.js';

const { values: options } = parseArgs({
  options: {
    formats: { type: 'string', default: 'f16,f32,affine8,affine4,turbo3.5' },
    contexts: { type: 'string', default: '8192' },
    rows: { type: 'string', default: '4' },
    tokens: { type: 'string', default: '1' },
    heads: { type: 'string', default: '16' },
    'kv-heads': { type: 'string', default: '8' },
    dim: { type: 'string', default: '128' },
    layers: { type: 'string', default: '28' },
    distinct: { type: 'string' },
    block: { type: 'string', default: '16' },
    threads: { type: 'string', default: '2' },
    rounds: { type: 'string', default: '7' },
    simd: { type: 'string', default: 'auto' },
    precision: { type: 'string', default: 'default' },
  },
});
const number = (name) => Number(options[name]);
const list = (name) => options[name].split(',');

const heads = number('heads');
const kvHeads = number('kv-heads');
const headDim = number('dim');
const layers = number('layers');
const distinct = Number(options.distinct ?? layers);
const blockTokens = number('block');
const tokens = number('tokens');
const threads = number('threads');

function formatOf(name) {
  if (name === 'f16' || name === 'f32') return { kind: 'float', dtype: name };
  const affine = /^affine([234568])(?:-g(32|64|128))?$/.exec(name);
  if (affine) return { kind: 'affine', bits: Number(affine[1]), groupSize: Number(affine[2] ?? 64) };
  const turbo = /^turbo([2348])$/.exec(name);
  if (turbo) return { kind: 'turboquant', bits: Number(turbo[1]) };
  throw new Error(`There is no KV format "${name}".`);
}

function sides(name) {
  const half = /^turbo([23])\.5$/.exec(name);
  const [key, value] = half ? [`turbo${half[1]}`, `turbo${Number(half[1]) + 1}`] : name.split('/');
  return { key: formatOf(key), value: formatOf(value ?? key) };
}

const median = (times) => times.toSorted((a, b) => a - b)[times.length >> 1];
const gbs = (bytes, ms) => (bytes / ms / 1e6).toFixed(1);

for (const context of list('contexts').map(Number)) {
  for (const rows of list('rows').map(Number)) await measure(context, rows);
}

async function measure(context, rows) {
  const device = await createCpuDevice({ threads, simd: options.simd, precision: options.precision });
  const blocksEach = Math.ceil(context / blockTokens);
  const limits = {
    maxTokens: Math.max(rows * tokens, 512),
    maxOutputs: 1,
    maxSequences: rows,
    maxContext: context,
    inFlight: 1,
  };
  const shape = { heads, kvHeads, headDim };
  const runs = [];
  for (const name of list('formats')) {
    const { key, value } = sides(name);
    const pool = device.createKvPool({
      layers: Array.from({ length: distinct }, () => ({ kvHeads, headDim, key, value, group: 0 })),
      blocks: rows * blocksEach,
      blockTokens,
      slots: rows,
      maxBlocksPerSlot: blocksEach,
    });
    // Blocks of the sequences lie among each other, as they do where rows grow side by side.
    for (let r = 0; r < rows; r++) {
      pool.setBlocks(
        r,
        0,
        Uint32Array.from({ length: blocksEach }, (_, i) => i * rows + r),
      );
    }
    await fill(device, pool, limits, shape, rows, context);
    const ops = new Ops();
    const q = ops.input('tokens', heads * headDim);
    for (let layer = 0; layer < layers; layer++)
      ops.keep(ops.attend(q, { ...shape, layer: layer % distinct }));
    const program = await device.compile(ops.finish(), limits, pool);
    program.write(q, normals(rows * tokens * heads * headDim));
    const step = stepOf(limits, rows, tokens, context - tokens);
    const bytes =
      rows * context * layers * (kvTokenBytes(key, headDim, kvHeads) + kvTokenBytes(value, headDim, kvHeads));
    runs.push({ name, bytes, times: [], work: [], run: () => program.submit(step) });
  }
  for (let round = 0; round <= number('rounds'); round++) {
    for (const { run, times, work } of runs) {
      const cpu = process.cpuUsage();
      const started = performance.now();
      await run();
      if (round === 0) continue;
      times.push(performance.now() - started);
      work.push(process.cpuUsage(cpu).user / 1e3);
    }
  }
  const floats = runs.filter(({ name }) => name === 'f16' || name === 'f32');
  const fastest = floats.toSorted((a, b) => median(a.times) - median(b.times))[0];
  console.log(
    `${rows} rows of ${context}, ${tokens === 1 ? 'decode' : `chunks of ${tokens}`}: ${heads}/${kvHeads} heads of ${headDim}, ${layers} layers, blocks of ${blockTokens}, ${device.info.name}`,
  );
  for (const { name, bytes, times, work } of runs) {
    const ms = median(times);
    const ratio =
      fastest === undefined
        ? ''
        : `  ${(median(fastest.times) / ms).toFixed(2)} × ${fastest.name} (by CPU time ${(Math.min(...fastest.work) / Math.min(...work)).toFixed(2)})`;
    console.log(
      `  ${name.padEnd(16)} ${ms.toFixed(1).padStart(8)} ms  (best ${Math.min(...times).toFixed(1)}, cpu ${Math.min(...work).toFixed(1)})  ${gbs(bytes, ms).padStart(5)} GB/s${ratio}`,
    );
  }
  await device[Symbol.asyncDispose]();
}

/** Appends random vectors to all positions. */
async function fill(device, pool, limits, shape, rows, context) {
  const ops = new Ops();
  const qkv = ops.input('tokens', (heads + 2 * kvHeads) * headDim);
  for (let layer = 0; layer < distinct; layer++) {
    ops.keep(ops.ropeAppend(qkv, { ...shape, layer, norm: null, rope: null }));
  }
  const program = await device.compile(ops.finish(), limits, pool);
  const most = limits.maxTokens;
  program.write(qkv, normals(most * (heads + 2 * kvHeads) * headDim));
  for (let r = 0; r < rows; r++) {
    for (let at = 0; at < context; at += most) {
      await program.submit(stepOf(limits, 1, Math.min(most, context - at), at, r));
    }
  }
  await program.dispose();
}

function stepOf(limits, rows, length, position, slot = 0) {
  const step = new StepInputs(limits.maxTokens, limits.maxSequences, limits.maxOutputs);
  for (let r = 0; r < rows; r++) {
    step.seqSlot[r] = slot + r;
    step.seqStart[r] = r * length;
    step.seqLength[r] = length;
    step.seqPosition[r] = position;
  }
  step.tokenCount = rows * length;
  step.sequenceCount = rows;
  return step;
}

function normals(length) {
  const out = new Float32Array(length);
  let state = length;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 0.5) / 2 ** 32;
  };
  for (let i = 0; i < length; i++) {
    out[i] = Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
  }
  return out;
}
