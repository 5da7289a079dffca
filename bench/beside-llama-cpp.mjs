// kvant and llama.cpp on one CPU, each in a process that keeps its model loaded: they take turns, so that what else the machine does meets
// both. A script that compares them runs three times: as it is called, and with `--side ours` and `--side theirs` in the two processes.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { cpus } from 'node:os';
import { basename, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

/** The folder that `--peer` names; ends the process where it names none. */
export function peerFolder(path) {
  if (path !== undefined) return resolve(path);
  console.error('--peer DIR is needed: a folder with an installed node-llama-cpp and a model.gguf.');
  process.exit(2);
}

/** Starts the script `path` once for each side, ours first. `turn(message)` of a side gives its answer. */
export async function startSides(path) {
  const sides = [];
  for (const name of ['ours', 'theirs']) {
    const child = fork(path, [...process.argv.slice(2), '--side', name]);
    child.once('exit', (code) => {
      if (code) process.exit(code);
    });
    await once(child, 'message');
    sides.push({
      async turn(message) {
        child.send(message);
        return (await once(child, 'message'))[0];
      },
      stop: () => child.kill(),
    });
  }
  return sides;
}

/** In the process of a side: says that it is ready, then answers each message with what `one` makes of it. */
export function answerTurns(one) {
  process.on('message', async (message) => process.send(await one(message)));
  process.send('ready');
}

/** Our engine: the GGUF file that is given, else random 4-bit weights of a named shape. `limits`: its maxRows and maxContext. */
export async function openOurs({ file, shapes }, threads, limits) {
  const { Engine } = await import('../dist/index.js');
  const options = { device: 'cpu', threads, prefixCache: false, ...limits };
  if (file !== undefined) return Engine.load(file, options);
  return Engine.loadShape(shapes, { ...options, quantize: 4, vocab: 32_000 });
}

/** The model of llama.cpp: `file`, loaded by the node-llama-cpp that `peer` has installed. */
export async function openTheirs(peer, threads, file = `${peer}/model.gguf`) {
  const entry = pathToFileURL(`${peer}/node_modules/node-llama-cpp/dist/index.js`);
  const { getLlama } = await import(entry.href);
  const llama = await getLlama({ build: 'never', gpu: false, logLevel: 'error', maxThreads: threads });
  return llama.loadModel({ modelPath: file });
}

/**
 * Decodes `count` tokens of each sequence of llama.cpp: when each token of each came. All take a step, then all take the next: where
 * each went on by itself, 8 rows of a dense 2B file had a third of this rate.
 */
export async function decodeTogether(sequences, count) {
  const rows = sequences.map((sequence) =>
    sequence.evaluate([500], { temperature: 0, yieldEogToken: true })[Symbol.asyncIterator](),
  );
  const times = rows.map(() => []);
  for (let step = 0; step < count; step++)
    await Promise.all(
      rows.map(async (row, i) => {
        await row.next();
        times[i].push(performance.now());
      }),
    );
  await Promise.all(rows.map((row) => row.return()));
  return times;
}

/** What was measured, as tables name it: the file that both run, else the shapes. */
export const modelName = ({ file, shapes }) => (file === undefined ? shapes : basename(file));

/** What `share` of the numbers lie below. */
export const quantile = (list, share) =>
  list.toSorted((a, b) => a - b)[Math.floor(share * (list.length - 1))];

/** The processor and the engine that ran. */
export const machine = () => ({ cpu: cpus()[0]?.model, node: process.version });
