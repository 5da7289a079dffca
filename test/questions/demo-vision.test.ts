/**
 * demo-vision answers questions about pictures at the rate of its card, which is all of them, whatever the format of its KV cache: one in a
 * hundred may be lost. On the GPU with KVANT_TEST_GPU=1; or `kvant eval models/demo-vision --set test/fixtures/eval/vision.jsonl.br`.
 */
import { expect, it } from 'vitest';
import { evalFormat } from '../../src/cli/eval/kv-formats.js';
import { askAll, readQuestions } from '../../src/cli/eval/question-sets.js';
import { Engine } from '../../src/engine/engine.js';
import { everyCase } from '../setup/every-case.js';

const device = process.env.KVANT_TEST_GPU === '1' ? 'webgpu' : 'cpu';

const FORMATS: readonly (readonly [name: string, every: number])[] = [
  ['f16', 1],
  ['affine4', 1],
  ['affine8', 3],
  ['turbo3.5', 3],
  // The last layer's too.
  ...(everyCase ? (['affine8', 'affine4', 'turbo3.5'] as const) : []).map(
    (name) => [`${name}:all-layers`, 1] as const,
  ),
];

it.each(FORMATS)('with a cache in %s', { timeout: 600_000 }, async (name, every) => {
  const all = await readQuestions('test/fixtures/eval/vision.jsonl.br');
  const questions = all.filter((_, i) => everyCase || i % every === 0);
  expect(questions.length).toBeGreaterThanOrEqual(18);
  await using engine = await Engine.load('models/demo-vision', {
    device,
    maxContext: 512,
    ...evalFormat(name).kv,
  });
  expect(engine.info.device.kind).toBe(device);
  const { right, referenceRight, wrong } = await askAll(engine, 'vision', questions);
  expect(referenceRight).toBe(questions.length);
  expect(questions.length - right, JSON.stringify(wrong)).toBeLessThanOrEqual(
    Math.floor(questions.length / 100),
  );
});
