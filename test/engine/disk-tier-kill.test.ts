import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { DiskTier } from '../../src/kv/disk/disk-tier.js';
import { Random } from '../devices/numbers.js';

const WRITER = fileURLToPath(new URL('./disk-tier-writer.mjs', import.meta.url));
const KEYS = 60;
const BYTES = 300_000;

/** The same as in the writer. */
function block(i: number): { key: string; tokens: Uint32Array; data: Uint8Array } {
  const digest = createHash('sha256').update(`block ${i}`).digest();
  return {
    key: digest.toString('hex').slice(0, 32),
    tokens: Uint32Array.from({ length: 16 }, (_, t) => i * 100 + t),
    data: new Uint8Array(BYTES).map((_, d) => digest[d % 31]! ^ (d >> 8)),
  };
}

/** A writer that has begun to write. */
async function writer(folder: string, seed: number): Promise<ChildProcess> {
  const child = spawn(process.execPath, [WRITER, folder, String(seed)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout!, 'data');
  return child;
}

it('two processes share a folder and are killed while they write, 50 times and more: what is found is right', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'kvant-kill-'));
  const random = new Random(11);
  const blocks = Array.from({ length: KEYS }, (_, i) => block(i));
  let found = 0;
  let halfWritten = 0;
  try {
    // On a busy machine they may be killed before much is written: then there are more rounds.
    const isEnough = (): boolean => halfWritten > 0 && found > 100;
    for (let round = 0; round < 25 || (round < 100 && !isEnough()); round++) {
      const children = await Promise.all([writer(folder, 2 * round), writer(folder, 2 * round + 1)]);
      for (const child of children) {
        await new Promise((resolve) => setTimeout(resolve, random.uniform() * 60));
        const ended = once(child, 'exit');
        child.kill('SIGKILL');
        // Not by itself: it has found nothing wrong.
        expect((await ended)[1]).toBe('SIGKILL');
      }
      halfWritten += readdirSync(folder, { recursive: true }).filter((name) =>
        String(name).endsWith('.tmp'),
      ).length;
      const tier = await DiskTier.open({ folder, maxBytes: 2 ** 30, signature: 'kill' });
      for (const wanted of blocks) {
        const there = tier.find([wanted.key]);
        const data = await tier.read([wanted], BYTES, 0, 5000);
        expect(data).toHaveLength(there);
        if (data[0] === undefined) continue;
        expect(Buffer.compare(data[0], wanted.data)).toBe(0);
        found++;
      }
      const { corrupt, foreign, readErrors } = tier.stats();
      expect({ corrupt, foreign, readErrors }).toEqual({ corrupt: 0, foreign: 0, readErrors: 0 });
      await tier.close();
      expect(readdirSync(folder, { recursive: true }).some((name) => String(name).endsWith('.tmp'))).toBe(
        false,
      );
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  // They were killed in the midst of it, and not before anything was there.
  expect(halfWritten).toBeGreaterThan(0);
  expect(found).toBeGreaterThan(100);
});
