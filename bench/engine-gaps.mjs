// What keeps rows waiting while a long prompt is computed beside them: every time between two steps that is long, and what it holds.
//
//   node bench/engine-gaps.mjs [--shapes qwen3-0.6b] [--rows 8] [--prompt 32000] [--target-itl 100] [--over 20]
//       [--prefix-cache] [--machine fixed,row,chunk,token,depth]
//
// It is `kvant bench latency` on one thread, and looks on. With --machine no GPU is needed: steps take so many milliseconds
// (a step, a row, a chunk, a prompt token, a thousand tokens before each of those) on Dawn's null backend. Close to
// Qwen3-0.6B's on an H200: 1.1,0.04,8,0.0225,0.0013. KVANT_DIST names another build. It needs a built checkout.
//
// For each: the step that came back at its end (rows that decode, prompt tokens, tokens before those), how long before that it was
// submitted and how long that call took, objects made on the device, garbage collections of a millisecond and more,
// and the longest turn of the event loop.

import { PerformanceObserver } from 'node:perf_hooks';
import { createNullGpu } from './null-gpu.mjs';
import { args, built, option } from './options.mjs';

const { createWebGpuDevice } = await built('device/webgpu/index.js');
const { Engine } = await built('engine/engine.js');
const { measureLatency } = await built('cli/bench/latency.js');

const prompt = Number(option('--prompt', '32000'));
const rows = Number(option('--rows', '8'));
const over = Number(option('--over', '20'));
const machine = option('--machine', null)?.split(',').map(Number);

const steps = [];
const collections = [];
const turns = [];
new PerformanceObserver((list) => {
  for (const { startTime, duration } of list.getEntries())
    if (duration >= 1) collections.push({ at: startTime, ms: duration });
}).observe({ entryTypes: ['gc'] });

let busyUntil = 0;

function played(step) {
  const [fixed, row, chunk, token, depth] = machine;
  let ms = fixed + row * step.rows;
  if (step.tokens > 0) ms += chunk + token * step.tokens + depth * step.depth;
  busyUntil = Math.max(busyUntil, performance.now()) + ms;
  const end = busyUntil;
  return (ids) =>
    new Promise((resolve) => {
      const look = () => {
        const left = end - performance.now();
        if (left <= 0) resolve(ids.fill(5));
        else if (left > 3) setTimeout(look, 1);
        else setImmediate(look);
      };
      look();
    });
}

async function makeDevice() {
  const device = await createWebGpuDevice(machine ? { gpu: createNullGpu() } : {});
  const { compile } = device;
  device.compile = async (...rest) => {
    const program = await compile.apply(device, rest);
    const { submit } = program;
    program.submit = (inputs) => {
      const step = { at: performance.now(), rows: 0, tokens: 0, before: 0, depth: 0 };
      for (let s = 0; s < inputs.sequenceCount; s++) {
        const [length, position] = [inputs.seqLength[s], inputs.seqPosition[s]];
        if (length === 1) step.rows++;
        else {
          step.tokens += length;
          step.before = Math.max(step.before, position);
          step.depth += (length * (position + length / 2)) / 1000;
        }
      }
      const { created } = device;
      const ids = submit.call(program, inputs);
      step.js = performance.now() - step.at;
      step.created = device.created - created;
      steps.push(step);
      return (machine ? ids.then(played(step)) : ids).then((all) => {
        step.done = performance.now();
        return all;
      });
    };
    return program;
  };
  return { device, reason: 'looked at' };
}

const engine = await Engine.loadShape(
  option('--shapes', 'qwen3-0.6b'),
  {
    vocab: 32000,
    quantize: 4,
    device: 'webgpu',
    maxRows: rows + 1,
    maxContext: prompt + 16,
    prefixCache: args.includes('--prefix-cache'),
    targetItlMs: Number(option('--target-itl', '100')),
    worker: false,
    ...(machine ? { kvMemory: 2 ** 33 } : {}),
  },
  { makeDevice },
);
let last = performance.now();
(function turn() {
  const now = performance.now();
  if (now - last > over / 4) turns.push({ at: last, ms: now - last });
  last = now;
  setImmediate(turn);
})();
const result = await measureLatency(engine, { rows, prompt, windowMs: 2000 });
const within = (list, from, to) => list.filter(({ at, ms }) => at + ms > from && at < to);
const longest = (list) => list.reduce((most, { ms }) => Math.max(most, ms), 0).toFixed(1);
console.log(
  JSON.stringify({ device: engine.info.device.name, targetItlMs: engine.info.limits.targetItlMs, ...result }),
);
const seen = new Set();
let shown = 0;
for (const [i, step] of steps.entries()) {
  const bucket = 2 ** Math.ceil(Math.log2(step.rows + step.tokens));
  const first = !seen.has(bucket);
  seen.add(bucket);
  if (i === 0 || step.done === undefined) continue;
  const from = Math.max(steps[i - 1].done, step.at);
  const ms = step.done - steps[i - 1].done;
  if (ms < over || step.rows === 0) continue;
  shown++;
  const during = within(collections, from, step.done);
  console.log(
    `${(steps[i - 1].done / 1000).toFixed(2)} s: ${ms.toFixed(0)} ms; ${step.rows} rows, ${step.tokens} prompt tokens after ${step.before}; submitted ${(step.done - step.at).toFixed(1)} ms before, in ${step.js.toFixed(1)} ms; ${step.created} objects${first ? `; first of ${bucket} tokens` : ''}; longest turn ${longest(within(turns, steps[i - 1].done, step.done))} ms, ${during.length} collections, longest ${longest(during)} ms`,
  );
}
console.log(`${shown} of ${steps.length} steps beside rows took ${over} ms and more`);
process.exit(0);
