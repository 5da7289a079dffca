// Token ids of texts by llama.cpp, through node-llama-cpp: node llama-tokens.mjs DIR MODEL.gguf < texts.json > ids.json
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , folder, modelPath] = process.argv;
const entry = join(resolve(folder), 'node_modules/node-llama-cpp/dist/index.js');
const { getLlama } = await import(pathToFileURL(entry).href);
const texts = JSON.parse(readFileSync(0, 'utf8'));
const llama = await getLlama({ build: 'never', gpu: false, logLevel: 'error' });
const model = await llama.loadModel({ modelPath: resolve(modelPath) });
const { version } = JSON.parse(
  readFileSync(join(resolve(folder), 'node_modules/node-llama-cpp/package.json'), 'utf8'),
);
process.stdout.write(
  JSON.stringify({ version, ids: texts.map((text) => [...model.tokenize(text, false)]) }),
  () => process.exit(0),
);
