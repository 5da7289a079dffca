import { expect, it, vi } from 'vitest';
import { hostConfig } from './engine/host-config.js';
import { isOn } from './env-flag.js';

it('reads what people write for yes', () => {
  for (const yes of ['1', 'true', 'TRUE', ' yes ', 'On']) expect(isOn(yes), yes).toBe(true);
  for (const no of [undefined, '', '0', 'false', 'no', 'off', '2']) expect(isOn(no), String(no)).toBe(false);
});

it('is how the resource log is asked for', () => {
  const origin = { kind: 'shape', name: 'tiny' } as const;
  for (const [text, on] of [
    ['true', true],
    ['1', true],
    ['0', false],
  ] as const) {
    vi.stubEnv('KVANT_RESOURCE_DEBUG', text);
    expect(hostConfig(origin, {}).resourceDebug).toBe(on);
    vi.unstubAllEnvs();
  }
});
