/** Pictures by URL, from servers of this test: which are refused before a connection is made, and what of an answer is taken. */
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import type { KvantError } from '../errors.js';
import { ImageFetcher, type ImageFetchOptions } from './fetch-image.js';

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

/** A server on this machine; its port. */
async function serve(answer: RequestListener): Promise<number> {
  const server = createServer(answer);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

const BYTES = Buffer.from('not looked at here');
const png: RequestListener = (_, answer) => answer.writeHead(200, { 'content-type': 'image/png' }).end(BYTES);
const HOME = [{ address: '127.0.0.1', family: 4 }];
const WHERE = 'messages[0].content[0].image_url.url';

/** Of a fetcher for which this machine is public, under any name. */
const home: ImageFetchOptions = { resolve: async () => HOME, isPublic: () => true };
const get = (url: string, options: ImageFetchOptions = home): Promise<Uint8Array> =>
  new ImageFetcher(options).fetch(url, WHERE, new AbortController().signal);
const refusal = async (url: string, options?: ImageFetchOptions): Promise<KvantError> => {
  const error = await get(url, options).then(
    () => null,
    (reason: unknown) => reason,
  );
  expect(error).toMatchObject({ where: WHERE, fix: expect.stringMatching(/./) });
  return error as KvantError;
};

describe('a URL that is let through', () => {
  it('is asked for by its name, with nothing of the server’s own', async () => {
    let seen: unknown;
    const port = await serve((request, answer) => {
      seen = { url: request.url, headers: request.headers };
      png(request, answer);
    });
    expect(Buffer.from(await get(`http://pictures.example:${port}/a.png?x=1#y`))).toEqual(BYTES);
    expect(seen).toEqual({
      url: '/a.png?x=1',
      headers: {
        host: `pictures.example:${port}`,
        accept: 'image/*',
        'accept-encoding': 'identity',
        'user-agent': 'kvant',
        connection: 'close',
      },
    });
  });

  it('is looked up once, and the address that was checked is dialled', async () => {
    const port = await serve(png);
    const answers = [HOME, [{ address: '192.0.2.1', family: 4 }]];
    let lookups = 0;
    await get(`http://changes.example:${port}/`, { ...home, resolve: async () => answers[lookups++]! });
    expect(lookups).toBe(1);
  });

  it.each([['image/webp'], ['image/jpeg; q=1'], ['application/octet-stream'], [undefined]])(
    'may be of the type %s',
    async (type) => {
      const port = await serve((_, answer) =>
        answer.writeHead(200, type === undefined ? {} : { 'content-type': type }).end(BYTES),
      );
      expect(Buffer.from(await get(`http://a.example:${port}/`))).toEqual(BYTES);
    },
  );

  it('may lead elsewhere three times', async () => {
    const port = await serve((request, answer) => {
      const left = Number(request.url!.slice(1));
      if (left === 0) png(request, answer);
      else answer.writeHead(302, { location: `/${left - 1}` }).end();
    });
    expect(Buffer.from(await get(`http://a.example:${port}/3`))).toEqual(BYTES);
    expect(await refusal(`http://a.example:${port}/4`)).toMatchObject({ code: 'image-fetch-failed' });
  });
});

describe('before a connection is made', () => {
  const untouched = async (): Promise<{ readonly port: number; readonly touched: () => boolean }> => {
    let touched = false;
    const port = await serve((request, answer) => {
      touched = true;
      png(request, answer);
    });
    return { port, touched: () => touched };
  };

  it.each([
    '127.0.0.1',
    '2130706433',
    '0x7f.1',
    '0177.0.0.1',
    '0',
    '[::1]',
    '[::ffff:127.0.0.1]',
    '[::ffff:7f00:1]',
    '[64:ff9b::127.0.0.1]',
    '[2002:7f00:1::]',
    '169.254.169.254',
    'localhost',
    'localhost.',
  ])('http://%s is refused', async (host) => {
    const { port, touched } = await untouched();
    const error = await refusal(`http://${host}:${port}/a.png`, {});
    expect(error).toMatchObject({ code: 'image-url-not-allowed', status: 400 });
    expect(touched()).toBe(false);
  });

  it('a name is refused if any of its addresses is private, in the words for one that there is not', async () => {
    const { port, touched } = await untouched();
    const both = async () => [{ address: '93.184.216.34', family: 4 }, ...HOME];
    const some = await refusal(`http://inside.example:${port}/`, { resolve: both });
    const none = await refusal(`http://inside.example:${port}/`, {
      resolve: () => Promise.reject(new Error('ENOTFOUND')),
    });
    expect(some).toMatchObject({ code: 'image-url-not-allowed' });
    expect(some.message).toBe(none.message);
    expect(touched()).toBe(false);
  });

  it('a redirect is checked as the first URL is', async () => {
    const { port, touched } = await untouched();
    const targets = [
      `http://inside.example:${port}/`,
      `http://[::1]:${port}/`,
      'file:///etc/passwd',
      'ftp://a/b',
    ];
    const options: ImageFetchOptions = {
      resolve: async (host) => [{ address: host === 'out.example' ? '127.0.0.1' : '127.0.0.2', family: 4 }],
      isPublic: (address) => address === '127.0.0.1',
    };
    for (const location of targets) {
      const out = await serve((_, answer) => answer.writeHead(307, { location }).end());
      const error = await refusal(`http://out.example:${out}/`, options);
      expect(error).toMatchObject({ code: 'image-url-not-allowed' });
    }
    expect(touched()).toBe(false);
  });

  it.each([
    ['a.example', true],
    ['A.EXAMPLE', true],
    ['a.example.', true],
    ['x.b.example', true],
    ['y.x.b.example', true],
    ['b.example', false],
    ['evil-b.example', false],
    ['a.example.evil', false],
    ['xa.example', false],
  ])('of hosts that are listed %s is one: %s', async (host, listed) => {
    const port = await serve(png);
    const options = { ...home, domains: ['A.example', '*.b.example'] };
    if (listed) expect(Buffer.from(await get(`http://${host}:${port}/`, options))).toEqual(BYTES);
    else expect((await refusal(`http://${host}:${port}/`, options)).code).toBe('image-url-not-allowed');
  });

  it('a listed host may not lead to another', async () => {
    const port = await serve((_, answer) => answer.writeHead(301, { location: '//other.example/' }).end());
    const error = await refusal(`http://a.example:${port}/`, { ...home, domains: ['a.example'] });
    expect(error.code).toBe('image-url-not-allowed');
  });

  it.each(['http://user@a.example/', 'http://user:secret@a.example/', 'http://', 'http://a b/'])(
    '%s is refused',
    async (url) => {
      const error = await refusal(url);
      expect(error.code).toBe('invalid-image-url');
      expect(error.message).not.toContain('secret');
    },
  );
});

describe('of an answer', () => {
  it('an error’s body is not told, nor one of another type', async () => {
    const secret = 'the secrets of this network';
    const broken = await serve((_, answer) => answer.writeHead(404).end(secret));
    const page = await serve((_, answer) =>
      answer.writeHead(200, { 'content-type': 'text/html' }).end(secret),
    );
    const missing = await refusal(`http://a.example:${broken}/`);
    expect(missing).toMatchObject({ code: 'image-fetch-failed', status: 400 });
    const html = await refusal(`http://a.example:${page}/`);
    expect(html.code).toBe('unsupported-image');
    for (const { message, fix } of [missing, html]) expect(`${message} ${fix}`).not.toContain('secret');
  });

  it('bytes are counted, whatever its length says', async () => {
    const honest = await serve((_, answer) =>
      answer.writeHead(200, { 'content-length': '2000' }).end(Buffer.alloc(2000)),
    );
    let sent = 0;
    const endless = await serve((_, answer) => {
      answer.writeHead(200, { 'content-type': 'image/png' });
      const more = (): void => {
        while (!answer.destroyed && answer.write(Buffer.alloc(1000))) sent += 1000;
        answer.once('drain', more);
      };
      more();
    });
    for (const port of [honest, endless]) {
      const error = await refusal(`http://a.example:${port}/`, { ...home, maxBytes: 1500 });
      expect(error.code).toBe('image-too-large');
    }
    expect(sent).toBeLessThan(50_000_000);
  });

  it('compressed bytes are not taken', async () => {
    const port = await serve((_, answer) => answer.writeHead(200, { 'content-encoding': 'gzip' }).end(BYTES));
    expect((await refusal(`http://a.example:${port}/`)).code).toBe('image-fetch-failed');
  });

  it('one that is cut off, and a host that does not answer, are told as such', async () => {
    const cut = await serve((_, answer) => {
      answer.writeHead(200, { 'content-length': '100' });
      answer.write('x', () => answer.destroy());
    });
    expect((await refusal(`http://a.example:${cut}/`)).code).toBe('image-fetch-failed');
    const silent = await serve(() => {});
    const late = await refusal(`http://a.example:${silent}/`, { ...home, timeoutMs: 50 });
    expect(late.message).toContain('was not there within 0.05 s');
    const nameless = { ...home, timeoutMs: 50, resolve: () => new Promise<never>(() => {}) };
    expect((await refusal('http://a.example/', nameless)).code).toBe('image-fetch-failed');
  });

  it('one that goes over to another protocol is refused', async () => {
    const other = createServer();
    servers.push(other);
    other.on('connection', (socket) => {
      const head = 'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n';
      socket.on('error', () => {}).once('data', () => socket.write(head));
    });
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const error = await refusal(`http://a.example:${(other.address() as AddressInfo).port}/`);
    expect(error).toMatchObject({ code: 'image-fetch-failed', message: expect.stringContaining('101') });
  });

  it('whoever asked may go', async () => {
    const gone = new AbortController();
    const port = await serve(() => gone.abort(new Error('gone')));
    const fetched = new ImageFetcher(home).fetch(`http://a.example:${port}/`, WHERE, gone.signal);
    await expect(fetched).rejects.toThrow('gone');
  });
});
