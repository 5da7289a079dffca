// Experts in host memory beside a GPU (`--cpu-experts N`): what a step costs with none, half and all of a model's layers there.
//
//   node bench/host-experts.mjs [--shapes qwen3-30b-a3b] [--layers 16] [--hosted 0,8,16] [--rows 1,8] [--prefill 512] [--threads N]
//       [--steps 24] [--json FILE] [--asleep] [--null]
//
// Random weights, affine of 4 bits in groups of 64, vocabulary of 32,000; the first `--layers` of the shape's layers. `floor` is what the experts
// that so many rows touch take to read from host memory, at the rate that as many threads read it here. Of a step, `host` is what the
// CPU computed (from submit to result); `trips` is what is left of a step beside that and beside a step of the GPU alone, for each of those
// layers. `--asleep`: threads do not wait awake between layers. `--null` takes Dawn's null backend for a GPU (null-gpu.mjs): what the host does without waiting for any GPU.

import { writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { createNullGpu } from './null-gpu.mjs';
import { args, built, option } from './options.mjs';
import { rowsOfStep } from './webgpu-harness.mjs';
import { quickly } from './webgpu-random-weights.mjs';

const { createCpuDevice } = await built('device/cpu/index.js');
const { measureReadBandwidth } = await built('device/cpu/read-bandwidth.js');
const { createWebGpuDevice } = await built('device/webgpu/index.js');
const { StepInputs } = await built('device/step.js');
const { slotCaches } = await built('engine/slot-caches.js');
const { RandomWeights, shapeFields } = await built('models/shapes.js');
const { parseModelConfig } = await built('models/families.js');
const { loadModel } = await built('models/load.js');
const { countModel, expertBytes } = await built('cli/bench/floor-count.js');

const list = (text) => text.split(',').filter(Boolean).map(Number);
const isNull = args.includes('--null');
const shape = option('--shapes', 'qwen3-30b-a3b');
const layers = Number(option('--layers', '16'));
const hosted = list(option('--hosted', `0,${layers >> 1},${layers}`));
const rowsList = list(option('--rows', '1,8'));
const prefills = list(option('--prefill', '512'));
const cores = availableParallelism();
const threads = Number(option('--threads', String(cores - (cores >> 2))));
const besideGpu = !args.includes('--asleep');
const steps = Number(option('--steps', '24'));
const VOCAB = 32_000;
// The null backend holds small rooms alone.
const FILLED = isNull ? 8 : 64;
const CONTEXT = Math.max(FILLED + 2 * steps, ...prefills) + 64;
const KV = { kind: 'float', dtype: 'f16' };

const fields = { ...shapeFields(shape, { vocab: VOCAB }) };
const text = fields.text_config ?? fields;
text.num_hidden_layers = Math.min(layers, text.num_hidden_layers);
const definition = parseModelConfig(fields, `shape ${shape}`);
const { graph } = countModel(new RandomWeights(), definition);

const readRate = await measureReadBandwidth({ threads, bytes: 1 << 30, rounds: 4 });
console.log(
  `${shape}, ${text.num_hidden_layers} layers; ${threads} threads read host memory at ${(readRate / 1e9).toFixed(0)} GB/s`,
);
const results = [];
for (const count of hosted) await measure(count);
if (option('--json', null) !== null)
  writeFileSync(option('--json'), JSON.stringify({ shape, layers, threads, readRate, results }, null, 1));
process.exit(0);

/** The device, and the time its programs take. */
function timed(cpu, clock) {
  return new Proxy(cpu, {
    get(target, name) {
      if (name !== 'compile') {
        const value = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      }
      return async (...rest) => {
        const program = await target.compile(...rest);
        return new Proxy(program, {
          get(own, key) {
            const value = Reflect.get(own, key, own);
            if (key !== 'submit') return typeof value === 'function' ? value.bind(own) : value;
            return async (...given) => {
              const from = performance.now();
              const result = await own.submit(...given);
              clock.ms += performance.now() - from;
              return result;
            };
          },
        });
      };
    },
  });
}

async function measure(count) {
  const clock = { ms: 0 };
  const host = count === 0 ? undefined : timed(await createCpuDevice({ threads, besideGpu }), clock);
  const device = await createWebGpuDevice({
    ...(host === undefined ? {} : { host }),
    ...(isNull ? { gpu: createNullGpu() } : {}),
  });
  const started = performance.now();
  const model = await loadModel(quickly(new RandomWeights()), definition, device, {
    cpuExperts: count,
    kvFormat: KV,
    kvTokens: CONTEXT * Math.max(...rowsList),
  });
  const slots = Math.max(...rowsList);
  const caches = slotCaches(device, model.kvLayers, {
    slots,
    context: CONTEXT,
    blockTokens: 32,
  });
  const limits = {
    maxTokens: Math.max(FILLED, slots, ...prefills),
    maxOutputs: slots,
    maxSequences: slots,
    maxContext: CONTEXT,
    inFlight: 2,
  };
  const program = await device.compile(model.buildGraph().graph, limits, caches);
  console.log(
    `\n${count} of ${text.num_hidden_layers} layers on ${device.info.name}'s host: ${((model.hostBytes ?? 0) / 1e9).toFixed(2)} GB there, loaded in ${((performance.now() - started) / 1000).toFixed(1)} s`,
  );
  const stepOf = (rows, length, position) =>
    rowsOfStep(new StepInputs(limits.maxTokens, slots, slots), { rows, length, position, vocab: VOCAB });
  const run = async (kind, size, repeats, make) => {
    const pending = [];
    const go = async (i) => {
      pending.push(program.submit(make(i)));
      if (pending.length >= limits.inFlight) await pending.shift();
    };
    // A GPU that idled comes to speed first.
    const warm = performance.now() + (isNull ? 0 : 500);
    for (let i = 0; i < 3 || performance.now() < warm; i++) await go(i % 3);
    await Promise.all(pending.splice(0));
    clock.ms = 0;
    const from = performance.now();
    for (let i = 0; i < repeats; i++) await go(3 + i);
    await Promise.all(pending.splice(0));
    const ms = (performance.now() - from) / repeats;
    const plain = results.find((one) => one.kind === kind && one.size === size && one.count === 0)?.ms;
    const hostMs = clock.ms / repeats;
    const bytes = (expertBytes(graph, size) * count) / text.num_hidden_layers;
    const result = {
      count,
      kind,
      size,
      ms,
      tokensPerSecond: (1000 * size) / ms,
      hostMs,
      bytes,
      floorMs: (1000 * bytes) / readRate,
      ...(plain === undefined || count === 0 ? {} : { tripMs: (ms - hostMs - plain) / count }),
    };
    results.push(result);
    const trips =
      result.tripMs === undefined ? '' : `, trips ${(1000 * result.tripMs).toFixed(0)} µs a hosted layer`;
    console.log(
      `${kind} ${size}: ${result.tokensPerSecond.toFixed(1)} tok/s, step ${ms.toFixed(2)} ms, host ${hostMs.toFixed(2)} ms, floor ${result.floorMs.toFixed(2)} ms (${(bytes / 1e6).toFixed(0)} MB)${trips}`,
    );
  };
  for (const rows of rowsList) {
    await program.prepare(rows, rows);
    for (let r = 0; r < rows; r++) {
      const fill = stepOf(1, FILLED, 0);
      fill.seqSlot[0] = r;
      await program.submit(fill);
    }
    await run('decode', rows, steps, (i) => stepOf(rows, 1, FILLED + i));
  }
  for (const length of prefills) await run('prefill', length, 3, () => stepOf(1, length, 0));
  await program.dispose();
  caches.dispose();
  await device[Symbol.asyncDispose]();
}
