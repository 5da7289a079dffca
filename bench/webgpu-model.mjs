// The bare program of named shapes on a GPU: what a step costs, beside the floor, and where, for models of any kind.
//
//   node bench/webgpu-model.mjs [--shapes qwen3-30b-a3b,qwen3-8b:32/33/48/64] [--rows 1,8,32] [--prefill 4096] [--bits 4] [--steps 64]
//       [--profile all|missed|none] [--top 10] [--dense qwen3-8b] [--warm 0.6] [--json FILE] [--software]
//
// Weights are random, affine in groups of 64; the vocabulary has 32,000 rows. Contexts are of 64 tokens and more. A name may have rows of its own.
// The floor is the longer of the bytes that must be read, with the experts that so many rows touch if all are equally likely, and of the
// launches that wait for one another, by what this run measured of the device. `host` is what JavaScript takes to submit a step.
// The profile puts every launch into a pass of its own between two timestamps, so its sum is more than a step.
// A prompt of experts is told by its operations a second beside those of the dense model of the run that is nearest in size, or of `--dense`.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { args, built, option } from './options.mjs';
import { rowsOfStep } from './webgpu-harness.mjs';
import { canProfile, openDawn, profiled, profileLines } from './webgpu-profile.mjs';
import { quickly } from './webgpu-random-weights.mjs';

const { createWebGpuDevice } = await built('device/webgpu/index.js');
const { StepInputs } = await built('device/step.js');
const { hostConfig } = await built('engine/host-config.js');
const { openWeights, quantization } = await built('engine/host-load.js');
const { planCache } = await built('engine/host-cache.js');
const { slotCaches } = await built('engine/slot-caches.js');
const { loadModel } = await built('models/load.js');
const { countDecode, countModel, countPrefill } = await built('cli/bench/floor-count.js');
const { measureCeilings } = await built('cli/bench/floor-measure.js');

const list = (text) => text.split(/[,/]/).filter(Boolean).map(Number);
const software = args.includes('--software');
const steps = Number(option('--steps', software ? '4' : '64'));
const usualRows = list(option('--rows', '1,8,32'));
const prefills = list(option('--prefill', '512,2048'));
const which = option('--profile', 'all');
const top = Number(option('--top', '14'));
const jsonPath = option('--json', null);
const warmSeconds = Number(option('--warm', software ? '0' : '0.6'));
const VOCAB = 32000;
const CONTEXT = Math.max(1024, ...prefills) + 64;
/** Where rows begin to decode. */
const FILLED = 64;
/** The median of so many is told, with the least and the most of them. */
const WINDOWS = 5;
/** What the project wants: shares of the floor by rows, of a dense model's rate, and of recurrent layers in a prompt's step. */
const aimOf = (rows) => (rows < 8 ? 0.45 : 0.3);
/** Where the device could not be measured: an H100's reads and an H200's launches. */
const STATED = { readBandwidth: 3.1e12, launchSeconds: 2.6e-6, products: null };
const DENSE_AIM = 0.6;
const RECURRENT_AIM = 0.2;
const RECURRENT = /gated-delta|delta|scan|short-conv|conv|^gate/;

const results = [];
const names = option('--shapes', 'qwen3-30b-a3b').split(',');
const one = option('--one', null);
if (one === null) {
  const folder = mkdtempSync(join(tmpdir(), 'kvant-model-'));
  const file = join(folder, 'one.json');
  // A process for each: what one leaves on the GPU does not stand in the next one's way.
  const run = (shape, more) => {
    rmSync(file, { force: true });
    const own = [process.argv[1], ...args, '--one', shape, '--into', file, ...more];
    const { status, signal } = spawnSync(process.execPath, own, { stdio: 'inherit' });
    if (existsSync(file)) return JSON.parse(readFileSync(file, 'utf8'));
    console.log(`${shape || 'ceilings'}: ended with status ${status}, signal ${signal}`);
    return null;
  };
  const ceilings = run('', [])?.ceilings ?? STATED;
  for (const shape of names) {
    const { readBandwidth, launchSeconds } = ceilings;
    results.push(...(run(shape, ['--floor', `${readBandwidth},${launchSeconds}`])?.results ?? []));
  }
  rmSync(folder, { recursive: true });
  report();
  if (jsonPath !== null) writeFileSync(jsonPath, JSON.stringify({ ceilings, results }, null, 1));
  process.exit(0);
}

// Dawn ends when nobody holds its GPU object, and the process with it.
const gpu = software ? undefined : openDawn();
const device = await createWebGpuDevice({
  gpu,
  allowSoftware: software,
  ...(software ? { minLanes: 4 } : {}),
});
if (one === '') {
  console.log(device.info.name, device.info.features.join(' '));
  const ceilings = software
    ? { readBandwidth: 1e10, launchSeconds: 1e-5, products: null }
    : await measureCeilings(device, { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' }, () => {});
  const { readBandwidth, launchSeconds, products } = ceilings;
  const rate = (products?.operationsPerSecond ?? 0) / 1e12;
  console.log(
    `reads ${(readBandwidth / 1e9).toFixed(0)} GB/s, a launch ${(1e6 * launchSeconds).toFixed(2)} µs, products ${rate.toFixed(0)} TFLOP/s`,
  );
  writeFileSync(option('--into'), JSON.stringify({ ceilings }));
  process.exit(0);
}
const [readBandwidth, launchSeconds] = option('--floor').split(',').map(Number);
const [name, ownRows] = one.split(':');
await measureShape(ownRows === undefined ? usualRows : list(ownRows));
writeFileSync(option('--into'), JSON.stringify({ results }));
process.exit(0);

async function measureShape(rowsList) {
  const started = performance.now();
  const config = hostConfig(
    { kind: 'shape', name, vocab: VOCAB },
    { quantize: Number(option('--bits', '4')), kvFormat: 'f16' },
  );
  const opened = await openWeights(config);
  const quantize = quantization(config);
  const { definition } = opened;
  const counted = countModel(opened.source, definition, quantize);
  const maxRows = Math.max(...rowsList);
  const model = await loadModel(quickly(opened.source), definition, device, {
    ...(quantize === undefined ? {} : { quantize }),
    kvFormat: { kind: 'float', dtype: 'f16' },
    kvTokens: CONTEXT * maxRows,
    rotary: definition.vision !== null,
    onProgress: () => {},
  });
  const { layers, info } = planCache(
    { ...config, blockTokens: 32, maxContext: CONTEXT },
    model.layout.cache,
    device.info,
    CONTEXT,
  );
  const caches = slotCaches(device, layers, { slots: maxRows, context: CONTEXT, blockTokens: 32 });
  const limits = {
    maxTokens: Math.max(64, maxRows, ...prefills),
    maxOutputs: maxRows,
    maxSequences: maxRows,
    maxContext: CONTEXT,
    inFlight: 2,
  };
  const program = await device.compile(model.buildGraph().graph, limits, caches);
  const experts = counted.graph.nodes.some(({ op }) => op === 'experts');
  console.log(
    `\n${name}: ${(model.parameters / 1e9).toFixed(1)} B, load ${((performance.now() - started) / 1000).toFixed(1)} s`,
  );

  const stepOf = (rows, length, position) =>
    rowsOfStep(new StepInputs(limits.maxTokens, limits.maxSequences, limits.maxOutputs), {
      rows,
      length,
      position,
      vocab: VOCAB,
    });
  const runCase = async (kind, size, count, make, work) => {
    const pending = [];
    const least = kind === 'prefill' ? 1 : 3;
    let hostMs = 0;
    const go = async (i) => {
      const inputs = make(i);
      const from = performance.now();
      pending.push(program.submit(inputs));
      hostMs += performance.now() - from;
      if (pending.length >= limits.inFlight) await pending.shift();
    };
    const warm = async (seconds) => {
      const until = performance.now() + 1000 * seconds;
      for (let i = 0; i < least || performance.now() < until; i++) await go(i % count);
      await Promise.all(pending.splice(0));
    };
    await warm(warmSeconds);
    hostMs = 0;
    const windows = [];
    for (let from = 0; from < count; from += Math.ceil(count / WINDOWS)) {
      const to = Math.min(count, from + Math.ceil(count / WINDOWS));
      const t0 = performance.now();
      for (let i = from; i < to; i++) await go(i);
      await Promise.all(pending.splice(0));
      windows.push((performance.now() - t0) / (to - from));
    }
    windows.sort((a, b) => a - b);
    const ms = windows[windows.length >> 1];
    const bytesMs = (1000 * work.bytes) / readBandwidth;
    const launchesMs = 1000 * work.launches * launchSeconds;
    const result = {
      name,
      kind,
      size,
      experts,
      ms,
      windows,
      hostMs: hostMs / count,
      tokensPerSecond: (1000 * size) / ms,
      bytesMs,
      launchesMs,
      share: Math.max(bytesMs, launchesMs) / ms,
      operations: work.operations,
      rate: work.operations / ms / 1e9,
    };
    results.push(result);
    const missed = kind === 'prefill' || result.share < aimOf(size);
    console.log(line(result));
    if (!canProfile() || which === 'none' || (which === 'missed' && !missed)) return;
    const profile = await profiled(
      () => program.submit(make(1)),
      () => warm(0.1),
      2,
    );
    const launches = profile.reduce((sum, one) => sum + one.count, 0);
    const us = profile.reduce((sum, one) => sum + one.count * one.us, 0);
    const recurrent = profile
      .filter(({ label }) => RECURRENT.test(label))
      .reduce((sum, one) => sum + one.count * one.us, 0);
    Object.assign(result, { launches, profileMs: us / 1000, recurrent: recurrent / us });
    console.log(
      `    ${launches} launches, ${(us / 1000).toFixed(2)} ms in passes of their own${recurrent > 0 ? `, recurrent ${((100 * recurrent) / us).toFixed(0)} %` : ''}`,
    );
    console.log(profileLines(profile, top));
  };
  for (const rows of rowsList) {
    await program.prepare(rows, rows);
    for (let r = 0; r < rows; r++) {
      const fill = stepOf(1, FILLED, 0);
      fill.seqSlot[0] = r;
      await program.submit(fill);
    }
    const work = countDecode(counted, info, rows, FILLED + steps / 2);
    await runCase('decode', rows, steps, (i) => stepOf(rows, 1, FILLED + i), work);
  }
  for (const length of prefills) {
    const work = countPrefill(counted, 1, length, length);
    await runCase('prefill', length, software ? 1 : 3, () => stepOf(1, length, 0), work);
  }
}

function line({ name, kind, size, ms, windows, hostMs, tokensPerSecond, bytesMs, launchesMs, share, rate }) {
  const floor = `floor ${Math.max(bytesMs, launchesMs).toFixed(2)} (bytes ${bytesMs.toFixed(2)}, launches ${launchesMs.toFixed(2)}), ${(100 * share).toFixed(0)} %`;
  const told = kind === 'prefill' ? `${rate.toFixed(1)} TFLOP/s` : floor;
  return `${name} ${kind} ${size}: ${tokensPerSecond.toFixed(0)} tok/s, step ${ms.toFixed(3)} ms (${windows[0].toFixed(2)} to ${windows.at(-1).toFixed(2)}), host ${hostMs.toFixed(2)} ms, ${told}`;
}

/** One line a figure, and whether it reaches its aim. */
function report() {
  console.log('\nsummary');
  const dense = results.filter(({ kind, experts }) => kind === 'prefill' && !experts);
  const named = option('--dense', null);
  for (const one of results) {
    const said = [line(one)];
    if (one.kind === 'decode') said.push(one.share < aimOf(one.size) ? 'missed' : 'reached');
    else if (one.experts) {
      const away = (other) => Math.abs(Math.log(other.operations / one.operations));
      const peer = dense
        .filter(({ name, size }) => size === one.size && (named === null || name === named))
        .sort((a, b) => away(a) - away(b))[0];
      if (peer !== undefined) {
        one.ofDense = one.rate / peer.rate;
        const verdict = one.ofDense < DENSE_AIM ? 'missed' : 'reached';
        said.push(`${one.ofDense.toFixed(2)} of ${peer.name}'s rate`, verdict);
      }
    }
    if (one.kind === 'prefill' && one.recurrent > 0)
      said.push(
        `recurrent ${(100 * one.recurrent).toFixed(0)} % ${one.recurrent > RECURRENT_AIM ? 'missed' : 'reached'}`,
      );
    console.log(said.join('; '));
  }
}
