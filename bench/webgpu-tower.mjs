// Where a tower's time goes on a GPU: a picture's launches, each between two timestamps, and the whole without them.
//
//   node bench/webgpu-tower.mjs [--shapes qwen2.5-vl-7b,qwen3-vl-8b] [--patches 72x72] [--repeats 5] [--software]
//
// Weights are random, of halves. It needs a built checkout. `--patches`: rows by columns; of a model of tiles, tiles by tiles.

import { args, built, option } from './options.mjs';
import { canProfile, openDawn, profiled, profileLines } from './webgpu-profile.mjs';

const { createWebGpuDevice } = await built('device/webgpu/index.js');
const { loadModel } = await built('models/load.js');
const { parseModelConfig } = await built('models/families.js');
const { RandomWeights, shapeFields } = await built('models/shapes.js');
const { VisionEncoder } = await built('engine/vision/encoder.js');
const { patchCount } = await built('media/processor.js');

const software = args.includes('--software');
const repeats = Number(option('--repeats', '5'));
const gpu = software ? undefined : openDawn();
const device = await createWebGpuDevice({ gpu, allowSoftware: software });
console.log(device.info.name, device.info.features.join(' '));

for (const name of option('--shapes', 'qwen2.5-vl-7b,qwen3-vl-8b').split(',')) {
  const fields = shapeFields(name, { vocab: 1024 });
  // Its decoder is not what is measured.
  const definition = parseModelConfig(
    { ...fields, text_config: { ...fields.text_config, num_hidden_layers: 4 } },
    name,
  );
  const model = await loadModel(new RandomWeights(), definition, device, { kvTokens: 1024 });
  const { tower } = model.vision;
  for (const size of option('--patches', '72x72').split(',')) {
    const [rows, cols] = size.split('x').map(Number);
    const side = tower.tileSize === null ? null : tower.tileSize / tower.patchSize;
    const grid =
      side === null
        ? { rows, cols }
        : { rows: side, cols: side, tiles: { rows, cols, whole: rows * cols > 1 } };
    const patches = new Float32Array(patchCount(grid) * tower.patchValues).map(
      (_, i) => ((i * 7919) % 1000) / 500 - 1,
    );
    const encoder = new VisionEncoder(device, model);
    const tokens = (patchCount(grid) / tower.merged) * 2;
    const slab = device.createFeatureSlab({ rows: Math.ceil(tokens), cols: encoder.rowValues });
    const encode = () => encoder.encodeTo([{ grid, patches }], slab, [0]);
    for (let i = 0; i < 3; i++) await encode();
    const times = [];
    for (let i = 0; i < repeats; i++) {
      const began = performance.now();
      await encode();
      times.push(performance.now() - began);
    }
    times.sort((a, b) => a - b);
    console.log(
      `${name} ${size}: ${patchCount(grid)} patches, median ${times[times.length >> 1].toFixed(1)} ms, ` +
        `least ${times[0].toFixed(1)}`,
    );
    if (canProfile()) {
      const profile = await profiled(encode, encode, 3, true);
      console.log(profileLines(profile));
      console.log(`    sum ${(profile.reduce((sum, p) => sum + p.us * p.count, 0) / 1000).toFixed(1)} ms`);
    }
    await encoder.dispose();
    slab.dispose();
  }
}
await device[Symbol.asyncDispose]();
