/**
 * Pictures from the network, for whoever sends a request: a server that fetches what strangers name must not become their way into its
 * own network. Only public addresses are connected to, and the address that was checked is the one that is dialled, so that a name cannot
 * mean another one between the two. Each redirect is checked like the first URL.
 */

import { lookup } from 'node:dns/promises';
import { type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP } from 'node:net';
import { KvantError } from '../errors.js';
import { MAX_IMAGE_BYTES } from './decode.js';
import { isPublicAddress } from './public-address.js';

/** Of one fetch, redirects included. */
const TIMEOUT_MS = 10_000;
const MOST_REDIRECTS = 3;
const REDIRECTS = [301, 302, 303, 307, 308];
/** Content types besides those of pictures: what object stores say of files that they know nothing of. */
const UNTYPED = ['application/octet-stream', 'binary/octet-stream'];

interface Address {
  readonly address: string;
  readonly family: number;
}

export interface ImageFetchOptions {
  /** Hosts that may be fetched from: `example.com`, or `*.example.com` for all below it. Default: all. */
  readonly domains?: readonly string[];
  /** For tests. */
  readonly timeoutMs?: number;
  readonly maxBytes?: number;
  readonly resolve?: (host: string) => Promise<readonly Address[]>;
  readonly isPublic?: (address: string) => boolean;
}

/** Fetches URLs with `http:` and `https:`. One for each engine. */
export class ImageFetcher {
  readonly #options: Required<Omit<ImageFetchOptions, 'domains'>>;
  readonly #domains: readonly string[] | null;

  constructor({ domains, ...rest }: ImageFetchOptions = {}) {
    this.#domains = domains?.map((domain) => domain.toLowerCase()) ?? null;
    this.#options = {
      timeoutMs: TIMEOUT_MS,
      maxBytes: MAX_IMAGE_BYTES,
      resolve: (host) => lookup(host, { all: true }),
      isPublic: isPublicAddress,
      ...rest,
    };
  }

  /**
   * The bytes of a file.
   *
   * @param where names the field in errors
   * @throws KvantError `invalid-image-url`, `image-url-not-allowed`, `image-fetch-failed` (400), `image-too-large` (413), `unsupported-image` (415)
   */
  async fetch(url: string, where: string, signal: AbortSignal): Promise<Uint8Array> {
    const late = AbortSignal.timeout(this.#options.timeoutMs);
    const either = AbortSignal.any([signal, late]);
    try {
      return await this.#follow(url, where, either);
    } catch (error) {
      signal.throwIfAborted();
      if (late.aborted) throw failed(where, `was not there within ${this.#options.timeoutMs / 1000} s`);
      throw error;
    }
  }

  async #follow(first: string, where: string, signal: AbortSignal): Promise<Uint8Array> {
    let url = this.#checked(first, where);
    for (let hops = 0; ; hops++) {
      const address = await this.#address(url, where, signal);
      const answer = await this.#get(url, address, where, signal);
      const { statusCode = 0, headers } = answer;
      if (!REDIRECTS.includes(statusCode) || headers.location === undefined)
        return this.#body(answer, where, signal);
      answer.destroy();
      if (hops === MOST_REDIRECTS) throw failed(where, `leads through more than ${MOST_REDIRECTS} redirects`);
      url = this.#checked(headers.location, where, url);
    }
  }

  /** What of a URL can be told without the network. */
  #checked(text: string, where: string, base?: URL): URL {
    let url: URL;
    try {
      url = new URL(text, base);
    } catch {
      throw invalid(where, base === undefined ? 'is no URL' : 'leads to what is no URL');
    }
    if (url.protocol !== 'http:' && url.protocol !== 'https:')
      throw notAllowed(where, `leads to ${url.protocol}`);
    if (url.username !== '' || url.password !== '')
      throw invalid(where, 'has a user or a password in its URL');
    if (this.#domains !== null && !this.#domains.some((domain) => isOf(hostOf(url), domain)))
      throw notAllowed(where, 'is on a host that this server does not fetch from');
    return url;
  }

  /** An address of the host, if all that it has are public. */
  async #address(url: URL, where: string, signal: AbortSignal): Promise<Address> {
    const host = hostOf(url);
    const family = isIP(host);
    let all: readonly Address[] = [];
    if (family !== 0) all = [{ address: host, family }];
    else
      all = await unlessAborted(
        this.#options.resolve(host).catch(() => []),
        signal,
      );
    // Which of the two it is would tell names of the network that the server is in.
    if (all.length === 0 || !all.every(({ address }) => this.#options.isPublic(address)))
      throw notAllowed(where, 'is on a host that has no public address');
    return all[0]!;
  }

  #get(url: URL, { address, family }: Address, where: string, signal: AbortSignal): Promise<IncomingMessage> {
    const request = url.protocol === 'https:' ? requestHttps : requestHttp;
    return new Promise((resolve, reject) => {
      const asked = request(url, {
        agent: false,
        signal,
        maxHeaderSize: 16_384,
        headers: { accept: 'image/*', 'accept-encoding': 'identity', 'user-agent': 'kvant' },
        // No name is looked up a second time: Host and TLS have the name, the connection has the address.
        lookup: (_, { all }, done) => {
          if (all === true) done(null, [{ address, family }]);
          else done(null, address, family);
        },
      });
      asked.once('response', resolve);
      // Another protocol than was asked for: no response follows, nor an error.
      asked.once('upgrade', (_, socket) => {
        socket.destroy();
        reject(failed(where, 'is answered with status 101'));
      });
      asked.on('error', (cause) => reject(failed(where, 'cannot be fetched', cause)));
      asked.once('close', () => reject(failed(where, 'cannot be fetched')));
      asked.end();
    });
  }

  async #body(answer: IncomingMessage, where: string, signal: AbortSignal): Promise<Uint8Array> {
    try {
      const { statusCode, headers } = answer;
      if (statusCode !== 200) throw failed(where, `is answered with status ${statusCode}`);
      const type = headers['content-type']?.replace(/;.*/s, '').trim().toLowerCase();
      if (type !== undefined && !type.startsWith('image/') && !UNTYPED.includes(type))
        throw new KvantError(
          'unsupported-image',
          `${where} is no picture: its host says that it is of another type.`,
          {
            kind: 'unsupported',
            where,
            fix: 'Give the URL of the picture itself, not of a page that shows it.',
          },
        );
      const encoding = headers['content-encoding']?.toLowerCase();
      if (encoding !== undefined && encoding !== 'identity')
        throw failed(where, 'is sent in an encoding that was not asked for');
      return await this.#collect(answer, where);
    } catch (error) {
      if (error instanceof KvantError || signal.aborted) throw error;
      throw failed(where, 'is cut off', error);
    } finally {
      answer.destroy();
    }
  }

  /** Counts what comes, whatever the headers said. */
  async #collect(answer: IncomingMessage, where: string): Promise<Uint8Array> {
    const { maxBytes } = this.#options;
    const parts: Buffer[] = [];
    let bytes = 0;
    if (Number(answer.headers['content-length']) > maxBytes) throw tooLarge(where, maxBytes);
    for await (const part of answer as AsyncIterable<Buffer>) {
      bytes += part.length;
      if (bytes > maxBytes) throw tooLarge(where, maxBytes);
      parts.push(part);
    }
    return Buffer.concat(parts, bytes);
  }
}

/** Without the brackets of IPv6 and the dot of a name that is complete. */
function hostOf({ hostname }: URL): string {
  return hostname.replace(/^\[|\]$/g, '').replace(/\.$/, '');
}

function isOf(host: string, domain: string): boolean {
  return domain.startsWith('*.') ? host.endsWith(domain.slice(1)) : host === domain;
}

function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

const FIX = 'Send the picture as data:image/png;base64,… with the file’s bytes.';

function failed(where: string, what: string, cause?: unknown): KvantError {
  return new KvantError('image-fetch-failed', `${where} ${what}.`, {
    kind: 'invalid-request',
    where,
    fix: FIX,
    ...(cause === undefined ? {} : { cause }),
  });
}

function invalid(where: string, what: string): KvantError {
  return new KvantError('invalid-image-url', `${where} ${what}.`, {
    kind: 'invalid-request',
    where,
    fix: FIX,
  });
}

function notAllowed(where: string, what: string): KvantError {
  return new KvantError('image-url-not-allowed', `${where} ${what}.`, {
    kind: 'invalid-request',
    where,
    fix: FIX,
  });
}

function tooLarge(where: string, most: number): KvantError {
  return new KvantError('image-too-large', `${where} has more than ${most} bytes.`, {
    kind: 'invalid-request',
    where,
    fix: 'Give a smaller file.',
  });
}
