/**
 * The engine's side of the message channel: loads, owns the core, answers. The same on a worker thread and on
 * the caller's own.
 */

import { serializeError } from '../errors.js';
import { asKvantError } from './core-errors.js';
import { type HostCallbacks, type LoadedHost, loadHost } from './host-load.js';
import { type FromHost, type HostConfig, packEvents, type ToHost, toWireStats } from './messages.js';

export class EngineHost {
  readonly #post: (message: FromHost) => void;
  readonly #makeDevice: HostCallbacks['makeDevice'];
  readonly #abort = new AbortController();
  #loading: Promise<void> | null = null;
  #loaded: LoadedHost | null = null;

  constructor(post: (message: FromHost) => void, makeDevice?: HostCallbacks['makeDevice']) {
    this.#post = post;
    this.#makeDevice = makeDevice;
  }

  receive(message: ToHost): void {
    switch (message.type) {
      case 'load':
        this.#loading = this.#load(message.config);
        return;
      case 'add':
        this.#add(message.request);
        return;
      case 'cancel':
        this.#loaded?.core.cancel(message.request);
        return;
      case 'clear-prefixes':
        void this.#loaded?.core.clearPrefixes().then(() => this.#stats(message.query));
        return;
      case 'stats':
        this.#stats(message.query);
        return;
      case 'close':
        void this.#close(message.drain);
        return;
    }
  }

  #stats(query: number): void {
    if (this.#loaded === null) return;
    this.#post({ type: 'stats', query, stats: toWireStats(this.#loaded.core.stats()) });
  }

  async #load(config: HostConfig): Promise<void> {
    try {
      const loaded = await loadHost(config, {
        onEvents: (events) => this.#post({ type: 'events', ...packEvents(events) }),
        onFault: (error) => this.#post({ type: 'fault', error: serializeError(error) }),
        onProgress: (progress) => this.#post({ type: 'progress', progress }),
        onLog: (entry) => this.#post({ type: 'log', entry }),
        signal: this.#abort.signal,
        ...(this.#makeDevice === undefined ? {} : { makeDevice: this.#makeDevice }),
      });
      this.#loaded = loaded;
      this.#post({ type: 'ready', info: loaded.info });
    } catch (error) {
      this.#post({ type: 'failed', error: serializeError(asKvantError(error)) });
    }
  }

  #add(request: Extract<ToHost, { type: 'add' }>['request']): void {
    try {
      this.#loaded?.core.add(request);
      this.#post({ type: 'accepted', request: request.id });
    } catch (error) {
      this.#post({ type: 'refused', request: request.id, error: serializeError(asKvantError(error)) });
    }
  }

  async #close(drain: boolean): Promise<void> {
    this.#abort.abort();
    await this.#loading;
    let error: unknown = null;
    try {
      await this.#loaded?.close(drain);
    } catch (caught) {
      error = caught;
    }
    this.#post({ type: 'closed', error: error === null ? null : serializeError(asKvantError(error)) });
  }
}
