import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { StartReport } from '../../src/cli/bench/start-report.js';
import { kvant } from './kvant.js';

let folder: string;
let model: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-start-'));
  model = join(folder, 'demo');
  const { code, stdout } = await kvant(['bench', 'checkpoint', 'demo', model, '--vocab', '600', '--json']);
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({ shape: 'demo', folder: model });
});
afterAll(() => rm(folder, { recursive: true }));

const error = async (...args: string[]): Promise<object> =>
  JSON.parse((await kvant([...args, '--json'])).stdout).error;

describe('kvant bench start', () => {
  it('measures the command, an empty process, the read and the memory', async () => {
    const flags = ['--device', 'cpu', '--threads', '1', '--max-context', '256', '--max-rows', '2'];
    const { code, stdout } = await kvant([
      ...['bench', 'start', model, ...flags, '--no-prefix-cache'],
      ...['--rounds', '2', '--loads', '1', '--json'],
    ]);
    expect(code).toBe(0);
    const report = JSON.parse(stdout) as StartReport;
    expect(report).toMatchObject({ model, kind: 'cpu', device: expect.stringMatching(/^1 thread,/) });
    expect(report.rounds).toHaveLength(2);
    for (const { node, read, firstToken } of [...report.rounds, report.medians])
      for (const ms of [node, read, firstToken]) expect(ms).toBeGreaterThan(0);
    const { weights, kv, deviceBytes, loadedRss, peakRss } = report.memory;
    // K and V of f16: 256 positions of 2 rows, in 8 layers of 2 heads of 128.
    expect(kv).toBe(2 * 2 * 256 * 2 * 8 * 2 * 128);
    expect(deviceBytes).toBeGreaterThan(weights + kv);
    expect(peakRss).toBeGreaterThanOrEqual(loadedRss);
    expect(report.bounds.map(({ name }) => name)).toEqual(['start, ms', 'peak resident, bytes']);
  });

  it('says what a command that fails said', async () => {
    expect(
      await error('bench', 'start', model, '--device', 'cpu', '--max-context', '8', '--rounds', '1'),
    ).toMatchObject({
      code: 'bench-start-failed',
      message: expect.stringMatching(/kvant generate ended with code 2: .*8/s),
      fix: expect.stringContaining('kvant generate'),
    });
  });

  it('refuses what cannot be measured before it starts anything', async () => {
    expect(await error('bench', 'start', join(folder, 'none'))).toMatchObject({
      code: 'model-not-found',
    });
    expect(await error('bench', 'start', model, '--rounds', '0')).toMatchObject({ code: 'invalid-flags' });
    expect(await error('bench', 'start')).toMatchObject({ code: 'invalid-flags' });
    expect(await error('bench', 'checkpoint', 'gpt-9', join(folder, 'none'))).toMatchObject({
      code: 'invalid-flags',
      message: expect.stringContaining('llama-8b'),
    });
    expect(await error('bench', 'checkpoint', 'demo', folder)).toMatchObject({ code: 'folder-not-new' });
  });
});
