/**
 * The walk "add a sampling parameter" of docs/extending.md: an entry of the table, a column and a feature, and requests
 * by HTTP, library and command line know it and draw by it.
 */
import { Command } from 'commander';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { addSamplingFlags, samplingOptions } from '../../src/cli/sampling-flags.js';
import { FEATURE } from '../../src/device/sampling.js';
import type { SamplingOptions, SamplingParams } from '../../src/sampling/options.js';
import { resolveSampling, samplingFromWire } from '../../src/sampling/params.js';
import { COLUMNS, WANTED } from '../../src/sampling/row-sampling.js';
import { FIELD_NAMES, FIELDS, type FieldRule } from '../../src/sampling/schema.js';
import { Harness } from './core-harness.js';

/** Weakens what has been seen, as the repetition penalty does, but is said as 1 less. */
const toy: FieldRule = {
  wire: 'toy_weakening',
  takes: 'a number from 0 to 9',
  accepts: (value) => typeof value === 'number' && value >= 0 && value <= 9,
  fallback: 0,
  flag: { argument: '<n>', help: 'weakens tokens seen', shape: { number: [0, 9] } },
};
const weakening = (p: SamplingParams): number => (p as unknown as { toyWeakening: number }).toyWeakening;
const columns = COLUMNS as (typeof COLUMNS)[number][];
const wanted = WANTED as (typeof WANTED)[number][];
const fields = FIELDS as unknown as Record<string, FieldRule>;
const names = FIELD_NAMES as string[];

describe('a toy sampling parameter', () => {
  beforeAll(() => {
    fields.toyWeakening = toy;
    names.push('toyWeakening');
    columns.push(['repetitionPenalty', (p) => Math.max(p.repetitionPenalty, 1 + weakening(p))]);
    wanted.push([FEATURE.REPETITION, (p) => weakening(p) > 0]);
  });
  afterAll(() => {
    delete fields.toyWeakening;
    names.pop();
    columns.pop();
    wanted.pop();
  });

  it('is read from a body, a library request and a flag, and refused where it takes no such value', () => {
    const options = { toyWeakening: 3 } as SamplingOptions;
    expect(samplingFromWire({ toy_weakening: 3 })).toEqual(options);
    expect(() => samplingFromWire({ toy_weakening: 10 })).toThrow(
      expect.objectContaining({ code: 'invalid-parameter', where: 'toy_weakening' }),
    );
    expect(resolveSampling(options)).toMatchObject({ toyWeakening: 3 });
    expect(resolveSampling({})).toMatchObject({ toyWeakening: 0 });
    const command = addSamplingFlags(new Command()).exitOverride();
    command.parse(['node', 'kvant', '--toy-weakening', '3']);
    expect(samplingOptions(command.opts())).toEqual(options);
    expect(command.helpInformation()).toContain('--toy-weakening <n>');
  });

  it('changes the draws as the kernels are told', async () => {
    const answer = async (sampling: SamplingOptions): Promise<readonly number[]> => {
      const harness = await Harness.start({ maxRows: 1, blocks: 20 });
      const [one] = await harness.add([5, 9, 31, 7], { maxTokens: 20, ...sampling }).done;
      await harness.core.close();
      return one!.ids;
    };
    const weakened = await answer({ toyWeakening: 3 } as SamplingOptions);
    expect(weakened).toEqual(await answer({ repetitionPenalty: 4 }));
    expect(weakened).not.toEqual(await answer({}));
  });
});
