// A published GGUF file against transformers and llama.cpp, as a record in JSON. Opt-in: it needs the file, and tools that are no
// dependencies of kvant.
//
//   npm run test:checkpoint -- FILE [--python PYTHON] [--converted FOLDER] [--llama DIR] [--device cpu|webgpu] [--software-gpu]
//                                   [--tokens 128] [--texts 2000] [--rounds 3] [--json RECORD]
//                                   [--keep-reference JSON | --reference JSON]
//
// PYTHON has torch, transformers and gguf (default: python3). FOLDER is the file dequantised by another tool; without it transformers reads
// the file itself. DIR holds an installed node-llama-cpp; without it neither ids nor rates of llama.cpp are compared, and the record says
// so. --keep-reference writes what transformers and llama.cpp answer and ends there; --reference reads it, so that a machine with a GPU needs
// neither. Ends with 1 where something that has to be equal is not. Run `npm run build` first.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  createReadStream,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { cpus, loadavg, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { PROMPTS, texts } from './checkpoint/texts.mjs';

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    python: { type: 'string', default: 'python3' },
    converted: { type: 'string' },
    llama: { type: 'string' },
    device: { type: 'string', default: 'cpu' },
    'software-gpu': { type: 'boolean', default: false },
    tokens: { type: 'string', default: '128' },
    texts: { type: 'string', default: '2000' },
    rounds: { type: 'string', default: '3' },
    json: { type: 'string' },
    reference: { type: 'string' },
    'keep-reference': { type: 'string' },
  },
});
const [file] = positionals;
if (file === undefined || !existsSync(file)) {
  console.error('A GGUF file is needed: npm run test:checkpoint -- FILE');
  process.exit(2);
}
const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const { Engine } = await import('../dist/index.js').catch(() => {
  console.error('dist/ is needed: npm run build');
  process.exit(2);
});
const maxTokens = Number(flags.tokens);
const shorter = Math.min(maxTokens, 32);
const greedy = { temperature: 0, ignoreEos: true };
const failures = [];

function holds(what, good) {
  if (!good) failures.push(what);
  console.error(`${good ? 'equal' : 'NOT EQUAL'}: ${what}`);
}

const same = (a, b) => a.length === b.length && a.every((id, i) => id === b[i]);

async function withEngine(options, use) {
  const engine = await Engine.load(file, {
    device: flags.device,
    maxContext: 1024,
    maxRows: 8,
    kvMemory: 512 * 2 ** 20,
    allowSoftwareGpu: flags['software-gpu'],
    ...options,
  });
  try {
    return await use(engine);
  } finally {
    await engine.close();
  }
}

async function answer(engine, prompt, request) {
  const asked = { prompt, addSpecialTokens: false, ...greedy, ...request };
  return [...(await engine.generate(asked).result).tokenIds];
}

/** Answers of the prompts one by one, and whether eight at once have the same, `times` times. */
async function aloneAndTogether(engine, times, request) {
  const asked = [...PROMPTS, ...PROMPTS.slice(0, 2)].map((prompt, i) => ({ prompt, ...request(i) }));
  const ask = ({ prompt, ...more }) => answer(engine, prompt, { maxTokens: shorter, ...more });
  const alone = [];
  for (const one of asked) alone.push(await ask(one));
  const equal = [];
  for (let i = 0; i < times; i++) {
    const together = await Promise.all(asked.map(ask));
    equal.push(together.every((ids, at) => same(ids, alone[at])));
  }
  return { alone, equal };
}

async function sha256(path) {
  const hash = createHash('sha256');
  for await (const piece of createReadStream(path)) hash.update(piece);
  return hash.digest('hex');
}

/** Greedy answers in reference precision, without and with a penalty, and token ids of texts. */
async function ownAnswers(asked, record) {
  return await withEngine({ precision: 'reference' }, async (engine) => {
    const { architecture, hasChatTemplate } = engine.info.model;
    record.device = engine.info.device;
    record.model = { architecture, hasChatTemplate };
    const answers = [];
    for (const prompt of PROMPTS)
      answers.push({ prompt, tokens: await answer(engine, prompt, { maxTokens }) });
    for (const prompt of PROMPTS) {
      const repetitionPenalty = 1.3;
      const tokens = await answer(engine, prompt, { maxTokens: shorter, repetitionPenalty });
      answers.push({ prompt, repetitionPenalty, tokens });
    }
    const ids = asked.map((text) => [...engine.tokenize(text, { addSpecialTokens: false })]);
    return { answers, ids };
  });
}

/** What transformers makes of the same. */
function transformers(work, answers, asked) {
  const [questions, answered] = [join(work, 'asked.json'), join(work, 'answered.json')];
  writeFileSync(questions, JSON.stringify({ answers, texts: asked }));
  const converted = flags.converted === undefined ? [] : ['--folder', flags.converted];
  execFileSync(flags.python, [here('checkpoint/reference.py'), file, questions, answered, ...converted], {
    stdio: 'ignore',
  });
  return JSON.parse(readFileSync(answered, 'utf8'));
}

/** What llama.cpp makes of the texts. */
function llamaTokens(asked) {
  const out = execFileSync(process.execPath, [here('checkpoint/llama-tokens.mjs'), flags.llama, file], {
    input: JSON.stringify(asked),
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  return JSON.parse(out);
}

/** One format of the cache: streams together and alone, seeds, penalties. */
async function cacheRecord(name, options, reference) {
  // Without it products on a GPU sum in other orders for other numbers of rows.
  const deterministic = flags.device === 'webgpu';
  return await withEngine({ ...options, deterministic }, async (engine) => {
    const plain = await aloneAndTogether(engine, 1, () => ({}));
    const drawn = await aloneAndTogether(engine, 2, (i) => ({
      temperature: 0.8,
      topP: 0.95,
      seed: 100 + i,
      repetitionPenalty: 1.1,
      presencePenalty: 0.5,
    }));
    holds(`${name}: 8 greedy streams at once, and each alone`, plain.equal[0]);
    holds(`${name}: 8 drawn streams with penalties and seeds at once, and alone`, drawn.equal[0]);
    holds(`${name}: the same seeds again`, drawn.equal[1]);
    return {
      tokens: shorter,
      ...(deterministic ? { deterministic } : {}),
      greedyTokensAsInReference: PROMPTS.map((_, i) => {
        const at = plain.alone[i].findIndex((id, j) => id !== reference[i].tokens[j]);
        return at < 0 ? shorter : at;
      }),
      eightAtOnceEqualAlone: plain.equal[0],
      drawnEightAtOnceEqualAlone: drawn.equal[0],
      sameSeedsSameTokens: drawn.equal[1],
    };
  });
}

function llamaRates(asked) {
  if (flags.llama === undefined || flags.device !== 'cpu') return undefined;
  const theirs = execFileSync(
    process.execPath,
    [here('../bench/llama-cpp.mjs'), flags.llama, JSON.stringify(asked)],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] },
  );
  return JSON.parse(theirs.trim().split('\n').at(-1))[0];
}

/** Tokens a second of one row: the two in turns. */
async function rates() {
  const [prompt, generate, threads] = [512, 64, cpus().length];
  const rounds = [];
  for (let round = 0; round < Number(flags.rounds); round++) {
    const llamaCpp = llamaRates({ rows: [1], prompt, generate, threads, model: file });
    const ids = Array.from({ length: prompt }, (_, i) => 300 + ((i * 7919) % 20000));
    const asked = { prompt: ids, ...greedy, maxTokens: generate };
    const { timings } = await withEngine(
      flags.device === 'cpu' ? { threads } : {},
      (engine) => engine.generate(asked).result,
    );
    const { prefillTokensPerSecond, decodeTokensPerSecond } = timings;
    rounds.push({
      kvant: { prefillTokensPerSecond, decodeTokensPerSecond },
      ...(llamaCpp === undefined ? {} : { llamaCpp }),
      load: loadavg()[0],
    });
  }
  return { prompt, generate, threads, rounds };
}

const shownArguments = process.argv.slice(2).map((one) => (one.includes('/') ? basename(one) : one));
const record = {
  command: `npm run test:checkpoint -- ${shownArguments.join(' ')}`,
  date: new Date().toISOString().slice(0, 10),
  file: { name: basename(file), bytes: statSync(file).size, sha256: await sha256(file) },
  machine: { cpu: cpus()[0]?.model, threads: cpus().length, loadBefore: loadavg()[0] },
};

/** What the tools make of the answers and the texts. */
function judge(answers, asked) {
  const work = mkdtempSync(join(tmpdir(), 'kvant-checkpoint-'));
  try {
    const { versions, weights, answers: judged, texts } = transformers(work, answers, asked);
    return {
      file: record.file,
      versions,
      weights,
      answers: answers.map((answer, i) => ({ ...answer, ...judged[i] })),
      texts,
      llama: flags.llama === undefined ? null : llamaTokens(asked),
    };
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** A reference that was kept: it must be of this file, and its answers whole. */
function keptReference(path, answers, asked) {
  const kept = JSON.parse(readFileSync(path, 'utf8'));
  const whole = kept.answers.every(({ tokens, equal }) => tokens.length === equal);
  if (kept.file.sha256 !== record.file.sha256 || kept.texts.length !== asked.length || !whole) {
    console.error(`${path} is of another file, of other texts, or of answers that are not transformers'`);
    process.exit(2);
  }
  // Each was judged whole: what begins as it does is the greedy answer up to there.
  const judged = answers.map(({ tokens }, i) => {
    const other = tokens.findIndex((id, at) => id !== kept.answers[i].tokens[at]);
    return { equal: other < 0 ? tokens.length : other, leastMargin: kept.answers[i].leastMargin };
  });
  return { ...kept, answers: judged };
}

const asked = texts(Number(flags.texts));
const { answers, ids } = await ownAnswers(asked, record);
const reference =
  flags.reference === undefined ? judge(answers, asked) : keptReference(flags.reference, answers, asked);
if (flags['keep-reference'] !== undefined) {
  writeFileSync(flags['keep-reference'], JSON.stringify(reference));
  process.exit(0);
}
record.greedy = {
  against: reference.versions,
  weights: reference.weights,
  precision: 'reference',
  prompts: answers.map(({ tokens, ...question }, i) => ({
    ...question,
    tokens: tokens.length,
    equal: reference.answers[i].equal,
    leastMargin: Number(reference.answers[i].leastMargin.toPrecision(3)),
  })),
};
holds(
  `greedy tokens of ${PROMPTS.length} prompts, without and with a repetition penalty, and transformers'`,
  record.greedy.prompts.every(({ tokens, equal }) => tokens === equal),
);
const differing = ids.filter((own, i) => !same(own, reference.texts[i]));
record.tokenIds = { texts: asked.length, differFromTransformers: differing.length };
if (reference.llama === null) record.tokenIds.llamaCpp = 'not compared';
else {
  const { version, ids: theirs } = reference.llama;
  const others = ids.flatMap((own, i) => (same(own, theirs[i]) ? [] : [i]));
  record.tokenIds.llamaCpp = { nodeLlamaCpp: version, differ: others.length };
  if (others.length > 0)
    record.tokenIds.examples = others
      .slice(0, 5)
      .map((i) => ({ text: asked[i], kvant: ids[i], llamaCpp: theirs[i] }));
  holds(`token ids of ${asked.length} texts and llama.cpp's`, others.length === 0);
}
record.caches = {};
for (const [name, kvFormat] of [
  ['f16', 'f16'],
  ['8 bits', 'affine8'],
  ['TurboQuant of 4 bits', 'turbo4'],
])
  record.caches[name] = await cacheRecord(name, { kvFormat }, answers);
// Beside llama.cpp on a CPU alone.
if (Number(flags.rounds) > 0) record.rates = await rates();
record.machine.loadAfter = loadavg()[0];
record.failures = failures;
const json = `${JSON.stringify(record)}\n`;
if (flags.json === undefined) process.stdout.write(json);
else writeFileSync(flags.json, json);
process.exit(failures.length === 0 ? 0 : 1);
