/** A host on token ids in this thread, on one CPU thread, and a way to ask it things. */
import { join } from 'node:path';
import { expect, vi } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import type { Device } from '../../src/device/device.js';
import type { HostConfig, HostInfo } from '../../src/engine/messages.js';
import type { ChoiceEvent } from '../../src/engine/sequence.js';
import type { EngineStats } from '../../src/engine/types.js';
import { resolveSampling } from '../../src/sampling/params.js';
import { tokenRules } from '../../src/sampling/token-rules.js';
import { MODEL_FIXTURES } from '../parity/runner.js';
import { loadTiny } from './tiny-host.js';

/** Most tokens of a step. */
export const BATCH = 32;
/** Tokens of an answer, where nothing is said. */
export const DRAWS = 40;

export interface Said {
  readonly ids: readonly number[];
  /** Of each token, where they were asked for: a change of any logit shows in them. */
  readonly logprobs: readonly number[];
  readonly cached: number;
}

type Open = Map<
  number,
  { readonly ids: number[]; readonly logprobs: number[]; readonly done: (said: Said) => void }
>;

export class Asker implements AsyncDisposable {
  readonly info: HostInfo;
  readonly #host: Awaited<ReturnType<typeof loadTiny>>;
  readonly #open: Open;
  #next = 1;

  static async open(
    model: string,
    options: Partial<HostConfig> = {},
    wrap: (device: Device) => Device | Promise<Device> = (device) => device,
  ): Promise<Asker> {
    const open: Open = new Map();
    const host = await loadTiny(
      await wrap(
        await createCpuDevice({ threads: 1, ...(options.precision && { precision: options.precision }) }),
      ),
      {
        weights: { kind: 'folder', path: join(MODEL_FIXTURES, model) },
        maxContext: 512,
        maxRows: 4,
        maxBatchTokens: BATCH,
        prefixCache: true,
        ...options,
      },
      (events: readonly ChoiceEvent[]) => {
        for (const event of events) {
          const one = open.get(event.request)!;
          one.ids.push(...event.ids);
          one.logprobs.push(...(event.logprobs ?? []).map(({ logprob }) => logprob));
          if (event.error !== null) throw event.error;
          if (event.finish !== null)
            one.done({ ids: one.ids, logprobs: one.logprobs, cached: event.cached ?? 0 });
        }
      },
    );
    return new Asker(host, open);
  }

  private constructor(host: Awaited<ReturnType<typeof loadTiny>>, open: Open) {
    this.#host = host;
    this.#open = open;
    this.info = host.info;
  }

  ask(prompt: readonly number[], options: Parameters<typeof resolveSampling>[0] = {}): Promise<Said> {
    const sampling = resolveSampling({ temperature: 0, maxTokens: DRAWS, ignoreEos: true, ...options });
    const id = this.#next++;
    return new Promise((done) => {
      this.#open.set(id, { ids: [], logprobs: [], done });
      this.#host.core.add({
        id,
        prompt: Int32Array.from(prompt),
        sampling,
        rules: tokenRules(sampling, null),
        continuation: true,
        receivedAt: 0,
      });
    });
  }

  async inTurn(prompts: readonly (readonly number[])[]): Promise<Said[]> {
    const said: Said[] = [];
    for (const prompt of prompts) said.push(await this.ask(prompt));
    return said;
  }

  stats(): EngineStats {
    return this.#host.core.stats();
  }

  async idle(): Promise<void> {
    await vi.waitFor(() => expect(this.stats().blocksUsed).toBe(0));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.idle();
    await this.#host.close(false);
  }
}
