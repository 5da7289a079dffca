/** Which web pages may use the server: origins, as an operator writes them and as browsers send them. */
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';

const ORIGIN = /^[a-z][a-z\d+.-]*:\/\/[^\s/?#@,\\]*$/;
const WILD = '[^\\s/?#@,\\\\]*';
const DEFAULT_PORTS: Readonly<Record<string, string>> = { http: ':80', https: ':443' };

/**
 * Origins that may use the server. Each is `*` for any, `null` for pages that have none (files, sandboxed frames), an
 * origin such as `https://app.example.com` or `tauri://localhost`, in which `*` stands for any part of the host or port,
 * or a scheme alone, such as `vscode-webview://`, for all its origins. A comma separates several.
 *
 * @throws KvantError `invalid-option`
 * @example
 * new Origins(['http://localhost:*', 'app://']).allows('app://obsidian.md'); // true
 */
export class Origins {
  /** Every page may. */
  readonly any: boolean;
  readonly #exact = new Set<string>();
  readonly #patterns: RegExp[] = [];

  constructor(texts: readonly string[]) {
    const all = texts.flatMap((text) => text.split(',')).map((text) => text.trim());
    this.any = all.includes('*');
    for (const text of all) if (text !== '*') this.#add(text);
  }

  /** `origin`: the header's value, of which there may be several, made up by anybody. */
  allows(origin: string): boolean {
    if (this.any) return true;
    const plain = plainOrigin(origin);
    return this.#exact.has(plain) || this.#patterns.some((pattern) => pattern.test(plain));
  }

  #add(text: string): void {
    const plain = plainOrigin(text.replace(/([^:/])\/$/, '$1'));
    if (plain !== 'null' && !ORIGIN.test(plain)) throw invalidOrigin(text);
    if (plain.includes('*') || plain.endsWith('://')) {
      const [scheme = '', rest = ''] = plain.split('://');
      const parts = (rest === '' ? '*' : rest).split('*').map((part) => part.replace(/[^\w-]/g, '\\$&'));
      this.#patterns.push(new RegExp(`^${scheme.replace(/[+.]/g, '\\$&')}://${parts.join(WILD)}$`));
    } else this.#exact.add(plain);
  }
}

/** In lower case and without the port that goes without saying, as browsers send it. */
export function plainOrigin(origin: string): string {
  const plain = origin.toLowerCase();
  const port = DEFAULT_PORTS[plain.split('://', 1)[0]!];
  return port !== undefined && plain.endsWith(port) && ORIGIN.test(plain)
    ? plain.slice(0, -port.length)
    : plain;
}

function invalidOrigin(text: string): KvantError {
  return new KvantError('invalid-option', `"${shown(text)}" is no origin of web pages.`, {
    kind: 'invalid-request',
    where: '--cors',
    fix: 'Give a scheme, a host and a port without a path: https://app.example.com, http://localhost:3000, tauri://localhost, vscode-webview://*; or * for any.',
  });
}
