/**
 * The engine's side of the message channel: loads, owns the core, answers. The same on a worker thread and on
 * the caller's own.
 */

import { serializeError } from '../errors.js';
import { asKvantError } from './core-errors.js';
import { type HostCallbacks, type LoadedHost, loadHost } from './host-load.js';
import {
  type FromHost,
  type HostConfig,
  type HostText,
  packEvents,
  type ToHost,
  toWireStats,
} from './messages.js';
import type { LoadProgress } from './types.js';
import { withResolvers } from './with-resolvers.js';

/** Milliseconds between two news of one phase: a message costs more than a small tensor. */
const PROGRESS_EVERY_MS = 40;

/** Leaves out news that follow too soon; the first and the last of each phase always pass. */
function thinned(tell: (progress: LoadProgress) => void): (progress: LoadProgress) => void {
  let phase = '';
  let toldAt = 0;
  return (progress) => {
    const now = performance.now();
    const between = progress.phase === phase && progress.done < progress.total;
    if (between && now - toldAt < PROGRESS_EVERY_MS) return;
    phase = progress.phase;
    toldAt = now;
    tell(progress);
  };
}

export class EngineHost {
  readonly #post: (message: FromHost) => void;
  readonly #makeDevice: HostCallbacks['makeDevice'];
  readonly #abort = new AbortController();
  readonly #text = withResolvers<HostText>();
  #loading: Promise<void> | null = null;
  #loaded: LoadedHost | null = null;

  constructor(post: (message: FromHost) => void, makeDevice?: HostCallbacks['makeDevice']) {
    this.#post = post;
    this.#makeDevice = makeDevice;
    // Whoever waits for it is told; where loading failed before, nobody does.
    this.#text.promise.catch(() => {});
  }

  receive(message: ToHost): void {
    switch (message.type) {
      case 'load':
        this.#loading = this.#load(message.config);
        return;
      case 'text':
        this.#text.resolve(message.text);
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
      const loaded = await loadHost(config, this.#text.promise, {
        onEvents: (events) => this.#post({ type: 'events', ...packEvents(events) }),
        onFault: (error) => this.#post({ type: 'fault', error: serializeError(error) }),
        onProgress: thinned((progress) => this.#post({ type: 'progress', progress })),
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
      const loaded = this.#loaded;
      loaded?.core.add(request, loaded.grammars.constrainAll(request));
      this.#post({ type: 'accepted', request: request.id });
    } catch (error) {
      this.#post({ type: 'refused', request: request.id, error: serializeError(asKvantError(error)) });
    }
  }

  async #close(drain: boolean): Promise<void> {
    this.#abort.abort();
    this.#text.reject(this.#abort.signal.reason);
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
