// Prefill of one prompt on the CPU beside llama.cpp's: both stay loaded and take turns, prompt by prompt, so that what else the
// machine does meets both.
//
//   node bench/prefill-cpu.mjs --peer DIR [--shapes qwen3-0.6b | --file GGUF] [--prompt 512] [--threads 2] [--seconds 120]
//
// DIR as for compare-cpu.mjs. Both run the file that is given, else as decode-cpu.mjs does. Ours is timed through the engine, up to the first token; llama.cpp's is the evaluation of the
// prompt alone. Prints the least, the first quartile and the median of wall and CPU time, and the ratios theirs / ours.
import { cpus } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import {
  answerTurns,
  machine,
  modelName,
  openOurs,
  openTheirs,
  peerFolder,
  quantile,
  startSides,
} from './beside-llama-cpp.mjs';

const { values: flags } = parseArgs({
  options: {
    peer: { type: 'string' },
    file: { type: 'string' },
    shapes: { type: 'string', default: 'qwen3-0.6b' },
    prompt: { type: 'string', default: '512' },
    threads: { type: 'string', default: String(cpus().length) },
    seconds: { type: 'string', default: '120' },
    side: { type: 'string' },
  },
});
const peer = peerFolder(flags.peer);
const [prompt, threads, seconds] = [flags.prompt, flags.threads, flags.seconds].map(Number);
/** Another prompt every time. */
const ids = (round) => Array.from({ length: prompt }, (_, i) => 300 + ((i * 7919 + round * 31) % 20000));

if (flags.side === undefined) await control();
else await side(flags.side === 'ours' ? await ours() : await theirs());

async function control() {
  const sides = await startSides(fileURLToPath(import.meta.url));
  const samples = sides.map(() => ({ wall: [], cpu: [] }));
  const end = Date.now() + 1000 * seconds;
  while (Date.now() < end) {
    for (const [i, side] of sides.entries()) {
      const took = await side.turn('go');
      samples[i].wall.push(took.wall);
      samples[i].cpu.push(took.cpu);
    }
  }
  for (const side of sides) side.stop();
  const figures = ['wall', 'cpu'].flatMap((what) =>
    [
      ['least', 0],
      ['first quartile', 0.25],
      ['median', 0.5],
    ].map(([word, share]) => {
      const [mine, other] = samples.map((one) => quantile(one[what], share));
      return {
        figure: `${what}, ${word}`,
        'kvant, ms': Math.round(mine),
        'llama.cpp, ms': Math.round(other),
        ratio: Number((other / mine).toFixed(3)),
      };
    }),
  );
  const { cpu, node } = machine();
  console.log(
    `${modelName(flags)}, prompt of ${prompt}, ${threads} threads, ${cpu}, Node ${node}, ${samples[0].wall.length} rounds`,
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
  answerTurns(timed);
}

async function ours() {
  const engine = await openOurs(flags, threads, { maxRows: 1, maxContext: prompt + 128 });
  return (tokens) =>
    engine.generate({ prompt: tokens, maxTokens: 1, temperature: 0, ignoreEos: true }).result;
}

async function theirs() {
  const model = await openTheirs(peer, threads, flags.file);
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
