import { expect, it } from 'vitest';
import { addressGroup } from './connections.js';

it.each([
  ['10.1.2.3', '10.1.2.3'],
  ['::ffff:10.1.2.3', '10.1.2.3'],
  ['::1', '0:0:0:0'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
  ['2001:db8:1:2::6', '2001:db8:1:2'],
  ['2001:db8::6', '2001:db8:0:0'],
  ['fe80::1%eth0', 'fe80:0:0:0'],
  ['::', '0:0:0:0'],
])('counts the connections of %s as those of %s', (address, group) => {
  expect(addressGroup(address)).toBe(group);
});

it('counts what has no address with nobody', () => {
  expect(addressGroup(undefined)).toBe('');
});
