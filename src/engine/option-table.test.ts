/** The walk "add an engine option" of docs/extending.md: an entry of the table, and it is checked and told to the engine's thread. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hostConfig } from './host-config.js';
import { checkOptions } from './host-options.js';
import { type EngineOption, OPTION_TABLE } from './option-table.js';
import type { EngineOptions } from './types.js';

const table = OPTION_TABLE as Record<string, EngineOption>;
const toy: EngineOption = {
  host: true,
  takes: 'a colour',
  accepts: (value) => value === 'red' || value === 'blue',
};
const given = (options: object): EngineOptions => options as EngineOptions;

describe('a toy option', () => {
  beforeAll(() => {
    table.toyColour = toy;
  });
  afterAll(() => {
    delete table.toyColour;
  });

  it('is refused where it takes no such value, and reaches the engine’s thread', () => {
    const known = { toyColour: true, kvBits: true, name: true } as const;
    const options = given({ toyColour: 'red', kvBits: 4, name: 'x' });
    checkOptions(options, known);
    expect(() => checkOptions(given({ toyColour: 'green' }), known)).toThrow(
      expect.objectContaining({
        code: 'invalid-option',
        where: 'toyColour',
        message: '`toyColour` is green; it takes a colour.',
      }),
    );
    const config = hostConfig({ kind: 'folder', path: '/m' }, options);
    expect(config).toMatchObject({ toyColour: 'red', kv: { kvBits: 4 }, device: 'auto', prefixCache: true });
    expect(config).not.toHaveProperty('name');
    expect(config).not.toHaveProperty('kvBits');
  });
});
