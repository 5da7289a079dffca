// llama.cpp as a TypeScript user gets it, through node-llama-cpp, on the CPU: prefill and decode as JSON.
//
//   node bench/llama-cpp.mjs DIR '{"rows": [1, 4], "prompt": 512, "generate": 64, "threads": 2, "model": "model.gguf"}'
//
// DIR holds the installed package; it is no dependency of kvant.
import { decodeTogether, openTheirs, peerFolder } from './beside-llama-cpp.mjs';

const [, , folder, config] = process.argv;
const { rows, prompt, generate, threads, model: modelPath } = JSON.parse(config);
const model = await openTheirs(peerFolder(folder), threads, modelPath);
const results = [];
for (const n of rows) {
  const context = await model.createContext({
    contextSize: prompt + generate + 16,
    sequences: n,
    batchSize: 512,
    flashAttention: true,
    threads,
  });
  const sequences = Array.from({ length: n }, () => context.getSequence());
  const prefills = [];
  for (const s of sequences) {
    const started = performance.now();
    await s.evaluateWithoutGeneratingNewTokens(
      Array.from({ length: prompt }, (_, i) => 300 + ((i * 7919) % 20000)),
    );
    prefills.push((1000 * prompt) / (performance.now() - started));
  }
  const started = performance.now();
  await decodeTogether(sequences, generate);
  results.push({
    rows: n,
    prefillTokensPerSecond: prefills.sort((a, b) => a - b)[prefills.length >> 1],
    decodeTokensPerSecond: (1000 * n * generate) / (performance.now() - started),
  });
  await context.dispose();
}
console.log(JSON.stringify(results));
process.exit(0);
