// Whether two builds draw the same tokens, bit for bit, on the CPU: for changes that must not change anything.
//
//   node scripts/compare-builds.mjs DIST OTHER_DIST [--model models/demo-text] [--requests 200]
//
// The same seeded requests, of mixed sampling, run in both builds in a cache that is too small for all of them, so that rows join,
// give way and find prefixes; for f16, affine 4 and TurboQuant 3.5. Prints how many requests differ; exits with 1 if any does.
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    model: { type: 'string', default: 'models/demo-text' },
    requests: { type: 'string', default: '200' },
  },
});
if (positionals.length !== 2) throw new Error('Name the dist folders of two builds.');
const FORMATS = ['f16', 'affine4', 'turbo3.5'];
const MAX_TOKENS = 48;

/** xorshift32: the same requests every time. */
let state = 0x9e3779b9;
const random = (below) => {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) % below;
};

const SAMPLERS = [
  { temperature: 0 },
  { temperature: 1 },
  { temperature: 0.8, topK: 20, topP: 0.9 },
  { temperature: 1.2, minP: 0.05, repetitionPenalty: 1.2 },
  { temperature: 0.9, frequencyPenalty: 0.5, presencePenalty: 0.3 },
  { temperature: 1, typicalP: 0.8 },
  { temperature: 1, topNSigma: 1.5 },
  { temperature: 1, xtcProbability: 0.5, xtcThreshold: 0.1 },
  { temperature: 0.7, dryMultiplier: 0.8 },
  { temperature: 1, mirostat: 2, mirostatTau: 4 },
  { temperature: 0.6, logitBias: { 5: 2, 17: -3 }, minTokens: 1 },
  { temperature: 0, logprobs: true, topLogprobs: 3 },
];
const prefixes = [40, 100, 180].map((length) => Array.from({ length }, () => 10 + random(4000)));
const requests = Array.from({ length: Number(values.requests) }, (_, i) => ({
  prompt: [
    ...prefixes[random(prefixes.length)],
    ...Array.from({ length: 1 + random(60) }, () => 10 + random(4000)),
  ],
  maxTokens: 1 + random(MAX_TOKENS),
  seed: 1000 + i,
  ignoreEos: true,
  ...SAMPLERS[i % SAMPLERS.length],
}));

async function run(dist, kvFormat) {
  const { Engine } = await import(pathToFileURL(resolve(dist, 'engine/engine.js')).href);
  const options = { device: 'cpu', maxContext: 512, maxRows: 8, maxBatchTokens: 64, kvFormat };
  const roomy = await Engine.load(values.model, options);
  const { bytesPerToken } = roomy.info.kv;
  await roomy.close();
  // Room for 640 tokens where eight rows want some 1,500.
  const engine = await Engine.load(values.model, { ...options, kvMemory: 640 * bytesPerToken });
  const results = await Promise.all(
    requests.map((request) =>
      engine.generate(request).result.then(
        ({ tokenIds, choices }) => JSON.stringify([tokenIds, choices[0].logprobs ?? null]),
        (error) => `${error.code}: ${error.message}`,
      ),
    ),
  );
  const { preemptions, prefixCache } = await engine.stats();
  await engine.close();
  return { results, preemptions, hits: prefixCache?.hits ?? 0 };
}

let differ = 0;
for (const format of FORMATS) {
  const [one, other] = [await run(positionals[0], format), await run(positionals[1], format)];
  const wrong = requests.filter((_, i) => one.results[i] !== other.results[i]).length;
  const failed = one.results.filter((text) => !text.startsWith('[')).length;
  differ += wrong;
  console.log(
    `${format}: ${wrong} of ${requests.length} differ (${failed} refused; rows gave way ${one.preemptions} and ${other.preemptions} times, prefixes found ${one.hits} and ${other.hits} times)`,
  );
  if (failed > 0) console.log(`  ${one.results.find((text) => !text.startsWith('['))}`);
}
process.exitCode = differ === 0 ? 0 : 1;
