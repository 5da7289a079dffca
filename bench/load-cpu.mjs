// What loading a model onto the CPU device costs beside reading its file: the header, the reads, repacking, and the memory of the device.
// The device's threads have started before.
//
//   node bench/load-cpu.mjs SmolLM2-135M-Instruct.Q4_1.gguf [--rounds 9] [--json FILE]
//
// The file is in the page cache. "Reading" is into one fresh piece of memory as large as the file, for whoever loads it needs as much.
// Rounds take turns, medians are shown: wall time, and processor time of the whole process, which a busy machine changes least.
// KVANT_DIST names another build to compare with.

import { writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { args, option } from './options.mjs';

const path = args[0];
const rounds = Number(option('--rounds', '9'));
/** Threads start beside what is measured, and take longer than that. */
const THREADS_MS = 300;
const builds = ['../dist', ...(process.env.KVANT_DIST === undefined ? [] : [process.env.KVANT_DIST])];

async function timed(work) {
  const cpu = process.cpuUsage();
  const startedAt = performance.now();
  const result = await work();
  const ms = performance.now() - startedAt;
  const { user, system } = process.cpuUsage(cpu);
  return { ms, cpuMs: (user + system) / 1000, result };
}

async function read() {
  const file = await open(path);
  const bytes = Buffer.allocUnsafeSlow((await file.stat()).size);
  for (let at = 0; at < bytes.length; ) {
    const { bytesRead } = await file.read(bytes, at, Math.min(4 << 20, bytes.length - at), at);
    at += bytesRead;
  }
  await file.close();
  return bytes.length;
}

async function load(build) {
  const part = (name) => import(new URL(`${build}/${name}`, import.meta.url));
  const { createCpuDevice } = await part('device/cpu/index.js');
  const { openModel } = await part('models/open.js');
  const { loadModel } = await part('models/load.js');
  const device = await createCpuDevice({ threads: 1 });
  await new Promise((resolve) => setTimeout(resolve, THREADS_MS));
  const header = await timed(() => openModel(path));
  const opened = header.result;
  const weights = await timed(() => loadModel(opened.source, opened.definition, device));
  await opened[Symbol.asyncDispose]();
  await device[Symbol.asyncDispose]();
  return { headerMs: header.ms, headerCpuMs: header.cpuMs, ms: weights.ms, cpuMs: weights.cpuMs };
}

const bytes = await read();
const reads = [];
const loads = Object.fromEntries(builds.map((build) => [build, []]));
for (const build of builds) await load(build);
for (let round = 0; round < rounds; round++) {
  reads.push(await timed(read));
  for (const build of builds) loads[build].push(await load(build));
}

const median = (list, key) => list.map((one) => one[key]).sort((a, b) => a - b)[list.length >> 1];
const reading = { ms: median(reads, 'ms'), cpuMs: median(reads, 'cpuMs') };
const out = builds.map((build) => {
  const [ms, cpuMs, headerMs, headerCpuMs] = ['ms', 'cpuMs', 'headerMs', 'headerCpuMs'].map((key) =>
    median(loads[build], key),
  );
  return { build, ms, cpuMs, headerMs, headerCpuMs, ratio: ms / reading.ms, cpuRatio: cpuMs / reading.cpuMs };
});
console.log(
  `${(bytes / 1e6).toFixed(1)} MB; reading: ${reading.ms.toFixed(0)} ms, ${reading.cpuMs.toFixed(0)} ms of a processor`,
);
for (const row of out)
  console.log(
    `${row.build}: weights ${row.ms.toFixed(0)} ms (${(1 / row.ratio).toFixed(2)} of the rate of reading), ${row.cpuMs.toFixed(0)} ms of a processor (${row.cpuRatio.toFixed(2)}); header ${row.headerMs.toFixed(0)} ms (${row.headerCpuMs.toFixed(0)})`,
  );
const json = option('--json');
if (json !== undefined)
  writeFileSync(
    json,
    `${JSON.stringify({ node: process.version, bytes, rounds, reading, builds: out }, null, 2)}\n`,
  );
