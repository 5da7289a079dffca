/**
 * Prefixes on disk in the core, on the oracle device: what it draws depends on every token that is read back from a
 * sequence's blocks, so a block that was written, restored or taken wrongly gives other tokens.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import * as nodeFs from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { DiskFile, DiskFs } from '../../src/kv/disk/disk-fs.js';
import { DiskTier, type DiskTierOptions } from '../../src/kv/disk/disk-tier.js';
import { Harness, type HarnessOptions, randomPrompt, seeded, VOCAB } from './core-harness.js';
import { oracle } from './oracle-model.js';

const model = { vocab: VOCAB };
const computed = (harness: Harness): number => harness.device.log.reduce((sum, step) => sum + step.tokens, 0);

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-disk-core-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

async function start(options: HarnessOptions = {}, disk: Partial<DiskTierOptions> = {}): Promise<Harness> {
  const tier = await DiskTier.open({ folder, maxBytes: 2 ** 30, signature: 'oracle', ...disk });
  return Harness.start({ blocks: 256, maxContext: 256, ...options, prefixes: { disk: tier } });
}

/** Disk files are under way between steps: a turn of the event loop is not enough. */
async function settle(harness: Harness): Promise<void> {
  await harness.untilIdle();
  await harness.core.close();
}

const disk = (harness: Harness) => harness.core.stats().prefixCache!.disk!;

/** The real file system, whose reads do something first. */
function fsWith(beforeRead: () => Promise<void>): DiskFs {
  const real: DiskFs = nodeFs;
  return {
    open: async (path, flags) => {
      const file: DiskFile = await real.open(path, flags);
      return {
        read: async (to, offset, length, position) => {
          await beforeRead();
          return file.read(to, offset, length, position);
        },
        write: (from, offset, length, position) => file.write(from, offset, length, position),
        stat: () => file.stat(),
        utimes: (a, m) => file.utimes(a, m),
        sync: () => file.sync(),
        close: () => file.close(),
      };
    },
    mkdir: (path, options) => real.mkdir(path, options),
    readdir: (path) => real.readdir(path),
    stat: (path) => real.stat(path),
    rename: (from, to) => real.rename(from, to),
    unlink: (path) => real.unlink(path),
  };
}

describe('prefixes on disk in the core', () => {
  it('are found after a restart, whole and in part', async () => {
    const random = seeded(1);
    const prompt = randomPrompt(random, 100);
    const first = await start();
    const { ids } = await first.ask(prompt, { maxTokens: 40 });
    await settle(first);

    const second = await start();
    const ask = async (tokens: readonly number[], draws = 5): Promise<[number, number]> => {
      const before = computed(second);
      const answer = await second.ask(tokens, { maxTokens: draws });
      await second.untilIdle();
      expect(answer.ids).toEqual(oracle(tokens, draws, model));
      return [answer.cached!, computed(second) - before - (draws - 1)];
    };
    expect(await ask([...prompt.slice(0, 50), ...randomPrompt(random, 50)])).toEqual([48, 52]);
    expect(disk(second)).toMatchObject({ restoredBlocks: 3, restoredTokens: 48, corrupt: 0 });
    // Whole blocks: of the last prompt token one is left to compute.
    expect(await ask(prompt)).toEqual([96, 4]);
    expect(disk(second).restoredBlocks).toBe(6);
    // What was generated is there too: the last of it was never computed.
    expect(await ask([...prompt, ...ids, 1, 2, 3])).toEqual([128, 15]);
    expect(await ask(randomPrompt(random, 60))).toEqual([0, 60]);
    await settle(second);
    const third = await start();
    expect(disk(third)).toMatchObject({ readErrors: 0, corrupt: 0, foreign: 0 });
    expect((await third.ask(prompt, { maxTokens: 2 })).cached).toBe(96);
    await settle(third);
  });

  it('other signatures and salts share nothing', async () => {
    const prompt = randomPrompt(seeded(2), 60);
    const first = await start();
    await first.add(prompt, { maxTokens: 2 }, null, undefined, 'one').done;
    await settle(first);
    const second = await start({}, { signature: 'another' });
    const [other] = await second.add(prompt, { maxTokens: 2 }, null, undefined, 'one').done;
    expect(other!.cached).toBe(0);
    await settle(second);
    const third = await start();
    const cached = async (salt?: string): Promise<number> =>
      (await third.add(prompt, { maxTokens: 2 }, null, undefined, salt).done)[0]!.cached!;
    expect(await cached()).toBe(0);
    expect(await cached('two')).toBe(0);
    expect(await cached('one')).toBe(48);
    await settle(third);
  });

  it('rows go on while one waits for the disk, and those that begin like it wait with it', async () => {
    const random = seeded(3);
    const system = randomPrompt(random, 160);
    const first = await start();
    await first.ask(system, { maxTokens: 2 });
    await settle(first);

    let go = (): void => {};
    const gate = new Promise<void>((resolve) => {
      go = resolve;
    });
    const second = await start({ maxRows: 8 }, { fs: fsWith(() => gate) });
    const stranger = randomPrompt(random, 40);
    const running = second.add(stranger, { maxTokens: 60 });
    const prompts = Array.from({ length: 5 }, () => [...system, ...randomPrompt(random, 10)]);
    const jobs = prompts.map((prompt) => second.add(prompt, { maxTokens: 4 }));
    // The stranger is not held up by a single step.
    await running.done;
    expect(running.answers[0]!.ids).toEqual(oracle(stranger, 60, model));
    expect(second.core.stats()).toMatchObject({ queued: 5, prefilling: 0, decoding: 0 });
    expect(second.device.submitted).toBeLessThanOrEqual(63);
    go();
    for (const [i, job] of jobs.entries()) {
      const [answer] = await job.done;
      expect(answer!.ids).toEqual(oracle(prompts[i]!, 4, model));
      expect(answer!.cached).toBe(160);
    }
    expect(disk(second)).toMatchObject({ restoredBlocks: 10, readBlocks: 10 });
    await settle(second);
  });

  it('a disk that does not answer costs a bounded time, and then nothing', async () => {
    const random = seeded(4);
    const prompts = [randomPrompt(random, 100), randomPrompt(random, 100)];
    const first = await start();
    for (const prompt of prompts) await first.ask(prompt, { maxTokens: 2 });
    await settle(first);
    let tried = 0;
    let go = (): void => {};
    const gate = new Promise<void>((resolve) => {
      go = resolve;
    });
    const second = await start(
      {},
      {
        fs: fsWith(() => {
          tried++;
          return gate;
        }),
      },
    );
    for (const prompt of prompts) {
      const answer = await second.ask(prompt, { maxTokens: 3 });
      expect(answer.ids).toEqual(oracle(prompt, 3, model));
      expect(answer.cached).toBe(0);
      // The second one was not tried.
      expect(disk(second)).toMatchObject({ slowReads: 1, reading: false, restoredBlocks: 0 });
      expect(tried).toBe(2);
    }
    go();
    await settle(second);
  });

  it('files that are damaged or gone are computed, and written anew', async () => {
    const prompt = randomPrompt(seeded(5), 200);
    const first = await start();
    await first.ask(prompt, { maxTokens: 2 });
    await settle(first);
    const files = readdirSync(folder, { recursive: true })
      .map((name) => join(folder, String(name)))
      .filter((name) => name.endsWith('.kvb'));
    expect(files).toHaveLength(12);
    for (const [i, file] of files.entries()) {
      const bytes = readFileSync(file);
      bytes[(i * 37) % bytes.length]! ^= 0x10;
      writeFileSync(file, bytes);
    }
    const second = await start();
    const answer = await second.ask(prompt, { maxTokens: 3 });
    expect(answer.ids).toEqual(oracle(prompt, 3, model));
    expect(answer.cached).toBe(0);
    await settle(second);
    // Those behind the first are not known to be bad: a chain is read from its beginning.
    const third = await start();
    let last = await third.ask(prompt, { maxTokens: 3 });
    expect(last.ids).toEqual(oracle(prompt, 3, model));
    await settle(third);
    for (let round = 0; round < 12 && last.cached !== 192; round++) {
      const next = await start();
      last = await next.ask(prompt, { maxTokens: 3 });
      expect(last.ids).toEqual(oracle(prompt, 3, model));
      await settle(next);
    }
    expect(last.cached).toBe(192);
  });

  it('whoever is cancelled while it is read leaves nothing behind', async () => {
    const random = seeded(6);
    const prompts = Array.from({ length: 6 }, () => randomPrompt(random, 150));
    const first = await start();
    for (const prompt of prompts) await first.ask(prompt, { maxTokens: 2 });
    await settle(first);
    for (let turns = 0; turns < 24; turns++) {
      const harness = await start({ maxRows: 3 });
      const jobs = prompts.map((prompt) => harness.add(prompt, { maxTokens: 4 }));
      await harness.turns(turns);
      for (const job of jobs.slice(0, 4)) harness.core.cancel(job.id);
      for (const [i, job] of jobs.entries()) {
        const [answer] = await job.done;
        if (answer!.finish !== 'cancelled') expect(answer!.ids).toEqual(oracle(prompts[i]!, 4, model));
      }
      // Throws if a block is still held.
      if (turns % 2 === 0) await harness.untilIdle();
      await harness.core.close();
    }
  });

  it('float-start blocks and others are kept apart', async () => {
    const random = seeded(7);
    const [short, long] = [randomPrompt(random, 60), randomPrompt(random, 150)];
    const options = { floatStart: { tokens: 80, blocks: 64 } };
    const first = await start(options);
    for (const prompt of [short, long]) await first.ask(prompt, { maxTokens: 40 });
    await settle(first);
    const ask = async (prompt: readonly number[]): Promise<number> => {
      const harness = await start(options);
      const answer = await harness.ask(prompt, { maxTokens: 30 });
      expect(answer.ids).toEqual(oracle(prompt, 30, model, undefined, 0, [], 80));
      await settle(harness);
      return answer.cached!;
    };
    expect(await ask(short)).toBe(48);
    expect(await ask(long)).toBe(144);
    // The beginning of the long one, short of 80 tokens: as floats, which it once was.
    expect(await ask([...long.slice(0, 70), ...randomPrompt(random, 5)])).toBe(64);
    // A long one that agrees for fewer than 80 tokens goes on from floats.
    expect(await ask([...long.slice(0, 70), ...randomPrompt(random, 60)])).toBe(64);
    expect(await ask([...long.slice(0, 100), ...randomPrompt(random, 20)])).toBe(96);
  });

  it('a full pool and a small cap: every answer is right', async () => {
    const random = seeded(8);
    const systems = Array.from({ length: 4 }, () => randomPrompt(random, 96));
    for (let round = 0; round < 3; round++) {
      const harness = await start(
        { blocks: 24, maxRows: 4, maxContext: 192 },
        { maxBytes: 20 * 256, queueBytes: 5 * 256 },
      );
      const jobs: Promise<void>[] = [];
      for (let i = 0; i < 40; i++) {
        const prompt = [
          ...systems[Math.floor(random() * 4)]!,
          ...randomPrompt(random, 1 + Math.floor(random() * 40)),
        ];
        const job = harness.add(prompt, { maxTokens: 8 });
        jobs.push(
          job.done.then(([answer]) => {
            expect(answer!.ids).toEqual(oracle(prompt, 8, model));
          }),
        );
        await harness.turns(Math.floor(random() * 30));
      }
      await Promise.all(jobs);
      await settle(harness);
      const { writtenBlocks, bytes, corrupt, readErrors, writeErrors } = disk(harness);
      expect(writtenBlocks).toBeGreaterThan(0);
      expect(bytes).toBeLessThanOrEqual(20 * 256);
      expect(corrupt + readErrors + writeErrors).toBe(0);
    }
  });

  it('is emptied with the cache', async () => {
    const prompt = randomPrompt(seeded(9), 100);
    const harness = await start();
    await harness.ask(prompt, { maxTokens: 2 });
    await harness.untilIdle();
    await expect.poll(() => disk(harness).files).toBe(6);
    await harness.core.clearPrefixes();
    expect(disk(harness)).toMatchObject({ files: 0, bytes: 0 });
    expect(readdirSync(folder, { recursive: true }).some((name) => String(name).endsWith('.kvb'))).toBe(
      false,
    );
    expect((await harness.ask(prompt, { maxTokens: 2 })).cached).toBe(0);
    await settle(harness);
  });

  it('without it nothing is done', async () => {
    const harness = await Harness.start({ prefixes: {} });
    const read = harness.device.pools.values().next().value!;
    const prompt = randomPrompt(seeded(10), 40);
    let reads = 0;
    const original = read.read.bind(read);
    read.read = (blocks) => {
      reads++;
      return original(blocks);
    };
    await harness.ask(prompt, { maxTokens: 2 });
    expect(harness.core.stats().prefixCache!.disk).toBeUndefined();
    expect(reads).toBe(0);
    await settle(harness);
  });
});

it('whoever is read from disk gives back what it holds when a row would have to stop', async () => {
  const random = seeded(21);
  const system = randomPrompt(random, 160);
  const first = await start();
  await first.ask(system, { maxTokens: 2 });
  await settle(first);

  let gate = Promise.resolve();
  let go = (): void => {};
  const second = await start({ maxRows: 3, blocks: 16 }, { fs: fsWith(() => gate) });
  await second.ask(system.slice(0, 81), { maxTokens: 1 });
  await second.untilIdle();
  gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  // Five blocks of it are in memory: they are held while the others are read.
  const prompt = [...system, 1, 2, 3];
  const waiting = second.add(prompt, { maxTokens: 5 });
  const stranger = randomPrompt(random, 10);
  const running = second.add(stranger, { maxTokens: 200 });
  while (second.core.stats().blocksUsed < 6) await second.turns(1);
  expect(second.core.stats()).toMatchObject({ queued: 1, decoding: 1 });
  // Fourteen blocks in the end, of sixteen.
  await running.done;
  expect(running.answers[0]!.ids).toEqual(oracle(stranger, 200, model));
  expect(disk(second).slowReads).toBe(0);
  expect(second.core.stats().preemptions).toBe(0);
  const [answer] = await waiting.done;
  expect(answer!.ids).toEqual(oracle(prompt, 5, model));
  go();
  await settle(second);
});
