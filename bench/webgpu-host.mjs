// What a step costs the host on a GPU: no GPU is needed. Programs of real shapes make the launches that they would make on an
// NVIDIA H200, on Dawn's null backend (null-gpu.mjs), which runs JavaScript, the binding and Dawn's validation and
// nothing else. What a driver adds in `submit` is not in it.
//
//   node bench/webgpu-host.mjs [--shapes qwen3-0.6b,llama-8b] [--cases 1,4,8,32,c512] [--context 512] [--steps 400]
//       [--rounds 5] [--vocab 32000] [--toggles skip_validation] [--labels] [--json FILE]
//
// `c512` is a chunk of 512 tokens of one prompt. Times are CPU time of the process for a whole step (median and least of the
// rounds) and wall time of its parts (medians). KVANT_DIST names another build to compare with, in turns.

import { writeFileSync } from 'node:fs';
import { createNullGpu } from './null-gpu.mjs';
import { args, built, option } from './options.mjs';

const { createWebGpuDevice } = await built('device/webgpu/index.js');
const { StepInputs } = await built('device/step.js');
const { loadModel } = await built('models/load.js');
const { shapeModel } = await built('models/shapes.js');

const context = Number(option('--context', '512'));
const steps = Number(option('--steps', '400'));
const rounds = Number(option('--rounds', '5'));
const vocab = Number(option('--vocab', '32000'));
const toggles = option('--toggles', '').split(',').filter(Boolean);
const cases = option('--cases', '1,4,8,32,c512').split(',');

/** Weights of zeros, affine 4-bit in groups of 64: nothing reads them. */
const zeros = {
  has: () => true,
  ignore: () => {},
  unusedNames: () => [],
  vector: (name, shape) => {
    const length = shape.reduce((product, size) => product * size, 1);
    return { name, length, read: async () => new Float32Array(length) };
  },
  matrix: (name, { rows, cols }) => ({
    name,
    rows,
    cols,
    format: { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' },
    readRows: async (start, end) => {
      const groups = ((end - start) * cols) / 64;
      const metas = new Uint8Array(groups * 2);
      return { data: new Uint8Array(groups * 32), scales: metas, biases: metas };
    },
  }),
};

/** Time of the parts of a step, summed; and how often each call was made, while it is counted. */
const parts = { pack: 0, write: 0, begin: 0, encode: 0, finish: 0, submit: 0, map: 0, read: 0 };
let entered = 0;
let encoding = 0;
let counts = null;

function timed(object, name, part, before = () => {}, after = () => {}) {
  const call = object[name];
  object[name] = function (...rest) {
    const started = performance.now();
    before(started);
    const result = call.apply(this, rest);
    const now = performance.now();
    parts[part] += now - started;
    after(now);
    return result;
  };
}

function counted(type) {
  const { prototype } = globalThis[type];
  for (const name of Object.getOwnPropertyNames(prototype)) {
    const { value } = Object.getOwnPropertyDescriptor(prototype, name);
    if (typeof value !== 'function' || name === 'constructor') continue;
    prototype[name] = function (...rest) {
      if (counts !== null) {
        counts.calls[name] = (counts.calls[name] ?? 0) + 1;
        if (name === 'setPipeline') counts.pipeline = rest[0].label;
        if (name === 'dispatchWorkgroups')
          counts.launches[counts.pipeline] = (counts.launches[counts.pipeline] ?? 0) + 1;
      }
      return value.apply(this, rest);
    };
    restores.push(() => {
      prototype[name] = value;
    });
  }
}
const restores = [];

const COUNTED = ['GPUComputePassEncoder', 'GPUCommandEncoder', 'GPUQueue', 'GPUBuffer', 'GPUDevice'];

const cpu = () => {
  const { user, system } = process.cpuUsage();
  return user + system;
};
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];
const report = [];

for (const name of option('--shapes', 'qwen3-0.6b,llama-8b').split(',')) {
  let gpu;
  const device = await createWebGpuDevice({
    gpu: createNullGpu({
      toggles,
      onDevice: (made) => {
        gpu = made;
      },
    }),
  });
  const config = shapeModel(name, { vocab });
  const maxContext = context + 4096;
  const f16 = { kind: 'float', dtype: 'f16' };
  const model = await loadModel(zeros, config, device, { kvFormat: f16, maxContext });
  const rows = 32;
  const perSlot = Math.ceil(maxContext / 32);
  const pool = device.createKvPool({
    layers: model.kvLayers,
    blocks: 64,
    blockTokens: 32,
    slots: rows,
    maxBlocksPerSlot: perSlot,
  });
  const limits = { maxTokens: 2048, maxOutputs: rows, maxSequences: rows, maxContext, inFlight: 2 };
  const program = await device.compile(model.buildGraph().graph, limits, pool);

  const { queue } = gpu;
  const whole = { writeBuffer: queue.writeBuffer, submit: queue.submit };
  const hook = () => {
    timed(queue, 'writeBuffer', 'write', (now) => {
      parts.pack += now - entered;
    });
    timed(queue, 'submit', 'submit');
    for (const [type, call, part] of [
      ['GPUDevice', 'createCommandEncoder', 'begin'],
      ['GPUCommandEncoder', 'finish', 'finish'],
      ['GPUBuffer', 'mapAsync', 'map'],
      ['GPUBuffer', 'getMappedRange', 'read'],
      ['GPUBuffer', 'unmap', 'read'],
    ])
      hooked(type, call, part);
    hooked(
      'GPUCommandEncoder',
      'beginComputePass',
      'begin',
      () => {},
      (now) => {
        encoding = now;
      },
    );
    hooked('GPUComputePassEncoder', 'end', 'finish', (now) => {
      parts.encode += now - encoding;
    });
  };
  const hooked = (type, call, part, before, after) => {
    const { prototype } = globalThis[type];
    const value = prototype[call];
    timed(prototype, call, part, before, after);
    restores.push(() => {
      prototype[call] = value;
    });
  };
  const unhook = () => {
    for (const restore of restores.splice(0).reverse()) restore();
    Object.assign(queue, whole);
  };

  for (const one of cases) {
    const chunk = one.startsWith('c');
    const n = Number(one.replace('c', ''));
    const step = new StepInputs(limits.maxTokens, limits.maxSequences, limits.maxOutputs);
    const fill = (i) => {
      step.clear();
      step.tokenCount = n;
      step.sequenceCount = chunk ? 1 : n;
      step.outputCount = chunk ? 0 : n;
      for (let s = 0; s < step.sequenceCount; s++) {
        step.seqSlot[s] = s;
        step.seqStart[s] = s;
        step.seqLength[s] = chunk ? n : 1;
        step.seqPosition[s] = context + (i % 64);
        step.tokens[s] = -(s + 1);
        step.outputs[s] = s;
        step.outputSlot[s] = s;
      }
      if (chunk) step.tokens.fill(1, 0, n);
    };
    await program.prepare(n, step.outputCount);
    let last = Promise.resolve();
    const run = async (count) => {
      for (let i = 0; i < count; i++) {
        fill(i);
        entered = performance.now();
        const next = program.submit(step);
        await last;
        last = next;
      }
      await last;
    };
    await run(steps);
    const all = [];
    for (let r = 0; r < rounds; r++) {
      const from = cpu();
      await run(steps);
      all.push((cpu() - from) / steps);
    }
    hook();
    const split = [];
    for (let r = 0; r < rounds; r++) {
      for (const part of Object.keys(parts)) parts[part] = 0;
      await run(steps);
      split.push(Object.fromEntries(Object.entries(parts).map(([k, v]) => [k, (1000 * v) / steps])));
    }
    unhook();
    counts = { calls: {}, launches: {}, pipeline: '' };
    for (const type of COUNTED) counted(type);
    counted('GPUQueue');
    await run(1);
    unhook();
    const { calls, launches } = counts;
    counts = null;
    const perPart = Object.fromEntries(Object.keys(parts).map((k) => [k, median(split.map((s) => s[k]))]));
    const total = Object.values(launches).reduce((a, b) => a + b, 0);
    const row = {
      shapes: name,
      case: one,
      cpuUs: median(all),
      leastUs: Math.min(...all),
      launches: total,
      parts: perPart,
      calls,
      labels: launches,
    };
    report.push(row);
    const figures = Object.entries(perPart).map(([k, v]) => `${k} ${v.toFixed(1)}`);
    console.log(
      `${name} ${chunk ? `chunk of ${n}` : `${n} rows`} at ${context}: ${row.cpuUs.toFixed(0)} µs CPU (least ${row.leastUs.toFixed(0)}), ${total} launches, ${Object.values(calls).reduce((a, b) => a + b, 0)} calls; ${figures.join(', ')}`,
    );
    if (args.includes('--labels')) {
      console.log(
        `  ${Object.entries(calls)
          .map(([k, v]) => `${k} ${v}`)
          .join(', ')}`,
      );
      for (const [label, count] of Object.entries(launches))
        console.log(`  ${String(count).padStart(4)} × ${label}`);
    }
  }
  await program.dispose();
  pool.dispose();
}
if (option('--json', null)) writeFileSync(option('--json'), JSON.stringify(report, null, 1));
process.exit(0);
