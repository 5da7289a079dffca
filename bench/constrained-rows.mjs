// What forms of answers cost: rows held to schemas that nobody has seen before against the same rows held to nothing, and rows held to
// nothing beside one that is held. It needs a built checkout.
//
//   node bench/constrained-rows.mjs [--model models/demo-text | --shapes qwen3-8b --quantize 4] [--device cpu]
//       [--rows 32] [--tokens 96] [--rounds 5]
//
// Each round makes new schemas, so first masks count, and takes all of them in turn. The rate is that of tokens between the moment when the last row
// has its first token and the one when the first row has its last. Prints the median of the rounds, and the ratio to the
// free rows of the same round; also of the processor's time, compiling included, which tells more where the machine does other work.
import { parseArgs } from 'node:util';
import { Engine } from '../dist/engine/engine.js';
import { schemaOf } from './held-schemas.mjs';

const { values: flags } = parseArgs({
  options: {
    model: { type: 'string', default: 'models/demo-text' },
    shapes: { type: 'string' },
    quantize: { type: 'string', default: '4' },
    vocab: { type: 'string' },
    device: { type: 'string', default: 'auto' },
    rows: { type: 'string', default: '32' },
    tokens: { type: 'string', default: '96' },
    rounds: { type: 'string', default: '5' },
  },
});
const [rows, tokens, rounds] = [flags.rows, flags.tokens, flags.rounds].map(Number);
const common = {
  ...(flags.device === 'auto' ? {} : { device: flags.device }),
  maxRows: rows,
  maxContext: 512 + tokens,
  prefixCache: false,
};
const engine =
  flags.shapes === undefined
    ? await Engine.load(flags.model, common)
    : await Engine.loadShape(flags.shapes, {
        ...common,
        quantize: Number(flags.quantize),
        standInText: true,
        ...(flags.vocab === undefined ? {} : { vocab: Number(flags.vocab) }),
      });

let seen = 0;
const PROMPT = 'The quick brown fox jumps over the lazy dog, and then it says:';

/** Tokens a second of the first `counted` rows, of which the last `held` of all have a form. */
async function rate(held, counted = rows) {
  const seed = seen * 1000;
  const before = process.cpuUsage();
  const times = await Promise.all(
    Array.from({ length: rows }, async (_, row) => {
      const form = row < rows - held ? { ignoreEos: true } : { schema: schemaOf(++seen) };
      const generation = engine.generate({
        prompt: PROMPT,
        temperature: 1,
        seed: seed + row,
        maxTokens: tokens,
        ...form,
      });
      const at = [];
      for await (const { tokenIds } of generation) for (const _ of tokenIds) at.push(performance.now());
      return at;
    }),
  );
  const from = Math.max(...times.map((at) => at[0]));
  const to = Math.min(...times.map((at) => at.at(-1)));
  const within = times
    .slice(0, counted)
    .flat()
    .filter((time) => time > from && time <= to).length;
  const { user, system } = process.cpuUsage(before);
  const made = times.reduce((sum, at) => sum + at.length, 0);
  return { rate: (1000 * within) / (to - from), work: (user + system) / 1000 / made };
}

const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];
const free = [];
const held = [];
const few = [];
const beside = [];
await rate(0);
await rate(rows);
for (let round = 0; round < rounds; round++) {
  free.push(await rate(0));
  held.push(await rate(rows));
  few.push(await rate(0, rows - 1));
  beside.push(await rate(1, rows - 1));
}
const { name } = engine.info.device;
console.log(`${flags.shapes ?? flags.model}, ${name}, ${rows} rows of ${tokens} tokens, ${rounds} rounds\n`);
console.log('| | tokens/s | to those of free rows | ms of the processor a token | to those of free rows |');
console.log('| --- | --- | --- | --- | --- |');
const line = (title, found, base) => {
  const of = (field) => median(found.map((one) => one[field]));
  const ratio = (field) => median(found.map((one, i) => one[field] / base[i][field])).toFixed(3);
  const rate = of('rate').toFixed(1);
  console.log(`| ${title} | ${rate} | ${ratio('rate')} | ${of('work').toFixed(3)} | ${ratio('work')} |`);
};
line('free rows', free, free);
line(`rows of ${rows} schemas`, held, free);
line(`${rows - 1} free rows beside one that is held`, beside, few);
await engine.close();
