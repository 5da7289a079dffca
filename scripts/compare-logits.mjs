// Logits of GGUF files by kvant's CPU device and by llama.cpp, each beside float64 of the same weights. Opt-in, like test-checkpoint.mjs.
//
//   node scripts/compare-logits.mjs FILE.gguf… --llama DIR [--python PYTHON] [--prompts 12] [--json RECORD] [--keep FILE]
//
// DIR holds an installed node-llama-cpp; PYTHON has torch, transformers and gguf (default: python3). The prompts are 1 to 96 random ids, the
// same on every run. Both round what meets quantised weights to 8 bits, each by its own groups; kvant's reference precision does not.
// NMSE is the squared difference over the squares about the mean, over all logits of the last positions. Run `npm run build` first.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { createCpuDevice } from '../dist/device/cpu/index.js';
import { StepInputs } from '../dist/device/step.js';
import { loadModel } from '../dist/models/load.js';
import { openModel } from '../dist/models/open.js';

const { values: flags, positionals: files } = parseArgs({
  allowPositionals: true,
  options: {
    llama: { type: 'string' },
    python: { type: 'string', default: 'python3' },
    prompts: { type: 'string', default: '12' },
    json: { type: 'string' },
    keep: { type: 'string' },
  },
});
if (files.length === 0 || flags.llama === undefined) {
  console.error(
    'GGUF files and --llama DIR are needed: node scripts/compare-logits.mjs FILE.gguf --llama DIR',
  );
  process.exit(2);
}
const LONGEST = 96;
const SLOT = 1;

/** Ids of the vocabulary, the same on every run. */
function promptsFor(vocab) {
  let state = 1;
  const draw = (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  return Array.from({ length: Number(flags.prompts) }, () =>
    Array.from({ length: 1 + draw(LONGEST) }, () => draw(vocab)),
  );
}

/** Logits behind each prompt, which is read in one step. */
async function own(file, precision, prompts) {
  const device = await createCpuDevice({ threads: 1, precision });
  const opened = await openModel(file);
  const model = await loadModel(opened.source, opened.definition, device);
  const pool = device.createKvPool({
    layers: model.kvLayers,
    blocks: LONGEST / 16,
    blockTokens: 16,
    slots: 2,
    maxBlocksPerSlot: LONGEST / 16,
  });
  pool.setBlocks(
    SLOT,
    0,
    Uint32Array.from({ length: LONGEST / 16 }, (_, i) => i),
  );
  const { graph, logits } = model.buildGraph({ keepLogits: true });
  const limits = { maxTokens: LONGEST, maxOutputs: 1, maxSequences: 1, maxContext: LONGEST, inFlight: 1 };
  const program = await device.compile(graph, limits, pool);
  const step = new StepInputs(LONGEST, 1, 1);
  const out = [];
  for (const ids of prompts(logits.cols)) {
    step.clear();
    step.tokens.set(ids);
    step.tokenCount = step.seqLength[0] = ids.length;
    step.sequenceCount = step.outputCount = 1;
    step.seqSlot[0] = step.outputSlot[0] = SLOT;
    step.outputs[0] = ids.length - 1;
    step.sampling.position[0] = ids.length;
    await program.submit(step);
    out.push({ ids, logits: (await program.read(logits, 1)).slice() });
  }
  await program.dispose();
  pool.dispose();
  await opened[Symbol.asyncDispose]();
  await device[Symbol.asyncDispose]();
  return out;
}

function tool(command, args, prompts) {
  const out = execFileSync(command, args, {
    input: JSON.stringify(prompts),
    encoding: 'utf8',
    maxBuffer: 1 << 30,
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  return JSON.parse(out);
}

const topOf = (row) => row.reduce((best, value, i) => (value > row[best] ? i : best), 0);

function compare(rows, reference) {
  let [squares, about, largest, tops] = [0, 0, 0, 0];
  for (const [r, row] of rows.entries()) {
    const wanted = reference[r];
    const mean = wanted.reduce((sum, value) => sum + value, 0) / wanted.length;
    for (const [i, value] of wanted.entries()) {
      squares += (row[i] - value) ** 2;
      about += (value - mean) ** 2;
      largest = Math.max(largest, Math.abs(row[i] - value));
    }
    if (topOf(row) === topOf(wanted)) tops++;
  }
  const short = (value) => Number(value.toPrecision(3));
  return { nmse: short(squares / about), largest: short(largest), sameTop: tops };
}

const record = [];
for (const file of files) {
  const exact = await own(file, 'reference', promptsFor);
  const prompts = exact.map(({ ids }) => ids);
  const fast = await own(file, 'default', () => prompts);
  const here = (name) => fileURLToPath(new URL(`checkpoint/${name}`, import.meta.url));
  const torch = tool(flags.python, [here('reference-logits.py'), file], prompts);
  const llama = tool(process.execPath, [here('llama-logits.mjs'), flags.llama, file], prompts);
  const bounds = (least) => least(...torch.logits.map((row) => row.reduce((a, b) => least(a, b))));
  const [low, high] = [bounds(Math.min), bounds(Math.max)];
  const rows = {
    'kvant, reference precision': exact.map(({ logits }) => [...logits]),
    kvant: fast.map(({ logits }) => [...logits]),
    'llama.cpp': llama.logits,
  };
  const beside = Object.fromEntries(
    Object.entries(rows).map(([name, own]) => [name, compare(own, torch.logits)]),
  );
  beside['kvant beside llama.cpp'] = compare(rows.kvant, llama.logits);
  console.log(
    `${basename(file)}: ${prompts.length} prompts, logits from ${low.toFixed(1)} to ${high.toFixed(1)}`,
  );
  for (const [name, { nmse, largest, sameTop }] of Object.entries(beside))
    console.log(`  ${name}: NMSE ${nmse}, largest difference ${largest}, same first choice ${sameTop}`);
  record.push({
    file: basename(file),
    prompts: prompts.length,
    versions: { torch: torch.torch, transformers: torch.transformers, nodeLlamaCpp: llama.version },
    range: [low, high],
    beside,
  });
  if (flags.keep !== undefined) {
    const six = (row) => row.map((value) => Number(value.toPrecision(7)));
    const cases = prompts.map((prompt, i) => ({
      prompt,
      float64: six(torch.logits[i]),
      llamaCpp: six(llama.logits[i]),
    }));
    writeFileSync(flags.keep, `${JSON.stringify({ nodeLlamaCpp: llama.version, cases })}\n`);
  }
}
if (flags.json !== undefined) {
  const command = `node scripts/compare-logits.mjs ${process.argv
    .slice(2)
    .map((one) => basename(one))
    .join(' ')}`;
  const date = new Date().toISOString().slice(0, 10);
  writeFileSync(flags.json, `${JSON.stringify({ command, date, files: record })}\n`);
}
