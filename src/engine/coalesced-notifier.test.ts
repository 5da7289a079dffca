import { expect, it } from 'vitest';
import { CoalescedNotifier } from './coalesced-notifier.js';

it('tells when the turn is over, in order, and those that come meanwhile in the next one', async () => {
  const told: string[] = [];
  const once = new CoalescedNotifier();
  const reader = (name: string) => ({ tell: () => void told.push(name) });
  once.tell(reader('a'));
  once.tell({
    tell: () => {
      told.push('b');
      once.tell(reader('c'));
    },
  });
  await Promise.resolve();
  expect(told).toEqual([]);
  await new Promise((resolve) => setImmediate(resolve));
  expect(told).toEqual(['a', 'b']);
  await new Promise((resolve) => setImmediate(resolve));
  expect(told).toEqual(['a', 'b', 'c']);
});
