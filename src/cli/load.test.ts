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
