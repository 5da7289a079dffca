// What loading a checkpoint to a GPU costs the host: the reads, what is done to the bytes and Dawn's copies of them. With
// `--backend null`, which has 512 MiB and no GPU behind it, no GPU is needed; with vulkan it is the load itself.
//
//   kvant bench checkpoint llama-8b /tmp/llama-8b --vocab 32000
//   node bench/load-webgpu.mjs /tmp/llama-8b [--backend vulkan|null] [--rounds 5] [--json FILE]
//
// The files are read once before. GB are of the weights' files; CPU is user and system time of the process. KVANT_DIST names
// another build to compare with, in turns.

import { createReadStream, readdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { args, option } from './options.mjs';

const folder = args[0];
const backend = option('--backend', 'vulkan');
const rounds = Number(option('--rounds', '5'));

const dawn = createRequire(import.meta.url)('webgpu');
Object.assign(globalThis, dawn.globals);
const toggles = 'allow_unsafe_apis,vulkan_enable_f16_on_nvidia,disable_workgroup_init,disable_robustness';
const gpu = dawn.create([`backend=${backend}`, `enable-dawn-features=${toggles}`]);

let fileBytes = 0;
for (const name of readdirSync(folder))
  if (name.endsWith('.safetensors'))
    for await (const piece of createReadStream(join(folder, name), { highWaterMark: 2 ** 24 }))
      fileBytes += piece.length;

const builds = ['../dist', ...(process.env.KVANT_DIST === undefined ? [] : [process.env.KVANT_DIST])];
const results = Object.fromEntries(builds.map((build) => [build, []]));
for (let round = 0; round < rounds; round++) {
  for (const build of builds) {
    const load = (path) => import(new URL(`${build}/${path}`, import.meta.url));
    const { createWebGpuDevice } = await load('device/webgpu/index.js');
    const { loadModel } = await load('models/load.js');
    const { parseModelConfig } = await load('models/families.js');
    const { Checkpoint } = await load('weights/checkpoint.js');
    const device = await createWebGpuDevice({ gpu, allowSoftware: true });
    const checkpoint = await Checkpoint.open(folder);
    const cpu = process.cpuUsage();
    const startedAt = performance.now();
    const model = await loadModel(checkpoint, parseModelConfig(checkpoint.config), device);
    const ms = performance.now() - startedAt;
    const { user, system } = process.cpuUsage(cpu);
    results[build].push({
      ms,
      cpuMs: (user + system) / 1000,
      rss: process.memoryUsage.rss(),
      weights: model.parameterBytes,
      device: device.stats().bytes,
    });
    await checkpoint.close();
    await device[Symbol.asyncDispose]();
  }
}

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const out = builds.map((build) => {
  const all = results[build];
  const of = (name) => median(all.map((one) => one[name]));
  return {
    build,
    GB: fileBytes / 1e9,
    ms: of('ms'),
    leastMs: Math.min(...all.map((one) => one.ms)),
    cpuMs: of('cpuMs'),
    gbPerSecond: fileBytes / 1e6 / of('ms'),
    gbPerCpuSecond: fileBytes / 1e6 / of('cpuMs'),
    rssMB: of('rss') / 1e6,
    deviceOverWeights: of('device') / of('weights'),
  };
});
console.table(out);
console.log('peak resident', (process.resourceUsage().maxRSS / 1e3).toFixed(0), 'MB');
const file = option('--json', null);
if (file !== null) writeFileSync(file, `${JSON.stringify(out, null, 1)}\n`);
process.exit(0);
