/**
 * Which proxy a request goes through, as the environment says: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, also in
 * lower case, read as curl and Go's net/http read them.
 */

import { BlockList, isIP } from 'node:net';
import { KvantError } from '../errors.js';
import type { Environment } from './environment.js';

/** A proxy, its credentials apart: what is shown must not hold them. */
export interface ProxyAddress {
  /** Without credentials: `http://proxy.example:3128`. */
  readonly address: string;
  /** The variable that names it. */
  readonly variable: string;
  readonly username: string;
  readonly password: string;
}

/** @returns undefined where the request goes straight to its host */
export type ProxyFor = (url: URL) => ProxyAddress | undefined;

const SCHEMES = ['http:', 'https:', 'socks:', 'socks5:', 'socks5h:'];

/**
 * Reads the environment.
 *
 * @returns undefined where no proxy is named at all
 * @throws KvantError `proxy-invalid` where a variable holds no proxy's address
 * @example proxySettings({ HTTPS_PROXY: 'proxy:3128' })?.(new URL('https://huggingface.co'))?.address // 'http://proxy:3128'
 */
export function proxySettings(env: Environment): ProxyFor | undefined {
  const all = readProxy(env, 'all_proxy');
  const byScheme: Readonly<Record<string, ProxyAddress | undefined>> = {
    'http:': readProxy(env, 'http_proxy') ?? all,
    'https:': readProxy(env, 'https_proxy') ?? all,
  };
  if (Object.values(byScheme).every((proxy) => proxy === undefined)) return undefined;
  const exceptions = settingOf(env, 'no_proxy')?.[1] ?? '';
  return (url) => (isExcepted(url, exceptions) ? undefined : byScheme[url.protocol]);
}

/** The variable as it is written and its value; lower case goes first, as with curl. */
function settingOf(env: Environment, name: string): readonly [string, string] | undefined {
  for (const variable of [name, name.toUpperCase()]) {
    const value = env[variable]?.trim();
    if (value !== undefined && value !== '') return [variable, value];
  }
  return undefined;
}

function readProxy(env: Environment, name: string): ProxyAddress | undefined {
  const found = settingOf(env, name);
  if (found === undefined) return undefined;
  const [variable, value] = found;
  const text = value.includes('://') ? value : `http://${value}`;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || url.hostname === '' || !SCHEMES.includes(url.protocol)) throw invalid(variable);
  // Here the proxy looks up names, with either spelling.
  const scheme = url.protocol === 'socks5h:' ? 'socks5:' : url.protocol;
  return {
    address: `${scheme}//${url.host}`,
    variable,
    username: plain(url.username),
    password: plain(url.password),
  };
}

/** Percent-encoded, or with a percent sign that is one. */
function plain(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** @param exceptions hosts, with or without a port, domains, addresses and networks, between commas or spaces; `*` for all */
function isExcepted(url: URL, exceptions: string): boolean {
  const host = plainHost(url.hostname);
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  return exceptions.split(/[\s,]+/).some((entry) => entry !== '' && matches(host, port, entry));
}

function matches(host: string, port: string, entry: string): boolean {
  if (entry === '*') return true;
  if (entry.includes('/')) return isInNetwork(host, entry);
  const bare = isIP(entry) === 6;
  const [, name = entry, asked] = bare ? [] : (/^(.*?)(?::(\d+))?$/.exec(entry) ?? []);
  if (asked !== undefined && asked !== port) return false;
  const wanted = plainHost(name);
  // `example.com`, `.example.com` and `*.example.com` stand for the domain with all that is below it.
  const domain = wanted.replace(/^\*?\.+/, '');
  if (domain.startsWith('*')) return host.endsWith(domain.slice(1));
  return domain !== '' && (host === domain || (isIP(host) === 0 && host.endsWith(`.${domain}`)));
}

function isInNetwork(host: string, entry: string): boolean {
  const [address = '', bits = ''] = entry.split('/');
  const network = plainHost(address);
  const family = isIP(network);
  if (family === 0 || family !== isIP(host) || !/^\d+$/.test(bits)) return false;
  if (Number(bits) > (family === 4 ? 32 : 128)) return false;
  const kind = family === 4 ? 'ipv4' : 'ipv6';
  const list = new BlockList();
  list.addSubnet(network, Number(bits), kind);
  return list.check(host, kind);
}

const plainHost = (host: string): string =>
  host
    .toLowerCase()
    .replace(/^\[|\]$/g, '')
    .replace(/\.$/, '');

/** The value is not shown: it may hold a password. */
function invalid(variable: string): KvantError {
  return new KvantError('proxy-invalid', `${variable} holds no address of a proxy`, {
    kind: 'invalid-request',
    where: variable,
    fix: 'Write http://host:port, or http://name:password@host:port (https:// and socks5:// too), or unset it.',
  });
}
