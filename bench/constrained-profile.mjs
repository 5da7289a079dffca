// Where a step goes in which rows are held to schemas: beside the same rows held to nothing, to any text (halves, masks and uploads, but no
// grammar to speak of), and one held row beside free ones. It needs a built checkout.
//
//   node bench/constrained-profile.mjs [--shapes qwen3-8b] [--rows 32] [--tokens 96] [--rounds 3] [--only free,held] [--null 5.7]
//
// The engine runs on this thread. On a GPU each pass stands between two timestamps: what passes take, and how long the GPU does nothing
// between one and the next. The host's part is what a step spends in masks, in their upload and in submitting each half. With --null no
// GPU is needed: Dawn's null backend, and a forward pass of so many milliseconds.
import { parseArgs } from 'node:util';
import { constrainedDraws } from './constrained-device.mjs';
import { schemaOf } from './held-schemas.mjs';
import { createNullGpu } from './null-gpu.mjs';
import { built } from './options.mjs';

const { values: flags } = parseArgs({
  options: {
    shapes: { type: 'string', default: 'qwen3-8b' },
    rows: { type: 'string', default: '32' },
    tokens: { type: 'string', default: '96' },
    rounds: { type: 'string', default: '3' },
    only: { type: 'string' },
    null: { type: 'string' },
    model: { type: 'string' },
    software: { type: 'boolean', default: false },
  },
});
const [rows, tokens, rounds] = [flags.rows, flags.tokens, flags.rounds].map(Number);
const onNull = flags.null !== undefined;
const profile = onNull ? null : await import('./webgpu-profile.mjs');
// Kept: Dawn ends with it.
const gpu = onNull ? createNullGpu() : flags.software ? undefined : profile.openDawn();
const { createWebGpuDevice } = await built('device/webgpu/index.js');
const { Engine } = await built('engine/engine.js');
const { GrammarMasks } = await built('grammar/masks.js');
const { Grammars } = await built('engine/grammars.js');

/** What happened since it was begun anew. */
let log = { steps: [], passes: [], maskMs: [], uploads: 0, uploadMs: 0 };
let part = null;
const MOST_PASSES = 2048;
let queries = null;

if (!onNull)
  profile.makePasses((encoder, begin) => {
    const at = log.passes.length;
    if (part === null || queries === null || at >= MOST_PASSES) return undefined;
    log.passes.push({ part, number: log.steps.length });
    return begin.call(encoder, {
      timestampWrites: {
        querySet: queries,
        beginningOfPassWriteIndex: 2 * at,
        endOfPassWriteIndex: 2 * at + 1,
      },
    });
  });

const { mask } = GrammarMasks.prototype;
GrammarMasks.prototype.mask = function (...rest) {
  const from = performance.now();
  const bits = mask.apply(this, rest);
  log.maskMs.push(performance.now() - from);
  return bits;
};

/** No tokens are forced while it is false. */
let takesRuns = true;
const { constrain } = Grammars.prototype;
Grammars.prototype.constrain = function (grammar, continuation, mayRun) {
  return constrain.call(this, grammar, continuation, mayRun && takesRuns);
};

async function makeDevice() {
  const device = await createWebGpuDevice({
    gpu,
    ...(flags.software ? { allowSoftware: true, minLanes: 4 } : {}),
  });
  const { compile } = device;
  device.compile = async (...rest) => {
    const program = await compile.apply(device, rest);
    const played = onNull ? constrainedDraws({ vocab: 151936, forwardMs: Number(flags.null) }) : null;
    const { sampler } = program;
    if (sampler) {
      const { setMask } = sampler;
      sampler.setMask = (slot, bits) => {
        const from = performance.now();
        setMask.call(sampler, slot, bits);
        log.uploads++;
        log.uploadMs += performance.now() - from;
        played?.setMask(slot, bits);
      };
    }
    for (const name of ['submit', 'forward', 'sample']) {
      const run = program[name];
      program[name] = (inputs, ...more) => {
        const from = performance.now();
        part = name;
        const result = run.call(program, inputs, ...more);
        part = null;
        log.steps.push({ part: name, at: from, js: performance.now() - from, tokens: inputs.tokenCount });
        return played === null ? result : played[name](result, inputs);
      };
    }
    return program;
  };
  return { device, reason: 'looked at' };
}

const options = {
  device: 'webgpu',
  maxRows: rows,
  maxContext: 512 + tokens,
  prefixCache: false,
  worker: false,
  ...(onNull ? { kvMemory: 2 ** 33 } : {}),
};
const engine =
  flags.model === undefined
    ? await Engine.loadShape(flags.shapes, { ...options, quantize: 4, standInText: true }, { makeDevice })
    : await Engine.load(flags.model, options, { makeDevice });
let resolved = null;
let staging = null;
if (!onNull) {
  const device = profile.openedDevice();
  queries = device.createQuerySet({ type: 'timestamp', count: 2 * MOST_PASSES });
  const { QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
  const size = 16 * MOST_PASSES;
  resolved = device.createBuffer({ size, usage: QUERY_RESOLVE | COPY_SRC });
  staging = device.createBuffer({ size, usage: COPY_DST | MAP_READ });
}

/** `[passes]` when each began and ended, in milliseconds of the GPU. */
async function stamps(count) {
  const device = profile.openedDevice();
  const encoder = device.createCommandEncoder();
  encoder.resolveQuerySet(queries, 0, 2 * count, resolved, 0);
  encoder.copyBufferToBuffer(resolved, 0, staging, 0, 16 * count);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(1, 0, 16 * count);
  const words = new BigUint64Array(staging.getMappedRange(0, 16 * count).slice(0));
  staging.unmap();
  return Array.from({ length: count }, (_, i) => ({
    from: Number(words[2 * i] - words[0]) / 1e6,
    to: Number(words[2 * i + 1] - words[0]) / 1e6,
  }));
}

const ANY = { regex: '[\\s\\S]*' };
let seen = 0;
/** By case: what the row is held to, by its index. */
const CASES = {
  free: () => null,
  any: () => ANY,
  held: () => ({ schema: schemaOf(++seen) }),
  'held, no runs': () => ({ schema: schemaOf(++seen) }),
  again: (row) => ({ schema: schemaOf(10_000 + row) }),
  'one any': (row) => (row === rows - 1 ? ANY : null),
  one: (row) => (row === rows - 1 ? { schema: schemaOf(++seen) } : null),
  'one again': (row) => (row === rows - 1 ? { schema: schemaOf(20_000) } : null),
};
const PROMPT = 'The quick brown fox jumps over the lazy dog, and then it says:';

async function measure(name) {
  log = { steps: [], passes: [], maskMs: [], uploads: 0, uploadMs: 0 };
  takesRuns = !name.includes('no runs');
  const cpu = process.cpuUsage();
  const times = await Promise.all(
    Array.from({ length: rows }, async (_, row) => {
      const form = CASES[name](row) ?? { ignoreEos: true };
      const generation = engine.generate({
        prompt: PROMPT,
        temperature: 1,
        seed: row,
        maxTokens: tokens,
        ...form,
      });
      const at = [];
      for await (const { tokenIds } of generation) for (const _ of tokenIds) at.push(performance.now());
      return at;
    }),
  );
  const { user, system } = process.cpuUsage(cpu);
  const from = Math.max(...times.map((at) => at[0]));
  const to = Math.min(...times.map((at) => at.at(-1)));
  const counted = name.startsWith('one') ? times.slice(0, rows - 1) : times;
  const made = counted.flat().filter((at) => at > from && at <= to).length;
  const { steps, passes, maskMs, uploads, uploadMs } = log;
  const all = onNull ? [] : await stamps(passes.length);
  const within = steps.filter(({ at }) => at > from && at <= to);
  const begun = within.filter((step) => step.part !== 'sample');
  const wide = begun.filter((step) => step.tokens > rows);
  const row = {
    name,
    rate: (1000 * made) / (to - from),
    stepMs: (to - from) / begun.length,
    perStep: made / begun.length,
    wide: wide.length,
    cpuMs: (user + system) / 1000 / steps.filter((step) => step.part !== 'sample').length,
    maskMs: maskMs.reduce((a, b) => a + b, 0) / steps.filter((step) => step.part !== 'sample').length,
    maskP99: maskMs.toSorted((a, b) => a - b)[Math.floor(0.99 * maskMs.length)] ?? 0,
    uploadMs: uploads === 0 ? 0 : uploadMs / begun.length,
  };
  for (const one of ['submit', 'forward', 'sample']) {
    const js = within.filter((step) => step.part === one).map((step) => step.js);
    row[`${one} js`] = js.length === 0 ? 0 : median(js);
  }
  if (all.length > 0) {
    const gaps = { 'to forward': [], 'to sample': [], 'to submit': [] };
    const took = { submit: [], forward: [], sample: [], wide: [] };
    passes.forEach(({ part: kind, number }, i) => {
      const step = steps[number];
      if (step === undefined || step.at <= from || step.at > to) return;
      took[kind !== 'sample' && step.tokens > rows ? 'wide' : kind].push(all[i].to - all[i].from);
      if (i > 0) gaps[`to ${kind}`].push(all[i].from - all[i - 1].to);
    });
    for (const [kind, list] of Object.entries(took)) if (list.length > 0) row[`gpu ${kind}`] = median(list);
    for (const [kind, list] of Object.entries(took))
      if (list.length > 0) row[`gpu ${kind} mean`] = mean(list);
    for (const [kind, list] of Object.entries(gaps)) if (list.length > 0) row[`idle ${kind}`] = mean(list);
  }
  return row;
}
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;

const cases = flags.only?.split(',') ?? Object.keys(CASES);
for (const name of cases) await measure(name);
const found = Object.fromEntries(cases.map((name) => [name, []]));
for (let round = 0; round < rounds; round++) for (const name of cases) found[name].push(await measure(name));
console.log(
  `${flags.shapes}, ${engine.info.device.name}, ${rows} rows of ${tokens} tokens, ${rounds} rounds; ms a step\n`,
);
for (const name of cases) {
  const keys = Object.keys(found[name][0]).filter((key) => key !== 'name');
  const figures = keys.map(
    (key) => `${key} ${median(found[name].map((row) => row[key])).toFixed(key === 'rate' ? 0 : 3)}`,
  );
  console.log(`${name}: ${figures.join(', ')}`);
}
await engine.close();
process.exit(0);
