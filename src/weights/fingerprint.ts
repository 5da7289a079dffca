/**
 * Tells the weights in a folder from others without reading them: for what is kept on disk beyond the life of a process.
 * Weights that changed have another fingerprint; the same ones may have another too (a copy with another date), and
 * then only what was kept is of no use.
 */

import { createHash, type Hash } from 'node:crypto';
import { open, readdir, readFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';

import { isGgufFile } from './gguf-path.js';
import { chooseProjector } from './projectors.js';
import { findWeights } from './shards.js';

const SAMPLES = 16;
const SAMPLE_BYTES = 4096;

/**
 * 32 hexadecimal digits of all config.json, and of each safetensors file, or of the GGUF file, its name, size, date, and samples of its bytes from
 * the first (its header) to the last; of a GGUF file also of what sees for it.
 *
 * @param mmproj what sees, where it was asked for
 */
export async function weightsFingerprint(path: string, mmproj?: string): Promise<string> {
  const hash = createHash('sha256');
  if (await isGgufFile(path)) {
    // Of a set each file has its name from the first, and they are written together.
    await addFile(hash, dirname(path), basename(path));
    const projector = (await chooseProjector(path, mmproj))?.path;
    if (projector !== undefined) await addFile(hash, dirname(projector), basename(projector));
  } else await addFolder(hash, path);
  return hash.digest('hex').slice(0, 32);
}

async function addFolder(hash: Hash, folder: string): Promise<void> {
  const config = await readFile(join(folder, 'config.json')).catch(() => Buffer.alloc(0));
  hash.update(`config ${config.length}\n`).update(config);
  const beside = (await readdir(folder)).filter((name) => name.endsWith('.safetensors'));
  const { files } = await findWeights(folder);
  const names = [...new Set([...beside, ...files])].sort();
  for (const name of names) await addFile(hash, folder, name);
}

async function addFile(hash: Hash, folder: string, name: string): Promise<void> {
  const sample = Buffer.alloc(SAMPLE_BYTES);
  const file = await open(join(folder, name), 'r');
  try {
    const { size, mtimeMs } = await file.stat();
    hash.update(`file ${JSON.stringify(name)} ${size} ${Math.floor(mtimeMs)}\n`);
    const last = Math.max(0, size - SAMPLE_BYTES);
    for (let i = 0; i < SAMPLES; i++) {
      const at = Math.floor((last * i) / (SAMPLES - 1));
      const { bytesRead } = await file.read(sample, 0, SAMPLE_BYTES, at);
      hash.update(sample.subarray(0, bytesRead));
    }
  } finally {
    await file.close();
  }
}
