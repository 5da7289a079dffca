// Logits behind prompts by llama.cpp, through node-llama-cpp: node llama-logits.mjs DIR MODEL.gguf < prompts.json > logits.json
// A prompt is a list of token ids; what comes back are the logits of its last token, at every id.
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , folder, modelPath] = process.argv;
const entry = join(resolve(folder), 'node_modules/node-llama-cpp/dist/index.js');
const { getLlama } = await import(pathToFileURL(entry).href);
const { version } = JSON.parse(
  readFileSync(join(resolve(folder), 'node_modules/node-llama-cpp/package.json'), 'utf8'),
);
const prompts = JSON.parse(readFileSync(0, 'utf8'));
const llama = await getLlama({ build: 'never', gpu: false, logLevel: 'error' });
const model = await llama.loadModel({ modelPath: resolve(modelPath) });
const context = await model.createContext({ contextSize: 512, threads: 2 });
const sequence = context.getSequence();
const logits = [];
for (const prompt of prompts) {
  await sequence.clearHistory();
  const last = [prompt.at(-1), { generateNext: { logits: true } }];
  const out = await sequence.controlledEvaluate([...prompt.slice(0, -1), last]);
  const row = [];
  for (const [id, logit] of out.at(-1).next.logits) row[id] = logit;
  logits.push(row);
}
process.stdout.write(JSON.stringify({ version, logits }), () => process.exit(0));
