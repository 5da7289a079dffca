import { expect, it } from 'vitest';
import { Staging } from './staging.js';

it('rooms are used again, and grow', () => {
  const staging = new Staging();
  const a = staging.take(100);
  const b = staging.take(50);
  expect([a.byteLength, b.byteLength, staging.bytes]).toEqual([100, 50, 150]);
  staging.give(a);
  expect(staging.take(80)).toBe(a);
  staging.give(b);
  // Too small, so another takes its place.
  const c = staging.take(60);
  expect(c.byteLength).toBe(60);
  expect(staging.bytes).toBe(160);
  staging.give(c);
  staging.clear();
  expect(staging.bytes).toBe(100);
  expect(staging.take(60)).not.toBe(c);
});
