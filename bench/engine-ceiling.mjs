// What the engine costs beside the device: CPU time of a step by rows, on a device that computes nothing and answers at once.
//
//   node bench/engine-ceiling.mjs [--rows 1,8,32,64] [--tokens 4000] [--rounds 5] [--prefix-cache]
//
// Planning, filling, submitting, retiring, detokenising and handing tokens to their readers, all on one thread, hot. What posting
// between threads costs comes on top: bench/http-ceiling.mjs has it. Prints the least of the rounds.
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Engine } from '../dist/engine/engine.js';
import { instantDevice } from './instant-device.mjs';

const { values: flags } = parseArgs({
  options: {
    rows: { type: 'string', default: '1,8,32,64' },
    tokens: { type: 'string', default: '4000' },
    rounds: { type: 'string', default: '5' },
    'prefix-cache': { type: 'boolean', default: false },
  },
});
const [tokens, rounds] = [flags.tokens, flags.rounds].map(Number);
const model = fileURLToPath(new URL('../models/demo-text', import.meta.url));

for (const rows of flags.rows.split(',').map(Number)) {
  const engine = await Engine.load(
    model,
    { worker: false, maxRows: rows, maxContext: tokens + 64, prefixCache: flags['prefix-cache'] },
    { makeDevice: async () => ({ device: instantDevice(), reason: 'a benchmark' }) },
  );
  let least = Number.POSITIVE_INFINITY;
  // The first is for the compilers.
  for (let round = 0; round <= rounds; round++) {
    const { steps } = await engine.stats();
    const before = process.cpuUsage();
    await Promise.all(
      Array.from({ length: rows }, (_, row) =>
        engine.generate({
          prompt: [300 + row + 64 * round, 5, 6, 7],
          temperature: 0,
          maxTokens: tokens,
          ignoreEos: true,
        }),
      ).map((generation) => generation.result),
    );
    const { user, system } = process.cpuUsage(before);
    const each = (user + system) / ((await engine.stats()).steps - steps);
    if (round > 0) least = Math.min(least, each);
  }
  console.log(`${rows} rows: ${least.toFixed(2)} µs a step, ${(least / rows).toFixed(2)} a row`);
  await engine.close();
}
