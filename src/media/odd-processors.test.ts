/** Pixels where preprocessor_config.json says other than usual, beside transformers' own (scripts/fixtures/odd_processors.py): no bit off. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { picture } from '../../test/setup/picture.js';
import type { TowerInput } from './processor.js';
import { readProcessor } from './read-processor.js';

const { size, cases } = JSON.parse(
  readFileSync(new URL('../../test/fixtures/media/odd-processors.json', import.meta.url), 'utf8'),
) as {
  readonly size: readonly [number, number];
  readonly cases: readonly (TowerInput & {
    readonly config: { readonly image_processor_type: string };
    readonly sha256: string;
  })[];
};

it.each(cases.map((one) => [JSON.stringify(one.config), one] as const))('%s', (_, one) => {
  const patches = readProcessor(one.config, one).patches(picture(...size, 5));
  expect(createHash('sha256').update(new Uint8Array(patches.buffer)).digest('hex')).toBe(one.sha256);
});
