// What scheduler and engine add to what a step costs the host on a GPU: no GPU is needed. The same program in an engine and in a
// bare loop of submits, in turns, on Dawn's null backend (null-gpu.mjs) and on one thread.
//
//   node bench/engine-host.mjs [--shapes qwen3-0.6b] [--vocab 32000] [--rows 1,8,32] [--context 512] [--tokens 256] [--rounds 30]
//
// Prints CPU time of the process for a step, the least of the rounds, and how much more it is in the engine than in the turn beside it. Here the device takes no
// time, so all of it shows; on a GPU it shows only where the host is what steps wait for. Posting to another thread is not in
// it (bench/http-ceiling.mjs).
import { parseArgs } from 'node:util';
import { BareLoop } from '../dist/cli/bench/bare.js';
import { measure } from '../dist/cli/bench/cases.js';
import { createWebGpuDevice } from '../dist/device/webgpu/index.js';
import { Engine } from '../dist/engine/engine.js';
import { loadModel } from '../dist/models/load.js';
import { RandomWeights, shapeModel } from '../dist/models/shapes.js';
import { createNullGpu } from './null-gpu.mjs';

const { values: flags } = parseArgs({
  options: {
    shapes: { type: 'string', default: 'qwen3-0.6b' },
    vocab: { type: 'string', default: '32000' },
    rows: { type: 'string', default: '1,8,32' },
    context: { type: 'string', default: '512' },
    tokens: { type: 'string', default: '256' },
    rounds: { type: 'string', default: '30' },
  },
});
const [vocab, context, tokens, rounds] = [flags.vocab, flags.context, flags.tokens, flags.rounds].map(Number);
const rowsList = flags.rows.split(',').map(Number);
const kvFormat = { kind: 'float', dtype: 'f16' };

const device = await createWebGpuDevice({ gpu: createNullGpu() });
// Nothing writes what is read back: it may say that a row had no finite logits.
const compile = device.compile.bind(device);
device.compile = async (...args) => {
  const program = await compile(...args);
  const submit = program.submit.bind(program);
  program.submit = (inputs) =>
    submit(inputs).then((result) => {
      result.ids.fill(7);
      return result;
    });
  return program;
};
const engine = await Engine.loadShape(
  flags.shapes,
  {
    worker: false,
    vocab,
    quantize: 4,
    kvFormat: 'f16',
    maxRows: Math.max(...rowsList),
    maxContext: context + tokens + 64,
    prefixCache: false,
    targetItlMs: 0,
  },
  { makeDevice: async () => ({ device, reason: 'a benchmark' }) },
);
const { limits, kv } = engine.info;
const config = shapeModel(flags.shapes, { vocab });
const quantize = { bits: 4, groupSize: 64 };
const model = await loadModel(new RandomWeights(), config, device, {
  quantize,
  kvFormat,
  maxContext: limits.maxContext,
});
const bare = await BareLoop.open(
  {
    device,
    model,
    lane: ({ rows }) => ({
      pool: device.createKvPool({
        layers: model.kvLayers,
        blocks: 64,
        blockTokens: kv.blockTokens,
        slots: rows,
        maxBlocksPerSlot: Math.ceil(limits.maxContext / kv.blockTokens),
      }),
    }),
  },
  {},
  limits,
);

const cpu = () => {
  const { user, system } = process.cpuUsage();
  return user + system;
};
/** Between two lengths, so that prompts and beginnings do not count. */
const SHORT = 16;
const engineStep = async (rows) => {
  const timed = async (generate) => {
    const { steps } = await engine.stats();
    const before = cpu();
    await measure(engine, { rows, prompt: context, generate });
    return [cpu() - before, (await engine.stats()).steps - steps];
  };
  const [less, fewer] = await timed(SHORT);
  const [more, many] = await timed(SHORT + tokens);
  return (more - less) / (many - fewer);
};
const bareStep = async (rows) => {
  const before = cpu();
  await bare.decode(rows, context, tokens, 0);
  return (cpu() - before) / tokens;
};

const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];
for (const rows of rowsList) {
  const turns = [];
  for (let round = -1; round < rounds; round++) {
    const one = { engine: await engineStep(rows), bare: await bareStep(rows) };
    if (round >= 0) turns.push(one);
  }
  const least = (side) => Math.min(...turns.map((turn) => turn[side]));
  console.log(
    `${flags.shapes}, ${rows} rows at ${context}: ${least('engine').toFixed(0)} µs in the engine, ${least('bare').toFixed(0)} bare (least); ` +
      `${median(turns.map(({ engine: of, bare: without }) => of - without)).toFixed(1)} more (median of turns)`,
  );
}
process.exit(0);
