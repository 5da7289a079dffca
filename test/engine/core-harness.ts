/** An EngineCore on the oracle device, and a way to ask it things. */
import type { KvCaches, KvPoolSpec } from '../../src/device/kv.js';
import { Ops } from '../../src/device/ops.js';
import type { Constrain } from '../../src/engine/constraint.js';
import { EngineCore, STEPS_IN_FLIGHT } from '../../src/engine/core.js';
import type { PrefixOptions } from '../../src/engine/prefix/prefixes.js';
import { ORDINARY_PLACE, type QueuePlace } from '../../src/engine/scheduling/queue-place.js';
import type { ChoiceEvent, CoreRequest } from '../../src/engine/sequence.js';
import type { EngineLimits, FinishReason, TokenLogprobs } from '../../src/engine/types.js';
import type { KvantError } from '../../src/errors.js';
import { rowBlocks } from '../../src/kv/retention.js';
import type { SamplingOptions } from '../../src/sampling/options.js';
import { resolveSampling } from '../../src/sampling/params.js';
import { tokenRules } from '../../src/sampling/token-rules.js';
import type { TokenTable } from '../../src/text/token-bytes.js';
import { OracleDevice } from './oracle-device.js';

export const VOCAB = 97;
const F16 = { kind: 'float', dtype: 'f16' } as const;

export interface Answer {
  text: string;
  readonly ids: number[];
  readonly logprobs: TokenLogprobs[];
  finish: FinishReason | null;
  error: KvantError | null;
  cached: number | null;
}

/** Every id is one letter: `a` for 0, 26, 52, … */
function letterTable(size: number): TokenTable {
  return {
    data: Uint8Array.from({ length: size }, (_, id) => 97 + (id % 26)),
    offsets: Uint32Array.from({ length: size + 1 }, (_, id) => id),
    flags: new Uint8Array(size).fill(1),
    size,
    leadingCount: 0,
    leadingByte: 0,
  };
}

export function letters(ids: readonly number[]): string {
  return ids.map((id) => String.fromCharCode(97 + (id % 26))).join('');
}

export interface HarnessOptions extends Partial<EngineLimits> {
  readonly blocks?: number;
  readonly blockTokens?: number;
  readonly eosIds?: readonly number[];
  readonly poison?: number;
  /** Sequences keep floats, in so many blocks, until they hold so many tokens. */
  readonly floatStart?: { readonly tokens: number; readonly blocks: number };
  readonly onStep?: () => void;
  /** Tokens that every layer sees, where all of them slide. */
  readonly window?: number;
  /** Cache groups behind the first one: what a token sees of them, and the blocks of their pools. */
  readonly slides?: readonly { readonly window: number; readonly blocks: number }[];
  /** A recurrent cache group behind those, with so many slots of state. */
  readonly states?: number;
  /** Cache prefixes. */
  readonly prefixes?: Partial<PrefixOptions>;
}

export class Harness {
  readonly device: OracleDevice;
  readonly limits: EngineLimits;
  readonly core: EngineCore;
  /** Called with everything one step brought. */
  onEvents: (events: readonly ChoiceEvent[]) => void = () => {};
  batches = 0;
  readonly #open = new Map<string, { answer: Answer; done: () => void }>();
  #nextId = 1;

  private constructor(device: OracleDevice, limits: EngineLimits, core: EngineCore) {
    this.device = device;
    this.limits = limits;
    this.core = core;
  }

  static async start(options: HarnessOptions = {}): Promise<Harness> {
    const {
      blockTokens = 16,
      blocks = 64,
      eosIds = [],
      poison,
      onStep,
      floatStart,
      prefixes,
      window = 0,
      slides = [],
      states = 0,
    } = options;
    const limits: EngineLimits = {
      maxContext: options.maxContext ?? Math.min(256, blocks * blockTokens),
      maxRows: options.maxRows ?? 4,
      maxBatchTokens: options.maxBatchTokens ?? 32,
      maxQueue: options.maxQueue ?? 64,
      targetItlMs: options.targetItlMs ?? 0,
    };
    const device = new OracleDevice({
      vocab: VOCAB,
      ...(poison === undefined ? {} : { poison }),
      ...(window === 0 ? {} : { window }),
      slides: slides.map((group) => group.window),
      recurrent: states > 0,
    });
    const spec: KvPoolSpec = {
      // As many bytes as a token has in the oracle's store.
      layers: [{ kvHeads: 1, headDim: 1, key: F16, value: F16, group: 0 }],
      blocks,
      blockTokens,
      slots: limits.maxRows,
      maxBlocksPerSlot: Math.ceil(limits.maxContext / blockTokens),
      floatStart: floatStart === undefined ? null : { blocks: floatStart.blocks, dtype: 'f16' },
    };
    const caches: KvCaches = {
      pools: [
        device.createKvPool(spec),
        ...slides.map((group) => device.createKvPool({ ...spec, blocks: group.blocks, floatStart: null })),
        ...(states > 0 ? [device.createKvPool({ ...spec, blocks: states, floatStart: null })] : []),
      ],
      layers: [
        { group: 0, index: 0 },
        ...slides.map((_, i) => ({ group: i + 1, index: 0 })),
        ...(states > 0 ? [{ group: slides.length + 1, index: 0 }] : []),
      ],
    };
    const program = await device.compile(
      new Ops().finish(),
      {
        maxTokens: limits.maxBatchTokens,
        maxOutputs: limits.maxRows,
        maxSequences: limits.maxRows,
        maxContext: limits.maxContext,
        inFlight: STEPS_IN_FLIGHT,
      },
      caches,
    );
    let harness!: Harness;
    const core = new EngineCore({
      device,
      program,
      caches,
      tokenTable: letterTable(VOCAB),
      eosIds,
      vocabSize: VOCAB,
      limits,
      scheduler: {
        maxBatchTokens: limits.maxBatchTokens,
        blockTokens,
        prefillReserve: Math.ceil(limits.maxBatchTokens / 4),
        minChunk: Math.min(4, limits.maxBatchTokens),
        floatStartTokens: floatStart?.tokens ?? 0,
        ageingMs: 2000,
        chunkTokens: 16,
        groups: [
          {
            window,
            rowBlocks: rowBlocks(window === 0 ? null : window, blockTokens, limits.maxBatchTokens),
          },
          ...slides.map((group) => ({
            window: group.window,
            rowBlocks: rowBlocks(group.window, blockTokens, limits.maxBatchTokens),
          })),
          ...(states > 0 ? [{ window: 0, rowBlocks: 1, state: true }] : []),
        ],
        targetItl: limits.targetItlMs,
      },
      onEvents: (events) => harness.#receive(events),
      ...(onStep === undefined ? {} : { onStep }),
      prefixes: prefixes === undefined ? null : { identity: 'oracle', ...prefixes },
    });
    harness = new Harness(device, limits, core);
    return harness;
  }

  /** Adds a request; every choice has its answer and a promise. Refusals throw. */
  add(
    prompt: readonly number[],
    sampling: SamplingOptions = { temperature: 0 },
    constrain: Constrain | null = null,
    place: QueuePlace = ORDINARY_PLACE,
    cacheSalt?: string,
  ): { id: number; answers: Answer[]; done: Promise<Answer[]> } {
    const resolved = resolveSampling({ temperature: 0, ...sampling });
    const request: CoreRequest = {
      id: this.#nextId++,
      prompt: Int32Array.from(prompt),
      sampling: resolved,
      rules: tokenRules(resolved, null),
      continuation: true,
      place,
      receivedAt: 0,
      ...(cacheSalt === undefined ? {} : { cacheSalt }),
    };
    this.core.add(request, constrain);
    const answers: Answer[] = [];
    const ends: Promise<void>[] = [];
    for (let choice = 0; choice < request.sampling.bestOf; choice++) {
      const answer: Answer = { text: '', ids: [], logprobs: [], finish: null, error: null, cached: null };
      answers.push(answer);
      ends.push(
        new Promise((done) => {
          this.#open.set(`${request.id}.${choice}`, { answer, done });
        }),
      );
    }
    return { id: request.id, answers, done: Promise.all(ends).then(() => answers) };
  }

  async ask(prompt: readonly number[], sampling?: SamplingOptions): Promise<Answer> {
    const [answer] = await this.add(prompt, sampling).done;
    return answer!;
  }

  /** True if nothing is queued, running, leaving or held. */
  get idle(): boolean {
    const { queued, prefilling, decoding, slotsUsed, blocksUsed, floatStartBlocksUsed, stepsInFlight } =
      this.core.stats();
    return (
      queued + prefilling + decoding + slotsUsed + blocksUsed + floatStartBlocksUsed + stepsInFlight === 0
    );
  }

  async untilIdle(): Promise<void> {
    for (let turns = 0; !this.idle; turns++) {
      if (turns > 10_000) throw new Error(`not idle: ${JSON.stringify(this.core.stats())}`);
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async turns(count: number): Promise<void> {
    for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve));
  }

  #receive(events: readonly ChoiceEvent[]): void {
    this.batches++;
    for (const event of events) {
      const key = `${event.request}.${event.choice}`;
      const open = this.#open.get(key);
      if (open === undefined) throw new Error(`an event for ${key}, which is over`);
      open.answer.text += event.text;
      open.answer.ids.push(...event.ids);
      open.answer.logprobs.push(...(event.logprobs ?? []));
      if (event.finish === null) continue;
      open.answer.finish = event.finish;
      open.answer.error = event.error;
      open.answer.cached = event.cached;
      this.#open.delete(key);
      open.done();
    }
    this.onEvents(events);
  }
}

/** A small seeded generator for tests (mulberry32). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function randomPrompt(random: () => number, length: number): number[] {
  return Array.from({ length }, () => Math.floor(random() * VOCAB));
}
