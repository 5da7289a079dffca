import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { kvant } from './kvant.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;

describe('kvant tune', () => {
  let cache: string;
  beforeAll(async () => {
    cache = await mkdtemp(join(tmpdir(), 'kvant-tune-'));
  });
  afterAll(async () => {
    await rm(cache, { recursive: true });
  });
  const run = (...args: string[]) => kvant(args, { env: { KVANT_CACHE: cache } });

  it('says so where there is nothing to choose, and leaves nothing behind', async () => {
    const ran = await run('tune', MODEL, '--device', 'cpu');
    expect(ran).toMatchObject({ code: 0 });
    expect(ran.stdout).toContain('nothing to tune');
    const { stdout } = await run('tune', MODEL, '--device', 'cpu', '--json');
    expect(JSON.parse(stdout)).toMatchObject({ mode: 'off', decisions: [] });
    expect(await readdir(cache)).toEqual([]);
  });

  it.each([
    [['tune'], 'One of a model and --shapes is needed'],
    [['tune', MODEL, '--shapes', 'tiny'], 'shapes'],
    [['tune', MODEL, '--deterministic'], 'every sum has one order'],
    [['generate', MODEL, '--prompt', 'x', '--autotune', 'fast'], 'Allowed choices are off, safe, full'],
  ])('refuses %j', async (args, message) => {
    const ran = await run(...args);
    expect(ran.code).not.toBe(0);
    expect(ran.stderr).toContain(message);
  });

  it('tuned or not, a CPU answers the same', async () => {
    const ask = ['generate', MODEL, '--device', 'cpu', '--prompt', 'Hello', '--json'];
    const sampling = ['--temperature', '0', '--max-tokens', '4'];
    const [plain, tuned] = await Promise.all([
      run(...ask, ...sampling),
      run(...ask, ...sampling, '--autotune', 'full'),
    ]);
    expect(tuned!.code).toBe(0);
    expect(JSON.parse(tuned!.stdout).tokenIds).toEqual(JSON.parse(plain!.stdout).tokenIds);
    expect(await readdir(cache)).toEqual([]);
  });
});
