// The bare program of a named shape on a GPU: what a step costs and where, for models of any kind.
//
//   node bench/webgpu-model.mjs --shapes qwen3-30b-a3b [--rows 1,8,32] [--prefill 512,2048] [--bits 4] [--steps 64] [--software]
//
// Weights are random, affine in groups of 64; the vocabulary has 32,000 rows.
// The profile puts every launch into a pass of its own between two timestamps, so its sum is more than a step.

import { rowsOfStep } from './webgpu-harness.mjs';
import { canProfile, openDawn, profiled, profileLines } from './webgpu-profile.mjs';

const dist = process.env.KVANT_DIST ?? '../dist';
const load = (path) => import(new URL(`${dist}/${path}`, import.meta.url));
const { createWebGpuDevice } = await load('device/webgpu/index.js');
const { StepInputs } = await load('device/step.js');
const { hostConfig } = await load('engine/host-config.js');
const { openWeights, quantization } = await load('engine/host-load.js');
const { planCache } = await load('engine/host-cache.js');
const { slotCaches } = await load('engine/slot-caches.js');
const { loadModel } = await load('models/load.js');

const args = process.argv.slice(2);
const option = (name, fallback) => (args.includes(name) ? args[args.indexOf(name) + 1] : fallback);
const numbers = (name, fallback) => option(name, fallback).split(',').filter(Boolean).map(Number);
const software = args.includes('--software');
const steps = Number(option('--steps', software ? '4' : '64'));
const rowsList = numbers('--rows', '1,8,32');
const prefills = numbers('--prefill', '512,2048');
const VOCAB = 32000;
const CONTEXT = Math.max(1024, ...prefills) + 64;
const WARM_SECONDS = software ? 0 : 1;

const gpu = software ? undefined : openDawn();
const device = await createWebGpuDevice({
  gpu,
  allowSoftware: software,
  ...(software ? { minLanes: 4 } : {}),
});
console.log(device.info.name, device.info.features.join(' '));
for (const name of option('--shapes', 'qwen3-30b-a3b').split(',')) {
  const options = {
    quantize: Number(option('--bits', '4')),
    kvFormat: 'f16',
  };
  const started = performance.now();
  const config = hostConfig({ kind: 'shape', name, vocab: VOCAB }, options);
  const weights = await openWeights(config);
  const quantize = quantization(config);
  const model = await loadModel(weights.source, weights.definition, device, {
    ...(quantize === undefined ? {} : { quantize }),
    kvFormat: { kind: 'float', dtype: 'f16' },
    kvTokens: CONTEXT * Math.max(...rowsList),
    onProgress: () => {},
  });
  const maxRows = Math.max(...rowsList);
  const { layers: kvLayers } = planCache(
    { ...config, blockTokens: 32, maxContext: CONTEXT },
    model.layout.cache,
    device.info,
    CONTEXT,
  );
  const sizes = { slots: maxRows, context: CONTEXT, blockTokens: 32 };
  const caches = slotCaches(device, kvLayers, sizes);
  const chunk = Math.max(64, maxRows, ...prefills);
  const limits = {
    maxTokens: chunk,
    maxOutputs: maxRows,
    maxSequences: maxRows,
    maxContext: CONTEXT,
    inFlight: 2,
  };
  const program = await device.compile(model.buildGraph().graph, limits, caches);
  console.log(`${name}: load ${((performance.now() - started) / 1000).toFixed(1)} s`);

  const stepOf = (rows, length, position) =>
    rowsOfStep(new StepInputs(limits.maxTokens, limits.maxSequences, limits.maxOutputs), {
      rows,
      length,
      position,
      vocab: VOCAB,
    });
  const runCase = async (label, count, make, tokens) => {
    const pending = [];
    const go = async (i) => {
      pending.push(program.submit(make(i)));
      if (pending.length >= limits.inFlight) await pending.shift();
    };
    const warm = async (seconds) => {
      const until = performance.now() + 1000 * seconds;
      for (let i = 0; i < 3 || performance.now() < until; i++) await go(i % count);
      await Promise.all(pending.splice(0));
    };
    await warm(WARM_SECONDS);
    const t0 = performance.now();
    for (let i = 0; i < count; i++) await go(i);
    await Promise.all(pending.splice(0));
    const ms = (performance.now() - t0) / count;
    console.log(`${name} ${label}: ${((1000 * tokens) / ms).toFixed(0)} tok/s, step ${ms.toFixed(3)} ms`);
    if (!canProfile()) return;
    const profile = await profiled(
      () => program.submit(make(1)),
      () => warm(0.1),
      2,
    );
    console.log(`    ${profile.reduce((sum, { count }) => sum + count, 0)} launches`);
    console.log(profileLines(profile, 14));
  };
  for (const rows of rowsList) {
    await program.prepare(rows, rows);
    for (let r = 0; r < rows; r++) {
      const fill = stepOf(1, 64, 0);
      fill.seqSlot[0] = r;
      await program.submit(fill);
    }
    await runCase(`${rows} × decode`, steps, (i) => stepOf(rows, 1, 64 + i), rows);
  }
  for (const length of prefills)
    await runCase(`prefill ${length}`, software ? 1 : 4, () => stepOf(1, length, 0), length);
  await program.dispose();
  caches.dispose();
  await weights[Symbol.asyncDispose]?.();
}
process.exit(0);
