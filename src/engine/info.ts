/** What an engine says of itself: the model and memory as they were loaded, and its counters. */

import type { AutotuneMode, DeviceInfo, DeviceStats } from '../device/device.js';
import type { KvantError } from '../errors.js';
import type { DiskStats } from '../kv/disk/disk-tier.js';
import type { KvLayerInfo } from '../kv/policy.js';
import type { SamplingOptions } from '../sampling/options.js';
import type { FinishReason } from './finish-reason.js';
import type { Pooling } from './pooling.js';

/** One cache group: layers with a pool of blocks of their own. */
export interface KvGroupInfo {
  /** Tokens that its layers see, blocks behind them are given back; null where all are kept. */
  readonly window: number | null;
  readonly layers: readonly number[];
  readonly blocks: number;
  /** Bytes of one token in all its layers. */
  readonly bytesPerToken: number;
  /** It is the float head: the first so many tokens of each sequence. Absent: no head. */
  readonly head?: number;
  /** It is the float tail: `window` tokens of a sequence, beside the first group. Absent: no tail. */
  readonly tail?: boolean;
  /** Of recurrent layers, whose blocks are slots of state: bytes of one slot in all of them, else 0. */
  readonly stateBytes: number;
}

/** What is kept of pictures on the device. */
export interface FeatureStoreStats {
  /** Rows of the slab, and those that hold something. */
  readonly rows: number;
  readonly rowsUsed: number;
  /** Bytes of these, and how many they may be. */
  readonly bytes: number;
  readonly maxBytes: number;
  /** Pictures that are kept, and how often sequences under way or waiting hold one of them. */
  readonly entries: number;
  readonly references: number;
  /** Pictures that gave way to others. */
  readonly evictions: number;
  /** Pictures that were computed, and those that were there already. */
  readonly encoded: number;
  readonly hits: number;
  /** Seconds that towers took. */
  readonly seconds: number;
}

export interface EngineInfo {
  /** The name it is served under. */
  readonly name: string;
  readonly model: {
    readonly path: string;
    readonly architecture: string;
    readonly layers: number;
    readonly hiddenSize: number;
    readonly vocabSize: number;
    /** Longest context the model was made for. */
    readonly maxContext: number;
    /** Bytes of the weights on the device. */
    readonly weightBytes: number;
    /** What it takes in: `text`, and `image` where it sees. */
    readonly modalities: readonly ('text' | 'image')[];
    /** False for a model that makes embeddings alone. */
    readonly writes: boolean;
    readonly hasChatTemplate: boolean;
    /** The format in which the model's tool calls are read; null without a chat template. */
    readonly toolFormat: string | null;
    readonly eosTokenIds: readonly number[];
  };
  /** Null for a model that was loaded to write text alone. */
  readonly embedding: EmbeddingInfo | null;
  readonly device: DeviceInfo;
  /** Why this device: e.g. `auto: no GPU was found (…)`. */
  readonly deviceReason: string;
  /** Null where tuning is off. */
  readonly tuning: TuningInfo | null;
  readonly kv: {
    readonly layers: readonly KvLayerInfo[];
    /** Layers that keep the same positions share blocks: those that see all first, then those of each window. */
    readonly groups: readonly KvGroupInfo[];
    readonly blockTokens: number;
    /** Of all groups. */
    readonly blocks: number;
    readonly bytes: number;
    readonly bytesPerToken: number;
    /** Digest of the calibration that keys are stored by; null without. */
    readonly calibration: string | null;
    /** Float blocks for sequences of fewer than `start` tokens; null without `quantizedKvStart`. */
    readonly floatStart: { readonly start: number; readonly dtype: string; readonly blocks: number } | null;
  };
  readonly memory: MemoryUse;
  readonly limits: EngineLimits;
  /** What a request takes that says nothing: from EngineOptions.sampling, then generation_config. */
  readonly samplingDefaults: SamplingOptions;
  readonly loadMs: number;
}

/** How the model makes embeddings. */
export interface EmbeddingInfo {
  /** Numbers of an embedding that is not cut. */
  readonly size: number;
  /** How hidden states become one where a request does not say; null: it has to. */
  readonly pooling: Pooling | null;
  /** What a request may say of that. */
  readonly poolings: readonly Pooling[];
  /** Most tokens of a text, prompt and special tokens included. */
  readonly maxTokens: number;
  /** Names of the checkpoint's prompts. */
  readonly tasks: readonly string[];
  /** The sizes that embeddings may be cut to; null where the checkpoint lists none: any. */
  readonly dimensions: readonly number[] | null;
}

/** Bytes on the device when load ended. What requests ask of the sampler comes on top (`EngineStats.device`). */
export interface MemoryUse {
  /** What the device has for all of it; null where it does not say, as WebGPU does not. */
  readonly deviceBytes: number | null;
  readonly weights: number;
  /** KV of each cache group, in the order of `kv.groups`, without the float blocks of `kv.floatStart`. */
  readonly caches: readonly number[];
  /** Float blocks of sequences that are not quantised yet. */
  readonly floatStart: number;
  /** Activations, inputs of steps and scratch. */
  readonly activations: number;
  readonly total: number;
  /** Bytes in host memory besides: experts that stay there (`cpuExperts`), and what computes them. Absent: none do. */
  readonly host?: number;
}

/** What tuning came to. A decision is a shape and a number of rows, for which there are several kernels. */
export interface TuningInfo {
  readonly mode: AutotuneMode;
  readonly decisions: number;
  /** Decisions for another kernel than the one that is chosen by rule. */
  readonly tuned: number;
  /** Measured now, known from an earlier start, and not come to (or not measurable). */
  readonly measured: number;
  readonly cached: number;
  readonly left: number;
  readonly ms: number;
}

/** Limits in force, after the model, memory and options were reconciled. */
export interface EngineLimits {
  /** Milliseconds; 0 for none. */
  readonly targetItlMs: number;
  readonly maxContext: number;
  readonly maxRows: number;
  readonly maxBatchTokens: number;
  readonly maxQueue: number;
}

/** A look at the engine between two steps. Counters count from load. */
export interface EngineStats {
  /** Sequences waiting for a row. A request has one for each choice. */
  readonly queued: number;
  readonly prefilling: number;
  readonly decoding: number;
  readonly maxRows: number;
  readonly slotsUsed: number;
  /** Blocks that sequences hold, of all cache groups. What only the prefix cache keeps is as good as free. */
  readonly blocksUsed: number;
  readonly blocksTotal: number;
  /** The same for each cache group, in the order of `info.kv.groups`. */
  readonly cacheGroups: readonly { readonly blocksUsed: number; readonly blocksTotal: number }[];
  /** Blocks of sequences that are not quantised yet; 0 of 0 without `quantizedKvStart`. */
  readonly floatStartBlocksUsed: number;
  readonly floatStartBlocksTotal: number;
  /** Sequences that were converted when they reached `quantizedKvStart`. */
  readonly conversions: number;
  readonly steps: number;
  readonly stepsInFlight: number;
  /** Milliseconds that the oldest sequence in the queue has waited; 0 if none waits. */
  readonly oldestQueuedMs: number;
  /** Sequences that ended with `queue-timeout`. */
  readonly queueTimeouts: number;
  /** Of requests that had their turn, with those that the prefix cache had; once for all choices of a request. */
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly requests: number;
  readonly finished: Readonly<Record<FinishReason, number>>;
  readonly refused: number;
  /** Rows that gave way to an older one for want of KV blocks and were computed again. */
  readonly preemptions: number;
  /** Absent where no prefixes are cached. */
  readonly prefixCache?: PrefixCacheStats;
  /** Of a model that sees: what is kept of pictures. */
  readonly features?: FeatureStoreStats;
  readonly device: DeviceStats;
  /** Set when the device is lost: every request fails with it. */
  readonly fault?: KvantError;
}

/** What the prefix cache has and has done. Counters count from load. */
export interface PrefixCacheStats {
  /** Sequences that were looked up when they came in, those of them that found something, and tokens they did not compute. */
  readonly lookups: number;
  readonly hits: number;
  readonly hitTokens: number;
  /** Tokens that rows which had given way found again, and did not compute twice. */
  readonly resumedTokens: number;
  /** Blocks that gave way to others. */
  readonly evictions: number;
  /** Blocks in the cache, and their bytes; of those the bytes that no sequence holds, and how many these may be. */
  readonly blocks: number;
  readonly bytes: number;
  readonly idleBytes: number;
  readonly maxBytes: number;
  /** Absent without a folder. */
  readonly disk?: PrefixDiskStats;
}

/** What the folder of the prefix cache has, and has been used for by this engine. */
export interface PrefixDiskStats extends DiskStats {
  /** Blocks that came back into memory, and the tokens they hold. */
  readonly restoredBlocks: number;
  readonly restoredTokens: number;
}
