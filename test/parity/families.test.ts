/**
 * Every family against transformers, and every quantised layout against mlx: tiny checkpoints with random weights,
 * whose logits and greedy tokens were computed elsewhere (scripts/fixtures).
 */

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { ModelConfig } from '../../src/models/config.js';
import { parseModelConfig } from '../../src/models/families.js';
import { loadModel } from '../../src/models/load.js';
import type { RopeParameters } from '../../src/models/rope-frequencies.js';
import { Checkpoint } from '../../src/weights/checkpoint.js';
import { createReferenceDevice } from './reference-device.js';
import {
  decidedTokens,
  type ExpectedCase,
  expectedCases,
  largestDifference,
  loadFolder,
  MODEL_FIXTURES,
  Runner,
} from './runner.js';

const names = readdirSync(MODEL_FIXTURES, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name);

describe('the graphs of the families, in float64', () => {
  it.each(names)('%s', async (name) => {
    await using device = createReferenceDevice();
    const model = await loadFolder(join(MODEL_FIXTURES, name), device);
    for (const { prompt, logits, greedy, margins } of expectedCases(name)) {
      await using runner = await Runner.create(device, model, { context: 128, chunk: 48 });
      const result = await runner.generate(prompt, greedy.length);
      const difference = largestDifference(result.logits[0]!, logits);
      expect(difference).toBeLessThan(2e-4);
      const decided = decidedTokens(greedy, margins, 2e-4);
      expect(result.tokens.slice(0, decided.length)).toEqual(decided);
    }
  });
});

type Misreading = (config: ModelConfig) => ModelConfig;

const SCALED = [
  'llama-llama3',
  'llama-llama3-old',
  'llama-yarn',
  'llama-yarn-mscale',
  'llama-linear',
  'qwen3-untied-yarn',
];

const unscaled: Misreading = (config) => ({
  ...config,
  rope: { type: 'default', theta: config.rope.theta },
});

/** What a wrong reading of the config would do: each must be seen by the fixture that is there for it. */
const MISREADINGS: readonly (readonly [string, string, Misreading])[] = [
  ...SCALED.map((name) => [name, 'no scaling', unscaled] as const),
  [
    'llama-yarn',
    'no attention factor',
    (c) => ({ ...c, rope: { ...c.rope, attentionFactor: 1 } as RopeParameters }),
  ],
  [
    'llama-yarn-mscale',
    'rounded ramp',
    (c) => ({ ...c, rope: { ...c.rope, truncate: true } as RopeParameters }),
  ],
  ['mistral-window', 'no window', (c) => ({ ...c, windows: c.windows.map(() => null) })],
  ['mistral-window', 'a window of 65', (c) => ({ ...c, windows: c.windows.map(() => 65) })],
  ['qwen2-tied-sharded', 'all layers slide', (c) => ({ ...c, windows: c.windows.map(() => 32) })],
  ['llama-odd-f32-sharded', 'silu', (c) => ({ ...c, activation: 'silu' })],
  ['qwen3-tied', 'another epsilon', (c) => ({ ...c, rmsNormEps: 1e-2 })],
  ['gemma3-list', 'one rotation for all layers', (c) => ({ ...c, slidingRope: c.rope }) as ModelConfig],
  ['gemma3-list', 'scores scaled by head_dim', (c) => ({ ...c, attentionScale: 32 ** -0.5 }) as ModelConfig],
  ['gemma3-pattern', 'full layers not stretched', unscaled],
  ['gemma3-pattern', 'all layers slide', (c) => ({ ...c, windows: c.windows.map(() => 32) })],
];

describe('the fixtures', () => {
  it.each(MISREADINGS)('%s shows: %s', async (name, _, change) => {
    await using device = createReferenceDevice();
    await using checkpoint = await Checkpoint.open(join(MODEL_FIXTURES, name));
    const model = await loadModel(checkpoint, change(parseModelConfig(checkpoint.config)), device);
    const { prompt, logits } = expectedCases(name).at(-1) as ExpectedCase;
    await using runner = await Runner.create(device, model, { context: 128, chunk: 128 });
    const result = await runner.generate(prompt, 1);
    // The bound of a real device in its reference mode is 1e-3.
    expect(largestDifference(result.logits[0]!, logits)).toBeGreaterThan(2e-3);
  });
});
