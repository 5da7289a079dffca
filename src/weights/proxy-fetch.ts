/** `fetch` through a proxy: undici's own, as the one that Node has takes no other version's dispatchers. */

import { Agent, Dispatcher, ProxyAgent, fetch as undiciFetch } from 'undici';
import { KvantError } from '../errors.js';
import type { ProxyAddress, ProxyFor } from './proxy-settings.js';

export interface ProxyFetch extends AsyncDisposable {
  readonly fetch: typeof fetch;
}

export function createProxyFetch(proxyFor: ProxyFor): ProxyFetch {
  const dispatcher = new ByOrigin(proxyFor);
  const through = async (input: Parameters<typeof fetch>[0], init?: RequestInit): Promise<Response> => {
    const ask = (): Promise<unknown> =>
      undiciFetch(String(input), { ...init, dispatcher } as Parameters<typeof undiciFetch>[1]);
    try {
      return (await ask()) as Response;
    } catch (error) {
      // A proxy that gives no tunnels but for TLS passes plain requests on.
      const refused = statusOf(error);
      if (new URL(String(input)).protocol !== 'http:' || refused === undefined || refused === 407)
        throw error;
      if (!dispatcher.passOn()) throw error;
      return (await ask()) as Response;
    }
  };
  return { fetch: through as typeof fetch, [Symbol.asyncDispose]: () => dispatcher.destroy() };
}

/** Each origin, those that a redirect leads to as well, by its own proxy or straight. */
class ByOrigin extends Dispatcher {
  readonly #proxyFor: ProxyFor;
  readonly #agents = new Map<string, Dispatcher>();
  #tunnel = true;

  constructor(proxyFor: ProxyFor) {
    super();
    this.#proxyFor = proxyFor;
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    const proxy = this.#proxyFor(new URL(String(options.origin)));
    return this.#agent(proxy).dispatch(options, handler);
  }

  /** From now on plain requests are passed on, not tunnelled. False if they are already. */
  passOn(): boolean {
    const tunnelled = this.#tunnel;
    this.#tunnel = false;
    return tunnelled;
  }

  override async destroy(): Promise<void> {
    const agents = [...this.#agents.values()];
    this.#agents.clear();
    await Promise.all(agents.map((agent) => agent.destroy()));
  }

  #agent(proxy: ProxyAddress | undefined): Dispatcher {
    const key =
      proxy === undefined ? '' : `${this.#tunnel} ${proxy.address} ${proxy.username} ${proxy.password}`;
    let agent = this.#agents.get(key);
    if (agent === undefined) {
      agent = proxy === undefined ? new Agent() : proxyAgent(proxy, this.#tunnel);
      this.#agents.set(key, agent);
    }
    return agent;
  }
}

function proxyAgent({ address, username, password }: ProxyAddress, proxyTunnel: boolean): ProxyAgent {
  if (username === '' && password === '') return new ProxyAgent({ uri: address, proxyTunnel });
  if (address.startsWith('socks')) {
    const uri = new URL(address);
    uri.username = encodeURIComponent(username);
    uri.password = encodeURIComponent(password);
    return new ProxyAgent({ uri: uri.href });
  }
  const token = `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
  return new ProxyAgent({ uri: address, token, proxyTunnel });
}

/** The status with which a proxy refused, in what undici throws; undefined where it is something else. */
function statusOf(error: unknown): number | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const found = /^Proxy response \((\d+)\)/.exec(cause.message)?.[1];
    if (found !== undefined) return Number(found);
    if (/proxy authentication required/i.test(cause.message)) return 407;
  }
  return undefined;
}

/** Whether asking again may help: a proxy that is overloaded, or whose network is. */
export function isProxyRefusal(error: unknown): boolean {
  const status = statusOf(error);
  return status !== undefined && status < 500;
}

/** What went wrong on the way through a proxy. Its password is never told. */
export function proxyError(proxy: ProxyAddress, url: URL, cause: unknown): KvantError {
  const { address, variable } = proxy;
  const status = statusOf(cause);
  const direct = `If ${url.hostname} can be reached without it, add it to NO_PROXY.`;
  const make = (what: string, fix: string): KvantError =>
    new KvantError('hub-proxy', `the proxy ${address} (${variable}) ${what}`, {
      kind: 'invalid-request',
      where: variable,
      fix,
      cause,
    });
  if (status === 407)
    return make(
      proxy.username === ''
        ? 'asks for a name and a password (407)'
        : `does not take the name and password that ${variable} holds (407)`,
      `Set ${variable} to http://NAME:PASSWORD@host:port; letters such as @ and : are percent-encoded in it. ${direct}`,
    );
  if (status !== undefined)
    return make(
      `does not let requests through to ${url.host} (${status})`,
      `Ask whoever runs it to allow ${url.host}. ${direct}`,
    );
  let inner: unknown = cause;
  while (inner instanceof Error && inner.cause instanceof Error) inner = inner.cause;
  const why =
    (inner as NodeJS.ErrnoException).code ?? (inner instanceof Error ? inner.message : String(inner));
  return make(
    `does not bring a connection to ${url.host} (${why})`,
    `Check that ${variable} names a proxy that runs. ${direct}`,
  );
}
