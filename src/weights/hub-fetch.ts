/**
 * `fetch` as the hub needs it: the token goes to the hub and nowhere else, answers that mean an error become one
 * with a fix, and what may pass (a busy server, a lost connection) is tried again.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { KvantError } from '../errors.js';
import type { HubConfig } from './hub-config.js';

export interface HubFetchOptions {
  /** The model, for errors. */
  readonly id: string;
  readonly revision: string;
  readonly signal?: AbortSignal | undefined;
  /** Pause before the first repetition; doubled each time. Default 500 ms. */
  readonly retryDelayMs?: number | undefined;
  /** Longest wait for an answer to begin. Default 30 s. */
  readonly timeoutMs?: number | undefined;
}

/** Tries in all, for one request. */
export const MAX_TRIES = 5;
const MAX_RETRY_AFTER_S = 60;
/** The library asks for Xet descriptions of large files; plain bytes can be resumed at any byte. */
const PLAIN = '*/*';

/** A server that answered a request for a range with the whole file. */
export class RangeIgnored extends Error {}

export interface HubFetch extends AsyncDisposable {
  /** Errors: `hub-…` from every request that ends badly, `cancelled`. */
  readonly fetch: typeof fetch;
}

/** Disposed of, it lets go of the connections to a proxy. */
export async function createHubFetch(config: HubConfig, options: HubFetchOptions): Promise<HubFetch> {
  // undici is loaded where there is a proxy.
  const proxied = config.proxyFor === undefined ? undefined : await import('./proxy-fetch.js');
  const through = proxied?.createProxyFetch(config.proxyFor!);
  const ask = through?.fetch ?? fetch;
  const failed = (url: string, error: unknown): KvantError => {
    const proxy = config.proxyFor?.(new URL(url));
    return proxied === undefined || proxy === undefined
      ? networkError(config, error)
      : proxied.proxyError(proxy, new URL(url), error);
  };
  const origin = new URL(config.endpoint).origin;
  const delay = options.retryDelayMs ?? 500;
  const hubFetch: typeof fetch = async (input, init) => {
    const url = input instanceof Request ? input.url : String(input);
    const headers = new Headers(init?.headers);
    headers.set('user-agent', 'kvant');
    if (headers.get('accept')?.includes('xet')) headers.set('accept', PLAIN);
    // `fetch` drops the header itself when a redirect leads to another host.
    if (config.token !== undefined && new URL(url).origin === origin) {
      headers.set('authorization', `Bearer ${config.token}`);
    }
    for (let attempt = 1; ; attempt++) {
      const last = attempt === MAX_TRIES;
      let response: Response;
      try {
        response = await fetchOnce(ask, url, { ...init, headers }, options);
      } catch (error) {
        if (options.signal?.aborted) throw cancelled(options.signal);
        if (last || proxied?.isProxyRefusal(error)) throw failed(url, error);
        await pause(delay * 2 ** (attempt - 1), options.signal);
        continue;
      }
      if (response.ok) {
        if (headers.has('range') && response.status !== 206) {
          await response.body?.cancel();
          throw new RangeIgnored(url);
        }
        return response;
      }
      if (!isPassing(response.status) || last) throw await answerError(response, config, options);
      await response.body?.cancel();
      const asked = Math.min(Number(response.headers.get('retry-after')) || 0, MAX_RETRY_AFTER_S) * 1000;
      await pause(Math.max(asked, delay * 2 ** (attempt - 1)), options.signal);
    }
  };
  return { fetch: hubFetch, [Symbol.asyncDispose]: async () => await through?.[Symbol.asyncDispose]() };
}

/** The answer must begin in time; its body may take as long as it flows. */
async function fetchOnce(
  ask: typeof fetch,
  url: string,
  init: RequestInit,
  options: HubFetchOptions,
): Promise<Response> {
  const controller = new AbortController();
  // Cancelling reaches the body as well, which the time limit must not.
  const signal =
    options.signal === undefined ? controller.signal : AbortSignal.any([options.signal, controller.signal]);
  const timeout = options.timeoutMs ?? 30_000;
  const timer = setTimeout(
    () => controller.abort(new Error(`no answer within ${timeout / 1000} s`)),
    timeout,
  );
  try {
    return await ask(url, { ...init, signal });
  } finally {
    clearTimeout(timer);
  }
}

/** @throws KvantError `cancelled` */
export async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  await sleep(ms, undefined, signal === undefined ? {} : { signal }).catch(() => {
    throw cancelled(signal);
  });
}

export function cancelled(signal: AbortSignal | undefined): KvantError {
  return new KvantError(
    'cancelled',
    'the download was cancelled; what is there is kept, and resumed next time',
    {
      kind: 'invalid-request',
      cause: signal?.reason,
    },
  );
}

function isPassing(status: number): boolean {
  return status === 408 || status === 429 || status >= 500;
}

export function networkError(config: HubConfig, cause: unknown): KvantError {
  const inner = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
  const code = (inner as NodeJS.ErrnoException).code;
  const what = code ?? (inner instanceof Error ? inner.message : String(inner));
  return new KvantError('hub-network', `${config.endpoint} cannot be reached (${what})`, {
    kind: 'model',
    where: config.endpoint,
    fix: 'Check the network, a proxy, and HF_ENDPOINT; or give a folder with the model. A download begun is resumed.',
    cause,
  });
}

async function answerError(
  response: Response,
  config: HubConfig,
  { id, revision }: HubFetchOptions,
): Promise<KvantError> {
  const { status } = response;
  const code = response.headers.get('x-error-code') ?? '';
  const said = (response.headers.get('x-error-message') ?? (await bodyMessage(response))).slice(0, 300);
  const page = `${config.endpoint}/${id}`;
  const make = (
    name: string,
    message: string,
    kind: 'not-found' | 'invalid-request' | 'model',
    fix: string,
  ) =>
    new KvantError(name, said === '' ? message : `${message} (the hub says: ${said})`, {
      kind,
      where: page,
      fix,
    });

  if (code === 'GatedRepo') {
    const fix =
      config.token === undefined
        ? `Accept the conditions at ${page}, then set HF_TOKEN to a token of that account.`
        : `Accept the conditions at ${page} with the account that HF_TOKEN belongs to, and wait for approval where it is needed.`;
    return make(
      'hub-gated',
      `${id} is gated: its owner asks you to accept conditions first`,
      'invalid-request',
      fix,
    );
  }
  if (code === 'RevisionNotFound') {
    const fix = `Look up the branches and tags at ${page}/tree/main.`;
    return make(
      'hub-revision-not-found',
      `${id} has no revision ${JSON.stringify(revision)}`,
      'not-found',
      fix,
    );
  }
  if (code === 'EntryNotFound') {
    return make('hub-file-not-found', `${id} lost a file while it was fetched`, 'model', 'Try again.');
  }
  if (status === 401 && config.token !== undefined && code !== 'RepoNotFound') {
    return make(
      'hub-unauthorized',
      `the hub does not accept the token for ${id}`,
      'invalid-request',
      'Set HF_TOKEN to a valid token, or unset it for a public model.',
    );
  }
  // Without a token the hub answers 401 for models that do not exist as well.
  if (status === 401 || status === 404) {
    const fix =
      config.token === undefined
        ? `Check the name (there is no folder ${id} either); if the model is private, set HF_TOKEN.`
        : `Check the name (there is no folder ${id} either), and that HF_TOKEN belongs to an account that may see it.`;
    return make('hub-model-not-found', `the hub has no model ${id}, or it is private`, 'not-found', fix);
  }
  if (status === 403) {
    return make(
      'hub-forbidden',
      `the hub does not let this account fetch ${id}`,
      'invalid-request',
      `See ${page} for what is needed, and check the permissions of HF_TOKEN.`,
    );
  }
  return make(
    'hub-answer',
    `the hub answered ${status} for ${id}`,
    'model',
    'Try again later; a download begun is resumed.',
  );
}

async function bodyMessage(response: Response): Promise<string> {
  try {
    const text = await response.text();
    const { error } = JSON.parse(text) as { error?: unknown };
    return typeof error === 'string' ? error : '';
  } catch {
    return '';
  }
}
