import { describe, expect, it } from 'vitest';
import { proxySettings } from './proxy-settings.js';

const HUB = 'https://huggingface.co/Qwen';
const through = (env: Record<string, string>, url = HUB): string | undefined =>
  proxySettings(env)?.(new URL(url))?.address;

describe('proxySettings', () => {
  it.each([
    [{ HTTPS_PROXY: 'http://p:3128' }, HUB, 'http://p:3128'],
    [{ https_proxy: 'http://p:3128' }, HUB, 'http://p:3128'],
    [{ https_proxy: 'http://low:1', HTTPS_PROXY: 'http://up:1' }, HUB, 'http://low:1'],
    [{ https_proxy: '', HTTPS_PROXY: 'http://up:1' }, HUB, 'http://up:1'],
    [{ HTTPS_PROXY: 'p:3128' }, HUB, 'http://p:3128'],
    [{ HTTPS_PROXY: 'https://p:8443/' }, HUB, 'https://p:8443'],
    [{ ALL_PROXY: 'socks5://p:1080' }, HUB, 'socks5://p:1080'],
    [{ all_proxy: 'socks5h://p:1080' }, HUB, 'socks5://p:1080'],
    [{ ALL_PROXY: 'http://all:1', HTTPS_PROXY: 'http://p:1' }, HUB, 'http://p:1'],
    [{ ALL_PROXY: 'http://all:1' }, 'http://mirror/x', 'http://all:1'],
    [{ HTTP_PROXY: 'http://p:1' }, 'http://mirror/x', 'http://p:1'],
    [{ HTTP_PROXY: 'http://p:1' }, HUB, undefined],
    [{ HTTPS_PROXY: 'http://p:1' }, 'http://mirror/x', undefined],
    [{}, HUB, undefined],
    [{ HTTPS_PROXY: '  ' }, HUB, undefined],
  ])('%j: %s goes through %s', (env, url, proxy) => {
    expect(through(env as unknown as Record<string, string>, url)).toBe(proxy);
  });

  it.each([
    ['huggingface.co', true],
    ['HuggingFace.CO.', true],
    ['.huggingface.co', true],
    ['*.huggingface.co', true],
    ['co', true],
    ['*', true],
    ['*face.co', true],
    ['a.example, huggingface.co', true],
    ['a.example huggingface.co', true],
    ['huggingface.co:443', true],
    ['huggingface.co:8443', false],
    ['face.co', false],
    ['xhuggingface.co', false],
    ['cdn.huggingface.co', false],
    ['', false],
    [' , ', false],
    ['.', false],
  ])('NO_PROXY=%j excepts the hub: %s', (exceptions, excepted) => {
    for (const name of ['NO_PROXY', 'no_proxy'])
      expect(through({ HTTPS_PROXY: 'p:1', [name]: exceptions }) === undefined).toBe(excepted);
  });

  it.each([
    ['https://cdn.huggingface.co/x', 'huggingface.co', true],
    ['http://10.1.2.3/x', '10.0.0.0/8', true],
    ['http://11.1.2.3/x', '10.0.0.0/8', false],
    ['http://10.1.2.3:8080/x', '10.1.2.3:8080', true],
    ['http://10.1.2.3/x', '2.3', false],
    ['http://10.1.2.3/x', '10.0.0.0/99', false],
    ['http://[fd00::1]/x', 'fd00::1', true],
    ['http://[fd00::1]:8080/x', '[fd00::1]:8080', true],
    ['http://[fd00::1]/x', 'fd00::/8', true],
    ['http://[fe80::1]/x', 'fd00::/8', false],
    ['http://localhost:8080/x', 'localhost', true],
    ['http://localhost:8080/x', 'localhost:80', false],
  ])('%s with NO_PROXY=%s: straight %s', (url, exceptions, straight) => {
    const env = { HTTP_PROXY: 'p:1', HTTPS_PROXY: 'p:1', NO_PROXY: exceptions };
    expect(through(env, url) === undefined).toBe(straight);
  });

  it('keeps credentials apart from what is shown', () => {
    const proxy = proxySettings({ HTTPS_PROXY: 'http://me:p%40ss%3A@p:3128' })?.(new URL(HUB));
    expect(proxy).toEqual({
      address: 'http://p:3128',
      variable: 'HTTPS_PROXY',
      username: 'me',
      password: 'p@ss:',
    });
  });

  it.each(['http://', 'ftp://p:21', 'http://p:notaport', 'http://me:se cret@'])(
    'refuses %s, and shows nothing of it',
    (value) => {
      try {
        proxySettings({ HTTPS_PROXY: value });
      } catch (error) {
        expect(error).toMatchObject({ code: 'proxy-invalid', where: 'HTTPS_PROXY' });
        expect(String(error)).not.toContain('se cret');
        return;
      }
      throw new Error('it was taken');
    },
  );
});
