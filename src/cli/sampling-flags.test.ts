import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { resolveSampling } from '../sampling/params.js';
import { addSamplingFlags, type SamplingFlags, samplingOptions } from './sampling-flags.js';

function parse(...args: string[]): ReturnType<typeof samplingOptions> {
  const command = addSamplingFlags(new Command()).exitOverride();
  command.configureOutput({ writeErr: () => {} });
  command.parse(['node', 'kvant', ...args]);
  return samplingOptions(command.opts<SamplingFlags>());
}

describe('sampling flags', () => {
  it('say nothing where nothing is said', () => {
    expect(parse()).toEqual({});
  });

  it('take every parameter by its name', () => {
    const given: Record<string, [string, unknown]> = {
      maxTokens: ['9', 9],
      minTokens: ['3', 3],
      temperature: ['0.5', 0.5],
      topK: ['-1', -1],
      topP: ['0.9', 0.9],
      minP: ['0.1', 0.1],
      typicalP: ['0.8', 0.8],
      topNSigma: ['1.5', 1.5],
      xtcProbability: ['0.5', 0.5],
      xtcThreshold: ['0.2', 0.2],
      mirostat: ['0', 0],
      mirostatTau: ['4', 4],
      mirostatEta: ['0.2', 0.2],
      repetitionPenalty: ['1.1', 1.1],
      repetitionContextSize: ['64', 64],
      frequencyPenalty: ['-0.5', -0.5],
      presencePenalty: ['0.5', 0.5],
      dryMultiplier: ['0.8', 0.8],
      dryBase: ['1.5', 1.5],
      dryAllowedLength: ['3', 3],
      dryPenaltyLastN: ['-1', -1],
      seed: ['-7', -7],
      suppressTokens: ['5,17', [5, 17]],
      stopTokenIds: ['2', [2]],
    };
    const args = Object.entries(given).flatMap(([name, [text]]) => [
      `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`,
      text,
    ]);
    const options = parse(
      ...args,
      '--logit-bias',
      '42=-100',
      '7=1.5',
      '--bad-words',
      'a b',
      'c',
      '--stop',
      'x',
    );
    expect(options).toEqual({
      ...Object.fromEntries(Object.entries(given).map(([name, [, value]]) => [name, value])),
      logitBias: { 42: -100, 7: 1.5 },
      badWords: ['a b', 'c'],
      stop: ['x'],
    });
    expect(resolveSampling(options)).toMatchObject({
      repetitionPenalty: 1.1,
      logitBias: [
        [7, 1.5],
        [42, -100],
      ],
    });
  });

  it('read breakers with escapes, and the other name of the repetition penalty', () => {
    expect(parse('--dry-sequence-breaker', '\\n', ':', '--repeat-penalty', '1.2')).toEqual({
      drySequenceBreakers: ['\n', ':'],
      repetitionPenalty: 1.2,
    });
  });

  it.each([
    ['--logit-bias', 'x=1'],
    ['--logit-bias', '5=101'],
    ['--frequency-penalty', '3'],
    ['--mirostat', '1'],
    ['--suppress-tokens', '-4'],
  ])('refuse %s %s', (flag, value) => {
    expect(() => parse(flag, value)).toThrow();
  });
});
