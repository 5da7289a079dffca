/**
 * Keeps web pages out that nobody let in. A page in a browser on this machine reaches a local server as well as any
 * program does, and sends it what it likes; but the browser says where the page comes from (`Origin`,
 * `Sec-Fetch-Site`). A page whose own name was made to lead here (DNS rebinding) is betrayed by the `Host` it asks for.
 */
import { hostname } from 'node:os';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import { boundName, isAddress, isLocalOnly, isLoopback, plainName, readAuthority } from './authority.js';
import { Origins, plainOrigin } from './origins.js';

export interface PageGuardOptions {
  /** Origins that may use the server, see {@link Origins}. */
  readonly origins: readonly string[];
  /** Names that a request may ask for besides those that are safe anyway; `*` for any, `*.example.com` for all below one. */
  readonly hosts: readonly string[];
  /** What the socket listens on. Undefined: the names are not looked at, for somebody else does. */
  readonly address?: string;
  /** A page has no key: with one, any name may be asked for. */
  readonly hasKey: boolean;
}

export class PageGuard {
  readonly #origins: Origins;
  readonly #hosts: readonly string[];
  readonly #ownNames: readonly string[];
  readonly #checksHost: boolean;
  readonly #localOnly: boolean;

  /** Errors: `invalid-option`. */
  constructor({ origins, hosts, address, hasKey }: PageGuardOptions) {
    this.#origins = new Origins(origins);
    this.#hosts = hosts.flatMap((text) => text.split(',')).map((text) => hostPattern(text.trim()));
    this.#checksHost = address !== undefined && !hasKey && !this.#hosts.includes('*');
    this.#localOnly = address === undefined || isLocalOnly(address);
    const own = address === undefined ? null : boundName(address);
    this.#ownNames = this.#localOnly ? [] : [hostname().toLowerCase(), ...(own === null ? [] : [own])];
  }

  /** What is to be told to the browser of a request from this page: its origin where it is allowed, else null. */
  corsOrigin(origin: string): string | null {
    if (this.#origins.any) return '*';
    return origin !== '' && this.#origins.allows(origin) ? origin : null;
  }

  /** Errors: `host-not-allowed`, `origin-not-allowed` (403). */
  check(request: Request): void {
    const origin = request.headers.get('origin');
    const site = request.headers.get('sec-fetch-site');
    if (!this.#checksHost && origin === null && site === null) return;
    const url = new URL(request.url);
    if (this.#checksHost && !this.#hostAllowed(plainName(url.hostname))) throw this.#wrongHost(url.hostname);
    if (origin !== null) {
      if (!isSameOrigin(origin, url) && !this.#origins.allows(origin)) throw foreign(origin);
    } else if (site !== null && !this.#origins.any && isForeignFetch(request, site)) throw foreign(null);
  }

  #hostAllowed(name: string): boolean {
    if (isLoopback(name) || this.#ownNames.includes(name)) return true;
    // An address leads to where it says: only a name can be made to lead from a page of its own to here.
    if (!this.#localOnly && isAddress(name)) return true;
    return this.#hosts.some((host) => (host.startsWith('*.') ? name.endsWith(host.slice(1)) : name === host));
  }

  #wrongHost(host: string): KvantError {
    const name = shown(host);
    const answers = this.#localOnly ? 'as localhost' : 'as localhost, by address';
    return new KvantError(
      'host-not-allowed',
      `The request asks for the host "${name}", and this server, which wants no key, answers ${answers} and by the names it was given.`,
      {
        kind: 'invalid-request',
        where: 'Host',
        fix: `Start it with --allow-host ${name}, or with an --api-key.`,
      },
    );
  }
}

/** Whether a page asks for its own server. TLS may have ended before here, so the scheme may be another. */
function isSameOrigin(origin: string, url: URL): boolean {
  const plain = plainOrigin(origin);
  const [scheme, rest = ''] = plain.split('://');
  const page = readAuthority(rest);
  if ((scheme !== 'http' && scheme !== 'https') || page === null) return false;
  const usual = scheme === 'http' ? '80' : '443';
  const asked = url.port === usual ? '' : url.port;
  return page.name === plainName(url.hostname) && page.port === asked;
}

/** A page that embeds or fetches what is here, where the browser sends no origin. A link that is followed may be. */
function isForeignFetch({ method, headers }: Request, site: string): boolean {
  if (site === 'same-origin' || site === 'none') return false;
  const followed =
    headers.get('sec-fetch-mode') === 'navigate' && headers.get('sec-fetch-dest') === 'document';
  return !(followed && (method === 'GET' || method === 'HEAD'));
}

function foreign(origin: string | null): KvantError {
  const page = origin === null ? 'of another site' : `of the origin "${shown(origin)}"`;
  const value = origin === null || /[\s,]/.test(origin) ? 'ORIGIN' : suggested(origin);
  return new KvantError('origin-not-allowed', `A web page ${page} may not use this server.`, {
    kind: 'invalid-request',
    where: 'Origin',
    fix: `Start it with --cors ${value} to allow its pages.`,
  });
}

/** The origins of an editor's panels are new every time: their scheme is what one allows. */
function suggested(origin: string): string {
  return /^vscode-webview:\/\//i.test(origin) ? 'vscode-webview://' : shown(origin);
}

/** Errors: `invalid-option`. */
function hostPattern(text: string): string {
  if (text === '*') return text;
  const wild = text.startsWith('*.') ? '*.' : '';
  const name = boundName(text.slice(wild.length));
  if (name !== null) return wild + name;
  throw new KvantError('invalid-option', `"${shown(text)}" is no name of a host.`, {
    kind: 'invalid-request',
    where: '--allow-host',
    fix: 'Give a name without scheme, port and path: llm.example.com, *.example.com, host.docker.internal; or * for any.',
  });
}
