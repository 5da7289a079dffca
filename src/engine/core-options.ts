import type { Device, Program } from '../device/device.js';
import type { RowKind } from '../device/graph.js';
import type { KvCaches } from '../device/kv.js';
import type { KvantError } from '../errors.js';
import type { TokenTable } from '../text/token-bytes.js';
import type { ContextRaise } from './core-errors.js';
import type { PrefixOptions } from './prefix/prefixes.js';
import type { SchedulerConfig } from './scheduling/scheduler.js';
import type { ChoiceEvent } from './sequence.js';
import type { EngineLimits } from './types.js';
import type { FeatureStore } from './vision/feature-store.js';

/** How the model sees. */
export interface VisionOptions {
  readonly features: FeatureStore;
  /** Patches a side of a token, where tokens of pictures turn by axes; else null. */
  readonly mergeSize: number | null;
  /** Tokens of a picture see each other, whichever comes first: so many of one have room in a step; null: they do not. */
  readonly ahead: number | null;
}

/** What the engine core is lent, and whom it tells. */
export interface CoreOptions {
  readonly device: Device;
  readonly program: Program;
  readonly caches: KvCaches;
  readonly tokenTable: TokenTable;
  readonly eosIds: readonly number[];
  readonly vocabSize: number;
  readonly limits: EngineLimits;
  /** Options that a longer context would take, for those who send too much. Default: none would help. */
  readonly contextRaise?: ContextRaise;
  readonly scheduler: SchedulerConfig;
  /** Null or absent: no prefixes are cached. */
  readonly prefixes?: PrefixOptions | null;
  /** The rows of hidden states that steps can bring; null or absent: none. */
  readonly hidden?: RowKind | null;
  /** All tokens of a prompt see each other: it is computed in one step. Default false. */
  readonly whole?: boolean;
  /** Null or absent: the model reads text only. */
  readonly vision?: VisionOptions | null;
  /** All that one step (or a cancellation) brought, at once. The array is not used again. */
  readonly onEvents: (events: readonly ChoiceEvent[]) => void;
  /** The device is gone. Every sequence ends with this error, every later request is refused with it. */
  readonly onFault?: (error: KvantError) => void;
  /** Called after each retired step with the sequences it worked on; absent: no work at all. */
  readonly onStep?: (step: number, rows: number) => void;
}
