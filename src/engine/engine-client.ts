/** The books of open requests, and the conversation with the engine's host. */

import type { Worker } from 'node:worker_threads';
import { deserializeError, type KvantError } from '../errors.js';
import { CoalescedNotifier } from './coalesced-notifier.js';
import { asKvantError, shuttingDown } from './core-errors.js';
import type { EngineInternals } from './engine-internals.js';
import type { GenerationStream } from './generation.js';
import {
  type FromHost,
  type HostConfig,
  type HostInfo,
  type HostText,
  type PackedEvents,
  unpackTokens,
} from './messages.js';
import { closed, opened } from './open-engines.js';
import type { CoreRequest } from './sequence.js';
import { inProcessTransport, type Transport, type TransportEvents, workerTransport } from './transport.js';
import type { EngineOptions, EngineStats, LoadProgress } from './types.js';
import { givenAway } from './vision/patched-image.js';
import { withResolvers } from './with-resolvers.js';

export class EngineClient {
  readonly failed: Promise<KvantError>;
  readonly #options: EngineOptions;
  readonly #streams = new Map<number, GenerationStream>();
  readonly #queries = new Map<number, (stats: EngineStats | KvantError) => void>();
  readonly #notifier = new CoalescedNotifier();
  readonly #ready = withResolvers<HostInfo>();
  readonly #failed = withResolvers<KvantError>();
  readonly #closed = withResolvers<void>();
  #transport: Transport | null = null;
  /** The last news of the host while the text side is still being loaded, which is told of first. */
  #early: LoadProgress | null = null;
  #textLoaded = false;
  #loaded = false;
  #held = true;
  #fault: KvantError | null = null;
  #closing: Promise<void> | null = null;
  #lastId = 0;

  private constructor(options: EngineOptions) {
    this.#options = options;
    this.failed = this.#failed.promise;
    this.#closed.promise.catch(() => {});
    this.#ready.promise.catch(() => {});
  }

  /**
   * The host loads while the text side is loaded here; what is wrong with the text is told first, whatever the host found.
   * `thread` is null for a host on this thread.
   */
  static async start<T extends HostText>(
    config: HostConfig,
    loadText: () => Promise<T>,
    thread: Worker | null,
    options: EngineOptions,
    internals: EngineInternals,
  ): Promise<{ client: EngineClient; info: HostInfo; text: T }> {
    const client = new EngineClient(options);
    const events: TransportEvents = {
      onMessage: (message) => client.#receive(message),
      onCrash: (error) => client.#crash(error),
    };
    const transport =
      thread === null
        ? await inProcessTransport(events, internals.makeDevice)
        : workerTransport(events, thread, internals.onWorker);
    client.#transport = transport;
    const abandon = (): void => client.#ready.reject(options.signal?.reason);
    options.signal?.addEventListener('abort', abandon, { once: true });
    try {
      options.signal?.throwIfAborted();
      transport.post({ type: 'load', config });
      const text = await loadText();
      const { tokenTable, eosIds } = text;
      transport.post({ type: 'text', text: { tokenTable, eosIds } });
      client.#textLoaded = true;
      if (client.#early !== null) options.onProgress?.(client.#early);
      const info = await client.#ready.promise;
      client.#loaded = true;
      opened(client);
      client.#holdProcess();
      return { client, info, text };
    } catch (error) {
      transport.post({ type: 'close', drain: false });
      await Promise.race([client.#closed.promise.catch(() => {}), client.failed]);
      await transport.end();
      throw error;
    } finally {
      options.signal?.removeEventListener('abort', abandon);
    }
  }

  nextId(): number {
    return ++this.#lastId;
  }

  add(request: CoreRequest, stream: GenerationStream): void {
    const refusal = this.#fault ?? (this.#closing === null ? null : shuttingDown());
    if (refusal !== null) {
      stream.refuse(refusal);
      return;
    }
    this.#streams.set(request.id, stream);
    this.#holdProcess();
    this.#transport!.post({ type: 'add', request }, givenAway(request.pictures ?? []));
  }

  cancel(request: number): void {
    if (this.#streams.has(request)) this.#transport!.post({ type: 'cancel', request });
  }

  stats(): Promise<EngineStats> {
    return this.#ask('stats');
  }

  clearPrefixes(): Promise<EngineStats> {
    return this.#ask('clear-prefixes');
  }

  async #ask(type: 'stats' | 'clear-prefixes'): Promise<EngineStats> {
    if (this.#fault !== null) throw this.#fault;
    if (this.#closing !== null) throw shuttingDown();
    const query = this.nextId();
    const answer = await new Promise<EngineStats | KvantError>((resolve) => {
      this.#queries.set(query, resolve);
      this.#holdProcess();
      this.#transport!.post({ type, query });
    });
    if (answer instanceof Error) throw answer;
    return answer;
  }

  close(drain: boolean): Promise<void> {
    // Somebody has no more patience with those who drain.
    if (this.#closing !== null && !drain) this.#transport!.post({ type: 'close', drain });
    this.#closing ??= this.#close(drain);
    this.#holdProcess();
    return this.#closing;
  }

  async #close(drain: boolean): Promise<void> {
    const transport = this.#transport!;
    try {
      // A thread that crashed says nothing any more; one whose device was lost still does.
      if (this.#fault !== null) return;
      transport.post({ type: 'close', drain });
      await this.#closed.promise;
    } finally {
      this.#endAll(shuttingDown());
      await transport.end();
      closed(this);
    }
  }

  #receive(message: FromHost): void {
    switch (message.type) {
      case 'progress':
        if (!this.#textLoaded) {
          this.#early = message.progress;
          return;
        }
        try {
          this.#options.onProgress?.(message.progress);
        } catch (error) {
          this.#ready.reject(error);
        }
        return;
      case 'log':
        this.#options.onLog?.(message.entry);
        return;
      case 'ready':
        this.#ready.resolve(message.info);
        return;
      case 'failed':
        this.#ready.reject(deserializeError(message.error));
        return;
      case 'accepted':
        this.#streams.get(message.request)?.accept();
        return;
      case 'refused':
        this.#refuse(message.request, deserializeError(message.error));
        return;
      case 'events':
        this.#deliver(message);
        return;
      case 'fault':
        this.#failed.resolve(deserializeError(message.error));
        return;
      case 'stats': {
        const { fault, ...stats } = message.stats;
        this.#answer(message.query, fault === null ? stats : { ...stats, fault: deserializeError(fault) });
        return;
      }
      case 'closed':
        if (message.error === null) this.#closed.resolve();
        else this.#closed.reject(deserializeError(message.error));
        return;
    }
  }

  #deliver(packed: PackedEvents): void {
    unpackTokens(packed, (request, choice, id, text, logprobs) => {
      const stream = this.#streams.get(request);
      if (stream === undefined) return;
      stream.receiveToken(choice, id, text, logprobs);
      this.#notifier.tell(stream);
    });
    for (const event of packed.events) {
      const stream = this.#streams.get(event.request);
      if (stream === undefined) continue;
      stream.receive(event);
      if (!stream.open) this.#streams.delete(event.request);
      this.#notifier.tell(stream);
    }
    this.#holdProcess();
  }

  #refuse(request: number, error: KvantError): void {
    this.#streams.get(request)?.refuse(error);
    this.#streams.delete(request);
    this.#holdProcess();
  }

  #answer(query: number, stats: EngineStats | KvantError): void {
    this.#queries.get(query)?.(stats);
    this.#queries.delete(query);
    this.#holdProcess();
  }

  /** The process does not end while there is anything to wait for; an idle engine is no reason to stay. */
  #holdProcess(): void {
    const busy = !this.#loaded || this.#closing !== null || this.#streams.size > 0 || this.#queries.size > 0;
    if (busy === this.#held) return;
    this.#held = busy;
    this.#transport!.hold(busy);
  }

  /** The thread is gone: open requests end with the error, later ones are refused with it. */
  #crash(error: KvantError): void {
    this.#fault = asKvantError(error);
    this.#ready.reject(error);
    this.#failed.resolve(error);
    this.#closed.resolve();
    this.#endAll(error);
  }

  #endAll(error: KvantError): void {
    for (const stream of this.#streams.values()) stream.fail(error);
    this.#streams.clear();
    for (const query of [...this.#queries.keys()]) this.#answer(query, error);
  }
}
