// Prefill of one prompt on the CPU beside llama.cpp's: both stay loaded and take turns, prompt by prompt, so that what else the
// machine does meets both.
//
//   node bench/prefill-cpu.mjs --peer DIR [--shapes qwen3-0.6b] [--prompt 512] [--threads 2] [--seconds 120]
//
// DIR as for compare-cpu.mjs. Ours is timed through the engine, up to the first token; llama.cpp's is the evaluation of the
// prompt alone. Prints the least, the first quartile and the median of wall and CPU time, and the ratios theirs / ours.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { cpus } from 'node:os';
import { resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const { values: flags } = parseArgs({
  options: {
    peer: { type: 'string' },
    shapes: { type: 'string', default: 'qwen3-0.6b' },
    prompt: { type: 'string', default: '512' },
    threads: { type: 'string', default: String(cpus().length) },
    seconds: { type: 'string', default: '120' },
    side: { type: 'string' },
  },
});
if (flags.peer === undefined) {
  console.error('--peer DIR is needed: a folder with an installed node-llama-cpp and a model.gguf.');
  process.exit(2);
}
const peer = resolve(flags.peer);
const [prompt, threads, seconds] = [flags.prompt, flags.threads, flags.seconds].map(Number);
/** Another prompt every time. */
const ids = (round) => Array.from({ length: prompt }, (_, i) => 300 + ((i * 7919 + round * 31) % 20000));

if (flags.side === undefined) await control();
else await side(flags.side === 'ours' ? await ours() : await theirs());

async function control() {
  const sides = [];
  for (const name of ['ours', 'theirs']) {
    const child = fork(fileURLToPath(import.meta.url), [...process.argv.slice(2), '--side', name]);
    await once(child, 'message');
    sides.push({ name, child, wall: [], cpu: [] });
  }
  const end = Date.now() + 1000 * seconds;
  while (Date.now() < end) {
    for (const { child, wall, cpu } of sides) {
      child.send('go');
      const [took] = await once(child, 'message');
      wall.push(took.wall);
      cpu.push(took.cpu);
    }
  }
  for (const { child } of sides) child.kill();
  const at = (list, share) => list.toSorted((a, b) => a - b)[Math.floor(share * (list.length - 1))];
  const figures = ['wall', 'cpu'].flatMap((what) =>
    [
      ['least', 0],
      ['first quartile', 0.25],
      ['median', 0.5],
    ].map(([word, share]) => {
      const [mine, other] = sides.map((one) => at(one[what], share));
      return {
        figure: `${what}, ${word}`,
        'kvant, ms': Math.round(mine),
        'llama.cpp, ms': Math.round(other),
        ratio: Number((other / mine).toFixed(3)),
      };
    }),
  );
  const [{ model }] = cpus();
  console.log(
    `${flags.shapes}, prompt of ${prompt}, ${threads} threads, ${model}, Node ${process.version}, ${sides[0].wall.length} rounds`,
  );
  console.table(figures);
}

/** Answers each message with the milliseconds that one prompt took. */
async function side(one) {
  let round = 0;
  const timed = async () => {
    const tokens = ids(round++);
    const [before, started] = [process.cpuUsage(), performance.now()];
    await one(tokens);
    const wall = performance.now() - started;
    return { wall, cpu: process.cpuUsage(before).user / 1e3 };
  };
  await timed();
  process.on('message', async () => process.send(await timed()));
  process.send('ready');
}

async function ours() {
  const { Engine } = await import('../dist/index.js');
  const engine = await Engine.loadShape(flags.shapes, {
    device: 'cpu',
    threads,
    quantize: 4,
    vocab: 32000,
    maxRows: 1,
    maxContext: prompt + 128,
    prefixCache: false,
  });
  return (tokens) =>
    engine.generate({ prompt: tokens, maxTokens: 1, temperature: 0, ignoreEos: true }).result;
}

async function theirs() {
  const module = pathToFileURL(`${peer}/node_modules/node-llama-cpp/dist/index.js`).href;
  const { getLlama } = await import(module);
  const llama = await getLlama({ build: 'never', gpu: false, logLevel: 'error', maxThreads: threads });
  const model = await llama.loadModel({ modelPath: `${peer}/model.gguf` });
  const context = await model.createContext({
    contextSize: prompt + 88,
    sequences: 1,
    batchSize: prompt,
    flashAttention: true,
    threads,
  });
  const sequence = context.getSequence();
  return async (tokens) => {
    await sequence.clearHistory();
    await sequence.evaluateWithoutGeneratingNewTokens(tokens);
  };
}
