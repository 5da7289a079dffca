// Pictures beside rows that decode, on a GPU: what rows keep of their rate, how long they wait, and what a picture that is known costs.
//
//   node bench/webgpu-pictures.mjs [--shapes qwen2.5-vl-7b] [--rows 8] [--patches 72x72] [--large 256x256] [--seconds 8]
//       [--per-second 1] [--repeats 9] [--target-itl 100] [--only hit,stream,large] [--device webgpu]
//
// Weights are random, of 4 bits, those of the tower halves. Pictures come as patches: reading and resizing them is on threads of the caller's
// side. Each is another one, but for `hit`, which asks for one picture again beside text of as many tokens. `large`: the default bound of
// Qwen's processors is 256 × 256 patches, which a picture of 16 MP is resized to. `--shapes` may be the folder of a model. It needs a built
// checkout.

import { readFile } from 'node:fs/promises';
import { BroadcastChannel } from 'node:worker_threads';
import { args, built, option } from './options.mjs';

const { loadEngine, loadShape } = await built('engine/load-engine.js');
const { GenerationStream } = await built('engine/generation.js');
const { epochNow } = await built('engine/yield.js');
const { resolveSampling } = await built('sampling/params.js');
const { tokenRules } = await built('sampling/token-rules.js');
const { parseModelConfig } = await built('models/families.js');
const { shapeFields } = await built('models/shapes.js');
const { besideRates } = await built('cli/bench/latency.js');

const shapes = option('--shapes', 'qwen2.5-vl-7b');
const rows = Number(option('--rows', '8'));
const repeats = Number(option('--repeats', '9'));
const only = option('--only', 'hit,stream,large').split(',');
const gridOf = (text) => {
  const [down, across] = text.split('x').map(Number);
  return { rows: down, cols: across };
};
const usual = gridOf(option('--patches', '72x72'));
const large = gridOf(option('--large', '256x256'));
const vocab = Number(option('--vocab', '32000'));
/** Tokens of text before a picture, and behind it. */
const TEXT = 32;

const isFolder = shapes.includes('/');
const fields = isFolder
  ? JSON.parse(await readFile(`${shapes}/config.json`, 'utf8'))
  : shapeFields(shapes, { vocab });
const { tower } = parseModelConfig(fields, shapes).vision;
const tokensOf = (grid) => (grid.rows * grid.cols) / tower.merged;
const biggest = only.includes('large') ? large : usual;
const rowBytes = 4 * tower.width * (1 + tower.addedLevels);
const options = {
  device: option('--device', 'webgpu'),
  maxRows: rows + 8,
  maxContext: Number(option('--context', String(tokensOf(biggest) + 2048))),
  prefixCache: false,
  imageCacheBytes: rowBytes * (tokensOf(biggest) + 4 * tokensOf(usual)),
  ...(args.includes('--target-itl') ? { targetItlMs: Number(option('--target-itl')) } : {}),
};
/** Pieces of work for pictures, told by the engine's thread: epoch milliseconds. */
const pieces = [];
const channel = new BroadcastChannel('kvant pieces');
channel.onmessage = ({ data }) => pieces.push(data);
const internals = { workerScript: new URL('./pictures-worker.mjs', import.meta.url) };
const loaded = isFolder
  ? await loadEngine(shapes, options, internals)
  : await loadShape(shapes, { ...options, vocab, quantize: 4 }, internals);
const { client, text, info } = loaded;
console.log(`${info.device.name}, ${shapes}, target of a step ${info.limits.targetItlMs} ms`);

let seed = 1;
function picture(grid, first) {
  const length = grid.rows * grid.cols * tower.patchValues;
  const patches = new Float32Array(new SharedArrayBuffer(length * 4));
  const own = seed++;
  for (let i = 0; i < length; i++) patches[i] = (((i + own) * 7919) % 1000) / 500 - 1;
  const digest = Uint32Array.from({ length: 8 }, (_, i) => Math.imul(own * 8 + i, 0x9e3779b1));
  return { digest, grid, patches, first, tokens: tokensOf(grid) };
}

let asked = 0;
/** A request whose tokens are timed as they come. */
function ask({ tokens, pictures, maxTokens }) {
  const id = client.nextId();
  const sampling = resolveSampling({ temperature: 0, ignoreEos: true, maxTokens, seed: 1 });
  const stream = new GenerationStream({
    requestId: `bench-${id}`,
    promptTokenIds: [],
    seed: 1,
    choices: 1,
    receivedAt: epochNow(),
    signal: undefined,
    onCancel: () => client.cancel(id),
  });
  const row = asked++;
  const prompt = Int32Array.from(
    { length: tokens },
    (_, i) => (row * 131 + i * 7919 + 17) % (info.model.vocabSize - 1),
  );
  const times = [];
  const sent = performance.now();
  client.add(
    {
      ...{ id, prompt, sampling, rules: tokenRules(sampling, text.words), continuation: true },
      place: { priority: 0, share: '', startWithinMs: 600_000 },
      receivedAt: epochNow(),
      ...(pictures === undefined ? {} : { pictures }),
    },
    stream,
  );
  const done = (async () => {
    for await (const delta of stream) {
      const now = performance.now();
      for (const _ of delta.tokenIds) times.push(now);
      if (delta.error !== undefined) throw delta.error;
    }
  })();
  const stop = async () => {
    stream.cancel();
    await done;
  };
  return { times, sent, done, stop };
}
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
async function until(holds, of) {
  while (!holds()) {
    const ended = await Promise.race([of.done.then(() => true), pause(1)]);
    if (ended === true && !holds()) throw new Error('a stream ended too soon');
  }
}
const withPicture = (grid, made = picture(grid, TEXT)) => ({
  tokens: TEXT * 2 + tokensOf(grid),
  pictures: [made],
  maxTokens: 1,
});
async function firstToken(request) {
  const one = ask(request);
  await one.done;
  return one.times[0] - one.sent;
}
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const most = info.limits.maxContext - 16;
const decode = () => Array.from({ length: rows }, () => ask({ tokens: 16, maxTokens: most }));
const timesOf = (streams) => streams.map(({ times }) => times);
const stopAll = (streams) => Promise.all(streams.map((stream) => stream.stop()));
/** Sequences that grow get slower by themselves: so the same tokens again, with nothing beside them. */
async function alone(streams) {
  const again = decode();
  await Promise.all(
    again.map((stream, row) => until(() => stream.times.length >= streams[row].times.length, stream)),
  );
  await stopAll(again);
  return again;
}
/** Times between tokens of all rows in a window, longest first, with when they began. */
function gapsOf(streams, from, to) {
  const gaps = [];
  for (const { times } of streams)
    for (let i = 1; i < times.length; i++)
      if (times[i] > from && times[i - 1] < to)
        gaps.push({ ms: times[i] - times[i - 1], at: times[i - 1] - from });
  return gaps.sort((a, b) => b.ms - a.ms);
}
/** What of pictures went on in the longest waits. The token before one was told when the step behind it was under way already. */
function tellWaits(gaps, from, pace) {
  const told = [];
  for (const { ms, at } of gaps) {
    if (told.length === 4) break;
    if (told.some((other) => Math.abs(other - at) < ms)) continue;
    told.push(at);
    const began = performance.timeOrigin + from + at;
    const there = pieces
      .filter((piece) => piece.at + piece.ms > began - pace && piece.at < began + ms)
      .sort((a, b) => b.ms - a.ms)
      .slice(0, 5)
      .map((piece) => `${piece.what} ${(piece.at - began).toFixed(1)} + ${piece.ms.toFixed(1)}`);
    console.log(
      `      ${ms.toFixed(1)} ms at ${at.toFixed(0)}: ${there.join('; ') || 'no work for pictures: a chunk of a prompt'}`,
    );
  }
}
const line = (gaps) => {
  const ms = gaps.map((gap) => gap.ms);
  const at = (share) => (ms[Math.floor(ms.length * share)] ?? Number.NaN).toFixed(1);
  return `median ${at(0.5)} ms, 99th percentile ${at(0.01)}, longest ${at(0)} (at ${gaps[0]?.at.toFixed(0)} ms)`;
};

// Once for the compilers, and for the engine to learn what steps and pictures cost.
for (let i = 0; i < 3; i++) await firstToken(withPicture(usual));
for (let i = 0; i < 2; i++) await firstToken({ tokens: TEXT * 2 + tokensOf(usual), maxTokens: 1 });

if (only.includes('hit')) {
  const known = picture(usual, TEXT);
  const fresh = [];
  for (let i = 0; i < 3; i++) fresh.push(await firstToken(withPicture(usual)));
  await firstToken(withPicture(usual, known));
  const [hits, texts] = [[], []];
  for (let i = 0; i < repeats; i++) {
    hits.push(await firstToken(withPicture(usual, known)));
    texts.push(await firstToken({ tokens: TEXT * 2 + tokensOf(usual), maxTokens: 1 }));
  }
  console.log(
    `first token of ${TEXT * 2 + tokensOf(usual)} tokens: text ${median(texts).toFixed(1)} ms, with a picture that is known ` +
      `${median(hits).toFixed(1)}, ratio ${(median(hits) / median(texts)).toFixed(3)}; a new picture ${median(fresh).toFixed(1)}`,
  );
}

if (only.includes('stream')) {
  const seconds = Number(option('--seconds', '8'));
  const every = 1000 / Number(option('--per-second', '1'));
  const made = Array.from({ length: Math.floor((seconds * 1000) / every) }, () => withPicture(usual));
  const streams = decode();
  await Promise.all(streams.map((stream) => until(() => stream.times.length >= 16, stream)));
  await pause(500);
  const sent = performance.now();
  const firsts = await Promise.all(
    made.map(async (request, i) => {
      await pause(i * every);
      return firstToken(request);
    }),
  );
  await pause(Math.max(0, sent + made.length * every - performance.now()));
  const end = performance.now();
  await stopAll(streams);
  const again = await alone(streams);
  const result = besideRates(timesOf(streams), timesOf(again), sent, end);
  console.log(
    `${rows} rows beside ${made.length} pictures of ${usual.rows} × ${usual.cols} patches in ${((end - sent) / 1000).toFixed(1)} s: ` +
      `${result.rowsBeside.toFixed(0)} tok/s, alone ${result.rowsAlone.toFixed(0)}, kept ${result.rateKept.toFixed(3)}; ` +
      `first tokens median ${median(firsts).toFixed(0)} ms`,
  );
  console.log(`    waits beside: ${line(gapsOf(streams, sent, end))}`);
  console.log(`    waits alone: ${line(gapsOf(again, again[0].times[16], Number.POSITIVE_INFINITY))}`);
}

if (only.includes('large')) {
  // Room on the device, and kernels for so many rows.
  await firstToken(withPicture(large));
  const request = withPicture(large);
  const streams = decode();
  await Promise.all(streams.map((stream) => until(() => stream.times.length >= 64, stream)));
  const before = (await client.stats()).features.encoded;
  pieces.length = 0;
  const from = performance.now();
  const one = ask(request);
  let seen = Number.NaN;
  while (Number.isNaN(seen) && one.times.length === 0) {
    if ((await client.stats()).features.encoded > before) seen = performance.now();
    else await pause(5);
  }
  await one.done;
  const end = one.times[0];
  await stopAll(streams);
  const again = await alone(streams);
  const pace = median(again.map(({ times }) => (times.at(-1) - times[16]) / (times.length - 17)));
  const [encoding, prompt] = [gapsOf(streams, from, seen), gapsOf(streams, seen, end)];
  console.log(
    `${rows} rows beside a picture of ${large.rows} × ${large.cols} patches: seen after ${(seen - from).toFixed(0)} ms, first token after ` +
      `${(end - from).toFixed(0)}; a token every ${pace.toFixed(2)} ms alone; longest wait while it was seen ` +
      `${(encoding[0].ms / pace).toFixed(2)} of that, while its prompt was computed ${(prompt[0].ms / pace).toFixed(2)}`,
  );
  console.log(`    waits while it was seen: ${line(encoding)}`);
  tellWaits(encoding, from, pace);
  console.log(
    `    waits while its prompt was computed: ${line(prompt)}; ${(prompt[0].ms / info.limits.targetItlMs).toFixed(2)} of the target`,
  );
  tellWaits(prompt, seen, pace);
  const longest = new Map();
  for (const { what, ms } of pieces) {
    const kind = what.replace(/ \d.*/, '');
    longest.set(kind, Math.max(longest.get(kind) ?? 0, ms));
  }
  console.log(
    `    longest pieces: ${[...longest].map(([what, ms]) => `${what} ${ms.toFixed(1)}`).join(', ')} ms`,
  );
}
await client.close(false);
process.exit(0);
