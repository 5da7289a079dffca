import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { Checkpoint } from '../weights/checkpoint.js';
import { parseModelConfig } from './families.js';
import { inspectModel } from './inspect.js';

const FIXTURES = fileURLToPath(new URL('../../test/fixtures/models/', import.meta.url));

describe('inspectModel', () => {
  it('counts what the files hold', async () => {
    await using checkpoint = await Checkpoint.open(join(FIXTURES, 'llama-bias'));
    const summary = inspectModel(checkpoint, parseModelConfig(checkpoint.config));
    expect(summary.parameters * 2).toBe(checkpoint.totalBytes);
    const small = summary.weights.at(-1);
    expect(small).toMatchObject({ kind: 'norms and biases', formats: ['f32'] });
    expect(summary.weights.reduce((sum, { parameters }) => sum + parameters, 0)).toBe(summary.parameters);
    expect(summary.weightBytes).toBe(checkpoint.totalBytes + (small?.parameters as number) * 2);
  });

  it('names the formats of a mixed checkpoint, most bytes first', async () => {
    await using checkpoint = await Checkpoint.open(join(FIXTURES, 'mlx-qwen3-mixed'));
    const summary = inspectModel(checkpoint, parseModelConfig(checkpoint.config));
    const attention = summary.weights.find(({ kind }) => kind === 'attention');
    expect(attention?.formats).toContain('2-bit (group 32)');
    expect(attention?.formats).toContain('8-bit (group 64)');
  });

  it('tells the cache of each layer', async () => {
    await using checkpoint = await Checkpoint.open(join(FIXTURES, 'qwen2-tied-sharded'));
    const { cache, kvBytesPerToken, groups } = inspectModel(checkpoint, parseModelConfig(checkpoint.config));
    expect(cache.map(({ kind, window }) => [kind, window])).toEqual([
      ['full', null],
      ['sliding', 32],
      ['sliding', 32],
    ]);
    expect(kvBytesPerToken).toBe(3 * 2 * 2 * 16 * 2);
    expect(groups.map(({ window }) => window)).toEqual([null, 32]);
    await using sliding = await Checkpoint.open(join(FIXTURES, 'mistral-window'));
    expect(inspectModel(sliding, parseModelConfig(sliding.config)).groups).toMatchObject([{ window: 64 }]);
  });
});
