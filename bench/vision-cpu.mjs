// Pictures on a CPU beside Pillow and torch, in turns: a resize of 12 MP to 1 MP, and a tile of 448² through the tower of internvl3-1b
// (InternViT-300M, and what maps its rows to the decoder's).
//
//   node bench/vision-cpu.mjs --python PYTHON [--threads 2] [--repeats 7] [--only resize,tower]
//
// Resizes are on one thread. Ratios are the peer's median time over kvant's: more is better. It needs a built checkout, and of Python
// pillow, torch and transformers.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { createCpuDevice } from '../dist/device/cpu/index.js';
import { VisionEncoder } from '../dist/engine/vision/encoder.js';
import { patchCount } from '../dist/media/processor.js';
import { resizeImage } from '../dist/media/resize.js';
import { parseModelConfig } from '../dist/models/families.js';
import { loadModel } from '../dist/models/load.js';
import { RandomWeights, shapeFields } from '../dist/models/shapes.js';
import { option } from './options.mjs';

const threads = Number(option('--threads', '2'));
const repeats = Number(option('--repeats', '7'));
const only = option('--only', 'resize,tower').split(',');
const python = option('--python', null);
if (python === null) throw new Error('--python PYTHON says where pillow and torch are.');

const peer = spawn(python, [fileURLToPath(new URL('../scripts/vision-peers.py', import.meta.url))], {
  stdio: ['pipe', 'pipe', 'inherit'],
});
const lines = createInterface({ input: peer.stdout });
async function ask(what) {
  const line = once(lines, 'line');
  peer.stdin.write(`${JSON.stringify(what)}\n`);
  return JSON.parse((await line)[0]).ms;
}

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
async function inTurns(name, own, peers) {
  await own();
  await peers();
  const [ours, theirs] = [[], []];
  for (let i = 0; i < repeats; i++) {
    const began = performance.now();
    await own();
    ours.push(performance.now() - began);
    theirs.push(await peers());
  }
  const ratio = median(theirs) / median(ours);
  console.log(
    `${name}: kvant ${median(ours).toFixed(1)} ms, the peer ${median(theirs).toFixed(1)}, ratio ${ratio.toFixed(2)}`,
  );
}

if (only.includes('resize')) {
  const [width, height] = [4000, 3000];
  const pixels = Uint8Array.from({ length: width * height * 3 }, (_, i) => (i * 7919) % 251);
  const to = [1148, 868];
  await inTurns(
    `resize of ${width} × ${height} to ${to.join(' × ')}, bicubic`,
    () => resizeImage({ width, height, pixels }, ...to, 'bicubic'),
    () => ask({ resize: [width, height, ...to] }),
  );
}

if (only.includes('tower')) {
  const device = await createCpuDevice({ threads });
  const fields = shapeFields('internvl3-1b', { vocab: 1024 });
  const definition = parseModelConfig(
    { ...fields, text_config: { ...fields.text_config, num_hidden_layers: 1 } },
    'internvl3-1b',
  );
  const model = await loadModel(new RandomWeights(), definition, device, { kvTokens: 64 });
  const { tower } = model.vision;
  const side = tower.tileSize / tower.patchSize;
  const grid = { rows: side, cols: side, tiles: { rows: 1, cols: 1, whole: false } };
  const patches = new Float32Array(patchCount(grid) * tower.patchValues).map(
    (_, i) => ((i * 7919) % 1000) / 500 - 1,
  );
  const encoder = new VisionEncoder(device, model);
  const slab = device.createFeatureSlab({ rows: patchCount(grid) / tower.merged, cols: encoder.rowValues });
  await inTurns(
    `a tile of 448², ${threads} threads`,
    () => encoder.encodeTo([{ grid, patches }], slab, [0]),
    () => ask({ tower: threads }),
  );
  await encoder.dispose();
  slab.dispose();
  await device[Symbol.asyncDispose]();
}
peer.stdin.end();
lines.close();
