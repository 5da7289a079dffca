// Bytes of machine code of kernels, as NVIDIA's driver keeps them: each is compiled in a process of its own, whose cache of shaders
// is a folder of its own. An empty kernel has 6 KB. Entries are compressed (zstd) and hold more than the code: read them against each other.
//
//   node bench/webgpu-step.mjs --shapes llama-8b --rows 8 --short --texts texts.json
//   node bench/webgpu-code-size.mjs texts.json […] [--match 'dp4a|attend']
//
// Prints the bytes, the characters of WGSL and the label of each. What another driver keeps, and where, is not known: 0 is printed.

import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { openDevice } from './webgpu-harness.mjs';

const EMPTY = `@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(32) fn main() { data[0] = 1u; }`;
const args = process.argv.slice(2);

if (args[0] === '--compile') {
  const opened = await openDevice();
  const code = readFileSync(args[1], 'utf8');
  const module = opened.device.createShaderModule({ code });
  await opened.device.createComputePipelineAsync({ layout: 'auto', compute: { module, entryPoint: 'main' } });
  process.exit(0);
}

const match = args.includes('--match') ? new RegExp(args.splice(args.indexOf('--match'), 2)[1]) : /./;
if (args.length === 0) {
  console.error('Name the files that bench/webgpu-step.mjs --texts wrote.');
  process.exit(2);
}
const texts = Object.assign({}, ...args.map((file) => JSON.parse(readFileSync(file, 'utf8'))));
const kernels = [['(empty)', EMPTY], ...Object.entries(texts).filter(([label]) => match.test(label))];
const scratch = mkdtempSync(join(tmpdir(), 'kvant-code-size-'));

const bytesIn = (folder) =>
  readdirSync(folder, { withFileTypes: true }).reduce((sum, entry) => {
    const path = join(folder, entry.name);
    return sum + (entry.isDirectory() ? bytesIn(path) : statSync(path).size);
  }, 0);

function sizeOf(text, name) {
  const folder = join(scratch, name);
  mkdirSync(folder);
  const file = `${folder}.wgsl`;
  writeFileSync(file, text);
  const env = { ...process.env, __GL_SHADER_DISK_CACHE: '1', __GL_SHADER_DISK_CACHE_PATH: folder };
  return new Promise((resolve) => {
    execFile(process.execPath, [fileURLToPath(import.meta.url), '--compile', file], { env }, (error) =>
      resolve(error === null ? String(bytesIn(folder)) : 'failed'),
    );
  });
}

let next = 0;
const sizes = [];
async function work() {
  while (next < kernels.length) {
    const at = next++;
    sizes[at] = await sizeOf(kernels[at][1], String(at));
  }
}
await Promise.all(Array.from({ length: availableParallelism() }, work));
rmSync(scratch, { recursive: true });
kernels.forEach(([label, text], i) => {
  console.log(`${sizes[i].padStart(8)} ${String(text.length).padStart(7)}  ${label}`);
});
