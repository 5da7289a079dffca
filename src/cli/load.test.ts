import { expect, it } from 'vitest';
import { groupLine, loadEngine } from './load.js';
import type { LoadLog } from './log.js';

it('the load log has a line for each cache group', async () => {
  const told: Record<string, unknown>[] = [];
  const log = { isLevelEnabled: () => true, info: (fields: object) => told.push({ ...fields }) };
  const options = { device: 'cpu', maxRows: 2, maxContext: 64 } as const;
  await using engine = await loadEngine('models/demo-text', options, log as unknown as LoadLog);
  const { kvGroups } = told.find((fields) => 'kvGroups' in fields)!;
  expect(kvGroups).toEqual(engine.info.kv.groups.map(groupLine));
});

it('the load log has the effective format of each layer, and why it is another than was asked for', async () => {
  const loaded = async (model: string, options: object): Promise<Record<string, unknown>> => {
    const told: Record<string, unknown>[] = [];
    const log = { isLevelEnabled: () => true, info: (fields: object) => told.push({ ...fields }) };
    await using _ = await loadEngine(
      model,
      { device: 'cpu', maxRows: 2, maxContext: 64, ...options },
      log as unknown as LoadLog,
    );
    return told.find((fields) => 'kvGroups' in fields)!;
  };
  const hybrid = await loaded('models/demo-hybrid', { kvFormat: 'turbo3.5' });
  expect(hybrid.kv).toEqual(
    [0, 1, 2, 3, 4, 5, 6, 7].map((l) => (l % 4 === 3 ? 'turbo3/turbo4' : 'f32 state')),
  );
  expect(hybrid).not.toHaveProperty('kvReasons');
  const all = await loaded('models/demo-text', { kvFormat: 'turbo4' });
  expect(all.kv).toEqual([...Array(7).fill('turbo4'), 'f16']);
  const kept = Object.entries(all.kvReasons as Record<string, string>);
  expect(kept).toEqual([[expect.stringMatching(/last/), 'layer 7']]);
});

it('a line for each kind of group', () => {
  const group = { layers: [0, 2], window: null, blocks: 9, bytesPerToken: 24, stateBytes: 0 };
  expect(groupLine(group)).toBe('2 layers, full: 9 blocks, 24 B a token');
  expect(groupLine({ ...group, layers: [1], window: 512 })).toBe(
    '1 layer, sliding window 512: 9 blocks, 24 B a token',
  );
  expect(groupLine({ ...group, head: 32 })).toBe('2 layers, first 32 tokens: 9 blocks, 24 B a token');
  expect(groupLine({ ...group, bytesPerToken: 0, stateBytes: 2048 })).toBe(
    '2 layers, recurrent: 9 states of 2.0 KiB',
  );
});
