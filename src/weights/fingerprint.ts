/**
 * Tells the weights in a folder from others without reading them: for what is kept on disk beyond the life of a process.
 * Weights that changed have another fingerprint; the same ones may have another too (a copy with another date), and
 * then only what was kept is of no use.
 */

import { createHash } from 'node:crypto';
import { open, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findWeights } from './shards.js';

const SAMPLES = 16;
const SAMPLE_BYTES = 4096;

/**
 * 32 hexadecimal digits of all config.json, and of each safetensors file its name, size, date, and samples of its bytes from
 * the first (its header) to the last.
 */
export async function weightsFingerprint(folder: string): Promise<string> {
  const hash = createHash('sha256');
  const config = await readFile(join(folder, 'config.json')).catch(() => Buffer.alloc(0));
  hash.update(`config ${config.length}\n`).update(config);
  const beside = (await readdir(folder)).filter((name) => name.endsWith('.safetensors'));
  const { files } = await findWeights(folder);
  const names = [...new Set([...beside, ...files])].sort();
  const sample = Buffer.alloc(SAMPLE_BYTES);
  for (const name of names) {
    const file = await open(join(folder, name), 'r');
    try {
      const { size, mtimeMs } = await file.stat();
      hash.update(`file ${JSON.stringify(name)} ${size} ${Math.floor(mtimeMs)}\n`);
      const last = Math.max(0, size - SAMPLE_BYTES);
      for (let i = 0; i < SAMPLES; i++) {
        const { bytesRead } = await file.read(
          sample,
          0,
          SAMPLE_BYTES,
          Math.floor((last * i) / (SAMPLES - 1)),
        );
        hash.update(sample.subarray(0, bytesRead));
      }
    } finally {
      await file.close();
    }
  }
  return hash.digest('hex').slice(0, 32);
}
