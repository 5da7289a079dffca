// Decode on the CPU beside llama.cpp's: both stay loaded and take turns, some tokens at a time, so that what else the machine does
// meets both.
//
//   node bench/decode-cpu.mjs --peer DIR [--shapes qwen3-moe-small | --file GGUF] [--rows 1,8] [--tokens 96] [--threads 2] [--seconds 120] [--json FILE]
//
// DIR as for compare-cpu.mjs. Both run the file that is given; else ours has random weights of the shapes, and theirs is
// DIR/model.gguf. For models that llama.cpp shall not run itself (experts, recurrent layers) DIR/model.gguf is a dense model
// that reads as many bytes for a token, and the ratio says what is lost beside that. A turn is a prompt of 16 tokens for each row and
// `--tokens` of decoding, of which only the time counts in which every row decodes. Rows begin one after the other: where the first has ended
// before the last begins, the turns become twice as long, up to 480 tokens. Prints quartiles of tokens a second, and the ratios ours / theirs.
import { writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import {
  answerTurns,
  decodeTogether,
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
    shapes: { type: 'string', default: 'qwen3-moe-small' },
    rows: { type: 'string', default: '1,8' },
    tokens: { type: 'string', default: '96' },
    threads: { type: 'string', default: String(cpus().length) },
    seconds: { type: 'string', default: '120' },
    json: { type: 'string' },
    side: { type: 'string' },
  },
});
const peer = peerFolder(flags.peer);
const PROMPT = 16;
/** Tokens that a row has room for, and most tokens of a turn. */
const CONTEXT = 512;
const MOST_TOKENS = 480;
const rowsList = flags.rows.split(',').map(Number);
const most = Math.max(...rowsList);
const [asked, threads, seconds] = [flags.tokens, flags.threads, flags.seconds].map(Number);
const few = Math.min(asked, MOST_TOKENS);
const promptOf = (row, turn) =>
  Array.from({ length: PROMPT }, (_, i) => 300 + ((i * 7919 + row * 131 + turn * 31) % 20_000));

if (flags.side === undefined) await control();
else await side(flags.side === 'ours' ? await ours() : await theirs());

async function control() {
  const sides = await startSides(fileURLToPath(import.meta.url));
  const samples = Object.fromEntries(rowsList.map((rows) => [rows, sides.map(() => [])]));
  const lengths = Object.fromEntries(rowsList.map((rows) => [rows, few]));
  const end = Date.now() + 1000 * seconds;
  for (let turn = 0; Date.now() < end; turn++) {
    for (const rows of rowsList) {
      // Either begins as often.
      for (const i of turn % 2 === 0 ? [0, 1] : [1, 0]) {
        const took = await sides[i].turn({ rows, turn, tokens: lengths[rows] });
        if (took !== null) samples[rows][i].push(took);
        else lengths[rows] = Math.min(2 * lengths[rows], MOST_TOKENS);
      }
    }
  }
  for (const side of sides) side.stop();
  const measured = [];
  for (const rows of rowsList) {
    const without = ['kvant', 'llama.cpp'].filter((_, i) => samples[rows][i].length === 0);
    if (without.length === 0) measured.push(rows);
    else
      console.error(
        `With ${rows} rows of ${without.join(' and ')} no turn had all of them decode at once, the last of ${lengths[rows]} tokens. ` +
          `Give more --seconds, or --tokens up to ${MOST_TOKENS}, or fewer --rows.`,
      );
  }
  const words = [
    ['median', 0.5],
    ['upper quartile', 0.75],
    ['best', 1],
  ];
  const table = measured.flatMap((rows) =>
    words.map(([word, share]) => {
      const [mine, other] = samples[rows].map((list) => quantile(list, share));
      return {
        rows,
        figure: word,
        'kvant, tok/s': Number(mine.toFixed(1)),
        'llama.cpp, tok/s': Number(other.toFixed(1)),
        ratio: Number((mine / other).toFixed(2)),
      };
    }),
  );
  const { cpu, node } = machine();
  const turns = measured.map((rows) => `${samples[rows][0].length} turns of ${rows} rows`).join(', ');
  console.log(`${modelName(flags)}, ${threads} threads, ${cpu}, Node ${node}, ${turns}`);
  console.table(table);
  if (flags.json !== undefined)
    writeFileSync(
      flags.json,
      `${JSON.stringify({ model: modelName(flags), threads, cpu, node, table, samples })}\n`,
    );
  process.exit(measured.length === rowsList.length ? 0 : 1);
}

/** Answers each message with the tokens a second of one turn. */
async function side(one) {
  for (const rows of rowsList) await one(rows, 0, few);
  answerTurns(({ rows, turn, tokens }) => one(rows, turn, tokens));
}

async function ours() {
  const engine = await openOurs(flags, threads, { maxRows: most, maxContext: CONTEXT });
  return async (rows, turn, tokens) => {
    const times = await Promise.all(
      Array.from({ length: rows }, async (_, row) => {
        const own = [];
        const options = { maxTokens: tokens + 1, temperature: 0, ignoreEos: true };
        for await (const { tokenIds } of engine.generate({ prompt: promptOf(row, turn), ...options }))
          for (const _ of tokenIds) own.push(performance.now());
        return own;
      }),
    );
    // Of the time in which every row decodes.
    return rate(times);
  };
}

async function theirs() {
  const model = await openTheirs(peer, threads, flags.file);
  const contexts = new Map();
  for (const rows of rowsList) {
    const context = await model.createContext({
      contextSize: CONTEXT,
      sequences: rows,
      batchSize: 512,
      flashAttention: true,
      threads,
    });
    contexts.set(
      rows,
      Array.from({ length: rows }, () => context.getSequence()),
    );
  }
  return async (rows, turn, tokens) => {
    const sequences = contexts.get(rows);
    for (const [row, sequence] of sequences.entries()) {
      await sequence.clearHistory();
      await sequence.evaluateWithoutGeneratingNewTokens(promptOf(row, turn));
    }
    return rate(await decodeTogether(sequences, tokens + 1));
  };
}

/** Tokens a second from when every row has one until one has all; null where that is no half of what was asked. */
function rate(times) {
  const from = Math.max(...times.map((own) => own[0]));
  const until = Math.min(...times.map((own) => own.at(-1)));
  const all = times.flat();
  const counted = all.filter((time) => time > from && time <= until).length;
  if (2 * counted < all.length) return null;
  return (1000 * counted) / (until - from);
}
