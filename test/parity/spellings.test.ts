/**
 * Other spellings of checkpoints: what transformers loads is loaded here, with the same logits (scripts/fixtures/spellings.py).
 * Where transformers makes weights up, or computes nonsense, kvant refuses, or does what was meant.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadModel } from '../../src/models/load.js';
import { openModel } from '../../src/models/open.js';
import { loadGenerationConfig } from '../../src/text/generation-config.js';
import { readPacked } from '../fixtures/read-packed.js';
import { createReferenceDevice } from './reference-device.js';
import { expectedCases, largestDifference, MODEL_FIXTURES, Runner } from './runner.js';
import { buildSpelling, type Spelling } from './spelling.js';

const { cases } = readPacked(join(MODEL_FIXTURES, 'spellings.json.br')) as {
  cases: Readonly<Record<string, Spelling>>;
};

/** Refused though transformers loads it, with the code. */
const REFUSED: Readonly<Record<string, string>> = {
  // Every token sees none: no such model was trained.
  'mistral-window-zero': 'model-config',
  'mistral-window-minus': 'model-config',
  // The bias was learnt: to leave it out is to compute another model.
  'extra-bias': 'weights-tensor-extra',
  // transformers reads no theta out of it, and takes 10,000.
  'rope-parameters-by-layer': 'model-config-unsupported',
};

/** Refused as transformers refuses it, or makes tensors up for it, with the code. What is not here means the base. */
const BEYOND: Readonly<Record<string, string>> = {
  'eos-false': 'model-config',
  'act-upper': 'model-config-unsupported',
  'rope-scaling-su': 'model-config-unsupported',
  'rope-scaling-mrope': 'model-config-unsupported',
  'window-types-slide-unused': 'model-config',
  'tied-false-no-head': 'weights-tensor-missing',
  'untied-embedding-alone': 'weights-tensor-missing',
  'missing-norm': 'weights-tensor-missing',
  'vocab-padded': 'weights-tensor-shape',
  'vocab-smaller': 'weights-tensor-shape',
  'index-extra': 'weights-shard-missing',
};

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-spellings-'));
});
afterAll(() => rm(scratch, { recursive: true }));

/** A long prompt, which takes ten times as long, shows what rotation and windows do. */
const casesOf = (name: string, { base }: Spelling) =>
  expectedCases(base).slice(0, /rope|rotary|window/.test(name) ? 2 : 1);

async function logitsOf(name: string, spelling: Spelling): Promise<Float32Array[]> {
  const folder = join(scratch, name);
  await buildSpelling(spelling, folder);
  await using device = createReferenceDevice();
  await using opened = await openModel(folder);
  const model = await loadModel(opened.source, opened.definition, device);
  await using runner = await Runner.create(device, model, { context: 128, chunk: 128 });
  const logits: Float32Array[] = [];
  for (const { prompt } of casesOf(name, spelling))
    logits.push((await runner.generate(prompt, 1)).logits[0]!);
  return logits;
}

function expectClose(found: readonly Float32Array[], expected: readonly (readonly number[])[]): void {
  for (const [i, logits] of found.entries())
    expect(largestDifference(logits, expected[i]!)).toBeLessThan(2e-4);
}

const baseLogits = (name: string, spelling: Spelling): readonly (readonly number[])[] =>
  casesOf(name, spelling).map(({ logits }) => logits);

const loads = Object.entries(cases).filter(
  ([name, { transformers }]) =>
    transformers.refused === undefined && transformers.missing === undefined && !(name in REFUSED),
);

describe('what transformers loads', () => {
  it.each(loads)('%s', async (name, spelling) => {
    const { same, logits, eos } = spelling.transformers;
    expectClose(await logitsOf(name, spelling), same ? baseLogits(name, spelling) : logits!);
    const { eosTokenIds } = await loadGenerationConfig(join(scratch, name));
    // kvant also ends at those of config.json where generation_config.json names others.
    const wanted = [eos ?? []].flat().filter((id) => id >= 0);
    expect(eosTokenIds).toEqual(expect.arrayContaining(wanted));
    if (!name.startsWith('eos-generation')) expect(eosTokenIds).toEqual(wanted);
  });
});

describe('what is refused though transformers loads it', () => {
  it.each(Object.entries(REFUSED))('%s: %s', async (name, code) => {
    await expect(logitsOf(name, cases[name]!)).rejects.toMatchObject({ code, fix: expect.any(String) });
  });
});

describe('what transformers refuses, or makes tensors up for', () => {
  const beyond = Object.entries(cases).filter(([, { transformers: t }]) => t.refused ?? t.missing);
  it.each(beyond)('%s', async (name, spelling) => {
    const code = BEYOND[name];
    if (code === undefined) expectClose(await logitsOf(name, spelling), baseLogits(name, spelling));
    else await expect(logitsOf(name, spelling)).rejects.toMatchObject({ code, fix: expect.any(String) });
  });
});
