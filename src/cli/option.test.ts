import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { logLevelFlag } from './flags.js';
import { Option } from './option.js';

const parse = (option: Option, ...args: string[]): unknown => {
  const command = new Command().exitOverride().configureOutput({ writeErr: () => {} });
  command.addOption(option).parse(args, { from: 'user' });
  return Object.values(command.opts())[0];
};

describe('Option', () => {
  it('takes the names of choices in any case, and gives them as they are listed', () => {
    for (const given of ['debug', 'DEBUG', 'Debug'])
      expect(parse(logLevelFlag('info'), '--log-level', given)).toBe('debug');
    expect(parse(logLevelFlag('info'))).toBe('info');
    expect(parse(new Option('--x <name>').choices(['aB', 'cd']), '--x', 'AB')).toBe('aB');
  });

  it('refuses others, and lists the choices', () => {
    expect(() => parse(logLevelFlag('info'), '--log-level', 'loud')).toThrow(/silent, error, warn/);
  });
});
