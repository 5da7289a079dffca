// The bare program on a GPU, without engine or scheduler: what a step costs in JavaScript and on the GPU, and where.
//
//   node bench/webgpu-step.mjs [--shapes qwen3-0.6b,llama-8b] [--rows 1,8,32] [--prompt 512] [--steps 64] [--json FILE]
//       [--warm 2.5] [--prefill 0] [--short] [--software] [--toggles skip_validation]
//       [--context 20000] [--kv f16,affine8,affine4,turbo3.5] [--cold [attend|dp4a]] [--texts FILE]
//
// With `--context` rows hold so many random K and V, and nothing is prefilled; `--kv` names the formats, one after the other.
// Weights are random, affine 4-bit in groups of 64. It needs a built checkout; KVANT_DIST names another to compare with. Every case is
// preceded by so many seconds of its own steps, for clocks of a GPU that idled rise slowly. `--prefill 0` leaves the case of a
// prompt out; `--short` does too, times 24 steps and profiles one: of few rows of Llama-8B that is less than 10 s. The profile puts every launch into a
// pass of its own between two timestamps, so its sum is more than a step: read its parts against each other.
//
// `--cold` says what code that is cold costs (docs/lab/2026-11-22-where-a-step-goes.md, "Cold code"), for the labels that match: the GPU's time for whole
// steps without the launch, with a single workgroup of it, with a single one twice, and with a single one before it. `--texts`
// writes the kernels' texts by label, for bench/webgpu-code-size.mjs.

import { writeFileSync } from 'node:fs';
import { args, built, option } from './options.mjs';
import { ColdProbe } from './webgpu-cold.mjs';
import { normals, rowsOfStep } from './webgpu-harness.mjs';
import { canProfile, makePasses, openDawn, openedDevice, profiled, profileLines } from './webgpu-profile.mjs';

const load = (path) => built(`device/${path}`);
const { createWebGpuDevice } = await load('webgpu/index.js');
const { Ops } = await load('ops.js');
const { makeRopeTable } = await load('rope.js');
const { StepInputs } = await load('step.js');
const { readKvOptions } = await load('../kv/options.js');
const { planKvLayers } = await load('../kv/policy.js');

const numbers = (name, fallback) => option(name, fallback).split(',').map(Number);
const short = args.includes('--short');
const steps = Number(option('--steps', short ? '24' : '64'));
const context = Number(option('--context', '0'));
const formats = option('--kv', 'f16').split(',');
const prefill = option('--prefill', short || context > 0 ? '0' : '1') !== '0';
const prompt = Number(option('--prompt', '512'));
const software = args.includes('--software');
const warmSeconds = Number(option('--warm', software ? '0' : '2.5'));
/** Seconds of steps before each that is profiled: the one before was waited for. */
const AGAIN_SECONDS = 0.2;
const named = option('--cold', '.') ?? '.';
const cold = args.includes('--cold') ? new RegExp(named.startsWith('--') ? '.' : named) : null;
const toggles = option('--toggles', '').split(',').filter(Boolean);
const SHAPES = {
  'qwen3-0.6b': { hidden: 1024, layers: 28, heads: 16, kvHeads: 8, headDim: 128, wide: 3072, qkNorm: true },
  'llama-8b': { hidden: 4096, layers: 32, heads: 32, kvHeads: 8, headDim: 128, wide: 14336, qkNorm: false },
  tiny: { hidden: 128, layers: 2, heads: 4, kvHeads: 2, headDim: 32, wide: 256, qkNorm: true },
};
const VOCAB = software ? 512 : 32000;
const q4 = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' };

/** Random codes; scale 2⁻⁸ / √cols and a bias that centres them. */
function matrixSource(rows, cols) {
  const noise = new Uint8Array(1 << 20);
  for (let i = 0, h = 1; i < noise.length; i++) {
    h = (Math.imul(h, 1664525) + 1013904223) >>> 0;
    noise[i] = h >>> 24;
  }
  const half = (v) => {
    const e = Math.floor(Math.log2(v));
    return ((e + 15) << 10) | Math.round((v / 2 ** e - 1) * 1024);
  };
  const scale = half(0.2 / Math.sqrt(cols));
  const bias = half(1.5 / Math.sqrt(cols)) | 0x8000;
  return {
    name: `${rows}×${cols}`,
    rows,
    cols,
    format: q4,
    readRows: async (start, end) => {
      const bytes = ((end - start) * cols) / 2;
      const data = new Uint8Array(bytes);
      for (let at = 0; at < bytes; at += noise.length)
        data.set(noise.subarray(0, Math.min(noise.length, bytes - at)), at);
      const groups = ((end - start) * cols) / q4.groupSize;
      const fill = (bits) => new Uint8Array(new Uint16Array(groups).fill(bits).buffer);
      return { data, scales: fill(scale), biases: fill(bias) };
    },
  };
}
const ones = (length) => ({ name: 'norm', length, read: async () => new Float32Array(length).fill(1) });

/** A ColdProbe, with `--cold`. */
let probe = null;
makePasses((encoder, begin) => (probe?.active ? probe.pass(encoder, begin) : undefined));
/** Kernels' texts by label, with `--texts`. */
const texts = {};
const createShaderModule = GPUDevice.prototype.createShaderModule;
GPUDevice.prototype.createShaderModule = function (descriptor) {
  if (descriptor.label) texts[descriptor.label] = descriptor.code;
  return createShaderModule.call(this, descriptor);
};

const report = { cases: [] };
const gpu = software ? undefined : openDawn(toggles);
const device = await createWebGpuDevice({
  gpu,
  allowSoftware: software,
  ...(software ? { minLanes: 4 } : {}),
});
console.log(device.info.name, device.info.features.join(' '));

for (const name of option('--shapes', software ? 'tiny' : 'qwen3-0.6b,llama-8b').split(',')) {
  const s = SHAPES[name];
  const { heads, kvHeads, headDim, hidden, wide } = s;
  const rowsList = numbers('--rows', '1,8,32');
  const maxRows = Math.max(...rowsList);
  const position = context > 0 ? context : prompt;
  const maxContext = position + steps + 64;
  const started = performance.now();
  const matrix = (rows, cols) => device.loadMatrix([matrixSource(rows, cols)], { use: 'linear' });
  const layers = [];
  for (let i = 0; i < s.layers; i++)
    layers.push({
      qkv: await matrix((heads + 2 * kvHeads) * headDim, hidden),
      o: await matrix(hidden, heads * headDim),
      gateUp: await matrix(2 * wide, hidden),
      down: await matrix(hidden, wide),
      norms: [await device.loadVector(ones(hidden)), await device.loadVector(ones(hidden))],
      headNorms: [await device.loadVector(ones(headDim)), await device.loadVector(ones(headDim))],
    });
  const table = await device.loadMatrix([matrixSource(VOCAB, hidden)], { use: 'embedding' });
  const head = await matrix(VOCAB, hidden);
  const last = await device.loadVector(ones(hidden));
  const loadMs = performance.now() - started;
  const perSlot = Math.ceil(maxContext / 32);
  const shapesOfLayers = layers.map(() => ({ kvHeads, headDim, group: 0, window: null }));
  const makePool = (kvFormat) => {
    const pool = device.createKvPool({
      layers: planKvLayers(shapesOfLayers, readKvOptions({ kvFormat }), { kind: 'float', dtype: 'f16' })
        .layers,
      blocks: maxRows * perSlot,
      blockTokens: 32,
      slots: maxRows,
      maxBlocksPerSlot: perSlot,
    });
    for (let r = 0; r < maxRows; r++)
      pool.setBlocks(
        r,
        0,
        Uint32Array.from({ length: perSlot }, (_, i) => r + i * maxRows),
      );
    return pool;
  };
  const ops = new Ops();
  const rope = makeRopeTable({
    dims: headDim,
    style: 'half',
    frequencies: Float64Array.from({ length: headDim / 2 }, (_, i) => 1e6 ** ((-2 * i) / headDim)),
    attentionFactor: 1,
    maxContext,
  });
  let x = ops.embed(table);
  layers.forEach((l, layer) => {
    const shape = { layer, heads, kvHeads, headDim };
    const norm = s.qkNorm ? { q: l.headNorms[0], k: l.headNorms[1], eps: 1e-6 } : null;
    const q = ops.ropeAppend(ops.linear(ops.rmsNorm(x, l.norms[0], 1e-6), l.qkv), { ...shape, norm, rope });
    x = ops.linear(ops.attend(q, shape), l.o, x);
    const both = ops.linear(ops.rmsNorm(x, l.norms[1], 1e-6), l.gateUp);
    x = ops.linear(ops.glu(both, 'silu'), l.down, x);
  });
  ops.sample(ops.linear(ops.rmsNorm(ops.selectOutputs(x), last, 1e-6), head));
  const chunk = Math.min(2048, Math.max(prompt, maxRows));
  const limits = { maxTokens: chunk, maxOutputs: maxRows, maxSequences: maxRows, maxContext, inFlight: 2 };
  const graph = ops.finish();
  for (const kvFormat of formats) await measure(kvFormat);

  async function measure(kvFormat) {
    const pool = makePool(kvFormat);
    if (context > 0)
      await fillCache(pool, layers.length, { heads, kvHeads, headDim }, rope, maxRows, maxContext);
    let started = performance.now();
    const program = await device.compile(graph, limits, pool);
    const compileMs = performance.now() - started;
    const created = device.created;
    started = performance.now();
    const plans = [...rowsList.map((r) => [r, r]), [prompt, 0], ...(prefill ? [[prompt, 1]] : [])];
    await Promise.all(plans.map(([t, o]) => program.prepare(t, o)));
    const prepareMs = performance.now() - started;
    console.log(
      `${name}, ${kvFormat}: load ${loadMs.toFixed(0)} ms, compile ${compileMs.toFixed(0)} ms, prepare ${plans.length} plans ${prepareMs.toFixed(0)} ms, ${device.created - created} objects`,
    );

    /** A step of `rows` sequences of `length` tokens from `position`. */
    const stepOf = (rows, length, position, outputs = rows) =>
      rowsOfStep(new StepInputs(limits.maxTokens, limits.maxSequences, limits.maxOutputs), {
        rows,
        length,
        position,
        outputs,
        vocab: VOCAB,
      });

    const runCase = async (label, count, make, tokens) => {
      let js = 0;
      const pending = [];
      const go = async (i, timed) => {
        const step = make(i);
        const t = performance.now();
        pending.push(program.submit(step));
        if (timed) js += performance.now() - t;
        if (pending.length >= limits.inFlight) await pending.shift();
      };
      const warm = async (seconds) => {
        const until = performance.now() + 1000 * seconds;
        for (let i = 0; i < 4 || performance.now() < until; i++) await go(i % count, false);
        await Promise.all(pending.splice(0));
      };
      await warm(warmSeconds);
      const t0 = performance.now();
      for (let i = 0; i < count; i++) await go(i + 4, true);
      await Promise.all(pending.splice(0));
      const ms = (performance.now() - t0) / count;
      const row = {
        shapes: name,
        label,
        stepMs: ms,
        jsMs: js / count,
        tokensPerSecond: (1000 * tokens) / ms,
      };
      console.log(
        `${name} ${label}: ${row.tokensPerSecond.toFixed(0)} tok/s, step ${ms.toFixed(3)} ms, submit in JS ${row.jsMs.toFixed(3)} ms`,
      );
      if (canProfile()) {
        row.profile = await profiled(
          () => program.submit(make(4)),
          () => warm(Math.min(warmSeconds, AGAIN_SECONDS)),
          short ? 1 : 3,
        );
        console.log(profileLines(row.profile));
      }
      if (cold !== null && row.profile !== undefined) {
        probe ??= new ColdProbe(openedDevice());
        const labels = row.profile
          .map((p) => [p.label, p.count])
          .filter(([label, n]) => n > 1 && cold.test(label));
        row.cold = await probe.measure(labels, () => program.submit(make(4)));
        console.log(
          `    a step ${row.cold.stepUs.toFixed(0)} µs; of a launch, µs: in a step, one workgroup of it, one more, the launch behind one`,
        );
        for (const l of row.cold.launches)
          console.log(
            `    ${l.label.padEnd(52)} ${String(l.count).padStart(4)} × ${[l.inStep, l.one, l.again, l.behindOne].map((us) => us.toFixed(2).padStart(8)).join('')}`,
          );
      }
      report.cases.push(row);
    };

    for (const rows of rowsList) {
      for (let r = 0; r < rows && context === 0; r++) {
        const fill = stepOf(1, prompt, 0, 0);
        fill.seqSlot[0] = r;
        await program.submit(fill);
      }
      await runCase(
        `${rows} × decode at ${position} of ${kvFormat}`,
        steps,
        (i) => stepOf(rows, 1, position + i),
        rows,
      );
    }
    if (prefill) await runCase(`prefill ${prompt}`, 8, () => stepOf(1, prompt, 0, 1), prompt);
    await program.dispose();
    pool.dispose();
  }
}

/** Fills every row with random K and V, by the append kernels. */
async function fillCache(pool, layers, shape, rope, rows, context) {
  const chunk = 512;
  const ops = new Ops();
  const qkv = ops.input('tokens', (shape.heads + 2 * shape.kvHeads) * shape.headDim);
  for (let layer = 0; layer < layers; layer++) ops.ropeAppend(qkv, { layer, ...shape, norm: null, rope });
  const limits = { maxTokens: chunk, maxOutputs: 1, maxSequences: 1, maxContext: context, inFlight: 2 };
  const program = await device.compile(ops.finish(), limits, pool);
  const values = Float32Array.from(normals(chunk * qkv.cols, 5));
  const step = new StepInputs(chunk, 1, 1);
  for (let row = 0; row < rows; row++)
    for (let at = 0; at < context; at += chunk) {
      const length = Math.min(chunk, context - at);
      step.clear();
      step.tokens.fill(1, 0, length);
      step.tokenCount = length;
      step.sequenceCount = 1;
      step.seqSlot[0] = row;
      step.seqLength[0] = length;
      step.seqPosition[0] = at;
      program.write(qkv, values);
      await program.submit(step);
    }
  await program.dispose();
}

if (option('--texts', null)) writeFileSync(option('--texts'), JSON.stringify(texts));
if (option('--json', null)) writeFileSync(option('--json'), JSON.stringify(report, null, 1));
process.exit(0);
