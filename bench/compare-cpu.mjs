// kvant beside llama.cpp on the CPU, in one run: the same shapes, random 4-bit weights, the two taking turns.
//
//   node bench/compare-cpu.mjs --peer DIR [--shapes qwen3-0.6b] [--rows 1,4,8] [--rounds 3] [--threads 2] [--json FILE]
//
// DIR holds an installed node-llama-cpp (npm i node-llama-cpp) and a GGUF of the same shapes with Q4_0 weights and a
// vocabulary of 32,000, named model.gguf. Prints medians and the ratios ours / theirs.
import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const { values: flags } = parseArgs({
  options: {
    peer: { type: 'string' },
    shapes: { type: 'string', default: 'qwen3-0.6b' },
    rows: { type: 'string', default: '1,4,8' },
    prompt: { type: 'string', default: '512' },
    generate: { type: 'string', default: '64' },
    rounds: { type: 'string', default: '3' },
    threads: { type: 'string', default: String(cpus().length) },
    json: { type: 'string' },
  },
});
const root = fileURLToPath(new URL('..', import.meta.url));
const peer = resolve(flags.peer ?? '');
if (
  flags.peer === undefined ||
  !existsSync(join(peer, 'node_modules/node-llama-cpp')) ||
  !existsSync(join(peer, 'model.gguf'))
) {
  console.error('--peer DIR is needed: a folder with an installed node-llama-cpp and a model.gguf.');
  process.exit(2);
}
const rows = flags.rows.split(',').map(Number);

function ours() {
  const out = execFileSync(
    process.execPath,
    [
      join(root, 'dist/cli/main.js'),
      'bench',
      '--shapes',
      flags.shapes,
      '--vocab',
      '32000',
      '--device',
      'cpu',
      '--threads',
      flags.threads,
      '--rows',
      flags.rows,
      '--prompt',
      flags.prompt,
      '--generate',
      flags.generate,
      '--repeats',
      '1',
      '--json',
    ],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] },
  );
  return JSON.parse(out.trim().split('\n').at(-1));
}

function theirs() {
  const config = {
    rows,
    prompt: Number(flags.prompt),
    generate: Number(flags.generate),
    threads: Number(flags.threads),
    model: join(peer, 'model.gguf'),
  };
  const out = execFileSync(
    process.execPath,
    [join(root, 'bench/llama-cpp.mjs'), peer, JSON.stringify(config)],
    {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  return JSON.parse(out.trim().split('\n').at(-1));
}

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const samples = { ours: [], theirs: [] };
let head;
for (let round = 0; round < Number(flags.rounds); round++) {
  const { results, ...rest } = ours();
  head = rest;
  samples.ours.push(results);
  samples.theirs.push(theirs());
}
const of = (list, n, key) => median(list.map((results) => results.find((r) => r.rows === n)[key]));
const table = rows.map((n) => {
  const [decode, peerDecode] = [
    of(samples.ours, n, 'decodeTokensPerSecond'),
    of(samples.theirs, n, 'decodeTokensPerSecond'),
  ];
  const [prefill, peerPrefill] = [
    of(samples.ours, n, 'prefillTokensPerSecond'),
    of(samples.theirs, n, 'prefillTokensPerSecond'),
  ];
  const fixed = (x) => Number(x.toFixed(1));
  return {
    rows: n,
    decode: fixed(decode),
    'llama.cpp decode': fixed(peerDecode),
    'decode ratio': Number((decode / peerDecode).toFixed(2)),
    prefill: fixed(prefill),
    'llama.cpp prefill': fixed(peerPrefill),
    'prefill ratio': Number((prefill / peerPrefill).toFixed(2)),
  };
});
console.log(
  `${head.model}, vocabulary ${head.vocab}, ${head.device}, ${cpus()[0]?.model}, Node ${process.version}, median of ${flags.rounds} rounds`,
);
console.table(table);
if (flags.json !== undefined)
  writeFileSync(
    flags.json,
    `${JSON.stringify({ ...head, node: process.version, cpu: cpus()[0]?.model, table, samples }, null, 1)}\n`,
  );
