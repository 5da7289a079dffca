/** Names of servers: what a `Host` header may hold, and which of them are this machine's own. */

/** A name or an address, and a port where one is told. */
export interface Authority {
  /** In lower case, without the dot of the root; addresses as URLs write them. */
  readonly name: string;
  /** Empty where none is told. */
  readonly port: string;
}

const AUTHORITY = /^(?<name>\[[\da-f:.]+\]|[\da-z_][\da-z._-]*)(?<port>:\d{0,5})?$/i;
const V4 = /^\d+\.\d+\.\d+\.\d+$/;
const MAPPED_V4 = /^\[::ffff:(?<high>[\da-f]{1,4}):(?<low>[\da-f]{1,4})\]$/;

/**
 * Null where the text is no `name[:port]`.
 *
 * @example
 * readAuthority('LOCALHOST.:8080'); // { name: 'localhost', port: '8080' }
 * readAuthority('[::FFFF:127.0.0.1]'); // { name: '127.0.0.1', port: '' }
 */
export function readAuthority(text: string): Authority | null {
  const { name, port = '' } = AUTHORITY.exec(text)?.groups ?? {};
  if (name === undefined || Number(port.slice(1)) > 65535) return null;
  // A URL knows all ways to write an address.
  const url = URL.canParse(`http://${name}/`) ? new URL(`http://${name}/`) : null;
  if (url === null) return null;
  return { name: plainName(url.hostname), port: port.slice(1) };
}

/** The name of a URL's host as {@link readAuthority} gives it. */
export function plainName(hostname: string): string {
  const name = hostname.toLowerCase().replace(/\.$/, '');
  const mapped = MAPPED_V4.exec(name)?.groups;
  if (mapped === undefined) return name;
  const bits = [mapped.high!, mapped.low!].map((part) => Number.parseInt(part, 16));
  return bits.flatMap((part) => [part >> 8, part & 255]).join('.');
}

/** Whether it is an address and no name: then nobody can have it lead to another machine than it says. */
export function isAddress(name: string): boolean {
  return V4.test(name) || name.startsWith('[');
}

/**
 * Whether it leads to the machine it is used on, whoever asks whichever name server: `localhost` and what is below it,
 * 127.0.0.0/8 and ::1. The unspecified address does as well.
 */
export function isLoopback(name: string): boolean {
  if (V4.test(name)) return name.startsWith('127.') || name === '0.0.0.0';
  return name === 'localhost' || name.endsWith('.localhost') || name === '[::1]' || name === '[::]';
}

/** An address to listen on, which need not be written as in a URL. Null where it is no name. */
export function boundName(host: string): string | null {
  return readAuthority(host.includes(':') && !host.startsWith('[') ? `[${host}]` : host)?.name ?? null;
}

/** The same as the system wants it: an address of IPv6 may be written in brackets, as in a URL. */
export function socketHost(host: string): string {
  return /^\[(?<address>[^\]]*:[^\]]*)\]$/.exec(host)?.groups?.address ?? host;
}

/** Host and port as a URL has them. */
export function hostAndPort(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Whether nobody but this machine can reach what listens there. */
export function isLocalOnly(host: string): boolean {
  const name = boundName(host);
  return name !== null && isLoopback(name) && name !== '0.0.0.0' && name !== '[::]';
}
