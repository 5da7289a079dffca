/** What passes between the caller's thread and the engine's: plain data only, nothing of a device. */

import type { DeviceInfo } from '../device/device.js';
import type { RowKind } from '../device/graph.js';
import { type SerializedError, serializeError } from '../errors.js';
import type { KvOptions } from '../kv/options.js';
import type { TokenTable } from '../text/token-bytes.js';
import type { ContextRaise } from './core-errors.js';
import type { HostOption } from './option-table.js';
import type { Pooling } from './pooling.js';
import type { ChoiceEvent, CoreRequest } from './sequence.js';
import type { ModelPlace } from './texts/text-origin.js';
import type {
  DeviceChoice,
  EngineInfo,
  EngineLimits,
  EngineOptions,
  EngineStats,
  LoadProgress,
  LogEntry,
  TokenLogprobs,
  TuningInfo,
} from './types.js';

/** Weights from a folder, or made up in the sizes of a known model (benchmarks). */
export type WeightOrigin =
  | ({ readonly kind: 'folder' } & ModelPlace)
  | { readonly kind: 'shape'; readonly name: string; readonly vocab?: number };

/** All that the engine's thread needs in order to load: the options it is told (option-table.ts); undefined means the default. */
export type HostConfig = { readonly [K in HostOption]: EngineOptions[K] | undefined } & {
  readonly weights: WeightOrigin;
  readonly device: DeviceChoice;
  readonly prefixCache: boolean;
  /** What the checkpoint says of embeddings, or a caller by `pooling`. Null: it writes text. */
  readonly embedding: EmbeddingPlan | null;
  readonly kv: KvOptions;
  /** Log device bytes and buffers after every step. */
  readonly resourceDebug: boolean;
};

/** How a model makes embeddings, as far as the engine's thread is concerned. */
export interface EmbeddingPlan {
  /** How hidden states become one where a request does not say. */
  readonly pooling: Pooling;
  /** It writes text as well. */
  readonly writes: boolean;
  /** Most tokens of a text, where the checkpoint says so. */
  readonly maxTokens: number | null;
}

/** What the engine's thread needs to know of the text side. It comes while weights are loaded. */
export interface HostText {
  /** In shared memory: posting it copies nothing. Null makes one without texts. */
  readonly tokenTable: TokenTable | null;
  /** Null: those of the model's config. */
  readonly eosIds: readonly number[] | null;
}

/** What the engine's thread tells of itself once it has loaded. */
export interface HostInfo {
  readonly architecture: string;
  readonly layers: number;
  readonly hiddenSize: number;
  readonly vocabSize: number;
  readonly modelContext: number;
  readonly weightBytes: number;
  readonly eosIds: readonly number[];
  readonly device: DeviceInfo;
  readonly deviceReason: string;
  readonly tuning: TuningInfo | null;
  readonly kv: EngineInfo['kv'];
  readonly memory: EngineInfo['memory'];
  readonly limits: EngineLimits;
  /** The rows of hidden states that steps bring; null for none. */
  readonly hidden: RowKind | null;
  /** How they become one where a request does not say; null where there are none. */
  readonly pooling: Pooling | null;
  /** False for a model without a head: it makes embeddings alone. */
  readonly writes: boolean;
  /** Null for a model that reads text only. */
  readonly vision: { readonly imageToken: number | string } | null;
  /** What longer prompts need. */
  readonly contextRaise: ContextRaise;
}

export type ToHost =
  | { readonly type: 'load'; readonly config: HostConfig }
  /** Once, for each `load`. */
  | { readonly type: 'text'; readonly text: HostText }
  | { readonly type: 'add'; readonly request: CoreRequest }
  | { readonly type: 'cancel'; readonly request: number }
  | { readonly type: 'stats'; readonly query: number }
  /** Answered with the stats behind it. */
  | { readonly type: 'clear-prefixes'; readonly query: number }
  | { readonly type: 'close'; readonly drain: boolean };

/** A ChoiceEvent whose error can be posted. */
export type WireEvent = Omit<ChoiceEvent, 'error'> & { readonly error: SerializedError | null };
/** EngineStats whose fault can be posted. */
export type WireStats = Omit<EngineStats, 'fault'> & { readonly fault: SerializedError | null };

export type FromHost =
  | { readonly type: 'progress'; readonly progress: LoadProgress }
  | { readonly type: 'log'; readonly entry: LogEntry }
  | { readonly type: 'ready'; readonly info: HostInfo }
  /** Loading failed. The thread has let go of everything. */
  | { readonly type: 'failed'; readonly error: SerializedError }
  | { readonly type: 'accepted'; readonly request: number }
  | { readonly type: 'refused'; readonly request: number; readonly error: SerializedError }
  /** Everything one step brought: one message a step. */
  | ({ readonly type: 'events' } & PackedEvents)
  /** The device is gone; the thread is still there to say so. */
  | { readonly type: 'fault'; readonly error: SerializedError }
  | { readonly type: 'stats'; readonly query: number; readonly stats: WireStats }
  | { readonly type: 'closed'; readonly error: SerializedError | null };

/**
 * Events as they are posted. Most bring one token, with or without log-probabilities, and nothing else: of those only what differs, one
 * after another in arrays, as an object for each costs several times as much to copy: 32 tokens with five alternatives each took
 * 120 µs of both threads together, where flat numbers take 13. What `tokens` says came before what `events` say.
 */
export interface PackedEvents {
  /** Request, choice, id, text; and so on. */
  readonly tokens: readonly (number | string)[];
  /** Of those with log-probabilities: which of `tokens` it is, log-probability, rank, how many alternatives; id and log-probability of each. */
  readonly ranked: readonly number[];
  readonly events: readonly WireEvent[];
}

/** A choice has no other event before one of a token alone: an end is the last. */
export function packEvents(events: readonly ChoiceEvent[]): PackedEvents {
  const tokens: (number | string)[] = [];
  const ranked: number[] = [];
  const others: WireEvent[] = [];
  for (const event of events) {
    const { request, choice, ids, text, logprobs, finish, error } = event;
    if (ids.length === 1 && finish === null) {
      if (logprobs !== null) packLogprobs(ranked, tokens.length / TOKEN_FIELDS, logprobs[0]!);
      tokens.push(request, choice, ids[0]!, text);
    } else others.push(error === null ? (event as WireEvent) : { ...event, error: serializeError(error) });
  }
  return { tokens, ranked, events: others };
}

const TOKEN_FIELDS = 4;
const RANKED_FIELDS = 4;

function packLogprobs(ranked: number[], token: number, { logprob, rank, top }: TokenLogprobs): void {
  ranked.push(token, logprob, rank, top.length);
  for (const one of top) ranked.push(one.id, one.logprob);
}

/** Hands on the tokens that were packed, in their order. */
export function unpackTokens(
  { tokens, ranked }: PackedEvents,
  receive: (
    request: number,
    choice: number,
    id: number,
    text: string,
    logprobs: TokenLogprobs | null,
  ) => void,
): void {
  let at = 0;
  for (let token = 0; token * TOKEN_FIELDS < tokens.length; token++) {
    const from = token * TOKEN_FIELDS;
    const id = tokens[from + 2] as number;
    let logprobs: TokenLogprobs | null = null;
    if (at < ranked.length && ranked[at] === token) {
      const count = ranked[at + 3]!;
      const first = at + RANKED_FIELDS;
      const top = Array.from({ length: count }, (_, i) => ({
        id: ranked[first + 2 * i]!,
        logprob: ranked[first + 2 * i + 1]!,
      }));
      logprobs = { id, logprob: ranked[at + 1]!, rank: ranked[at + 2]!, top };
      at = first + 2 * count;
    }
    receive(tokens[from] as number, tokens[from + 1] as number, id, tokens[from + 3] as string, logprobs);
  }
}

export function toWireStats(stats: EngineStats): WireStats {
  const { fault, ...rest } = stats;
  return { ...rest, fault: fault === undefined ? null : serializeError(fault) };
}
