import { describe, expect, it } from 'vitest';
import { isAddress, isLocalOnly, isLoopback, readAuthority } from './authority.js';

describe('readAuthority', () => {
  it.each([
    ['localhost', 'localhost', ''],
    ['LOCALHOST.:8080', 'localhost', '8080'],
    ['localhost:', 'localhost', ''],
    ['127.1.2.3:1', '127.1.2.3', '1'],
    ['127.1', '127.0.0.1', ''],
    ['0x7f000001', '127.0.0.1', ''],
    ['127.0.0.1.:80', '127.0.0.1', '80'],
    ['[::1]:8080', '[::1]', '8080'],
    ['[0:0:0:0:0:0:0:1]', '[::1]', ''],
    ['[::ffff:127.0.0.1]:8080', '127.0.0.1', '8080'],
    ['[::FFFF:C0A8:105]', '192.168.1.5', ''],
    ['host.docker.internal:11434', 'host.docker.internal', '11434'],
    ['my_service', 'my_service', ''],
  ])('reads %s', (text, name, port) => {
    expect(readAuthority(text)).toEqual({ name, port });
  });

  it.each([
    '',
    ' ',
    'a b',
    'localhost, evil.example',
    'user@localhost',
    'localhost:80:80',
    'localhost:65536',
    'localhost:port',
    'localhost/x',
    'localhost?x',
    'localhost#x',
    '%6cocalhost',
    'löcalhost',
    '::1',
    '[::1',
    '[evil]',
    '[::1].evil.example',
    '1.2.3.4.5',
    '.',
    '.localhost',
  ])('reads nothing in "%s"', (text) => {
    expect(readAuthority(text)).toBeNull();
  });
});

describe('isLoopback', () => {
  it.each(['localhost', 'app.localhost', '127.0.0.1', '127.255.1.2', '[::1]', '0.0.0.0', '[::]'])(
    'takes %s',
    (name) => {
      expect(isLoopback(name)).toBe(true);
    },
  );
  it.each([
    'evil.example',
    'localhost.evil.example',
    'notlocalhost',
    '127.0.0.1.evil.example',
    '127.evil.example',
    '128.0.0.1',
    '10.0.0.1',
    '[::2]',
    '[fe80::1]',
    'host.docker.internal',
  ])('refuses %s', (name) => {
    expect(isLoopback(name)).toBe(false);
  });
});

it('tells addresses from names', () => {
  expect(['10.0.0.1', '[fd00::1]', 'a.b', '10.0.0.1.example'].map(isAddress)).toEqual([
    true,
    true,
    false,
    false,
  ]);
});

it('tells what only this machine reaches', () => {
  const hosts = [
    '127.0.0.1',
    'localhost',
    '::1',
    '127.0.0.2',
    '::ffff:127.0.0.1',
    '0.0.0.0',
    '::',
    '10.0.0.1',
    'box.lan',
  ];
  expect(hosts.filter(isLocalOnly)).toEqual(hosts.slice(0, 5));
});
