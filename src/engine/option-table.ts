/** The engine's options, an entry each: what it takes, and whether the engine's thread is told. Their types say what each is for. */
import { AUTOTUNE_MODES, PRECISIONS } from '../device/device.js';
import type { KvOptions } from '../kv/options.js';
import { POOLINGS } from './pooling.js';
import { isSignal } from './request-check.js';
import { DEVICE_CHOICES, type EngineOptions } from './types.js';
import { isMediaDomain } from './vision/picture-access.js';

export interface EngineOption {
  /** The engine's thread is told; the others concern the caller's alone. */
  readonly host: boolean;
  accepts(value: unknown): boolean;
  /** In words, as in "it takes a whole number". */
  readonly takes: string;
}

interface Value {
  readonly takes: string;
  accepts(value: unknown): boolean;
}

const whole = (from: 0 | 1): Value => ({
  takes: from === 0 ? 'a whole number' : 'a whole number above 0',
  accepts: (value) => Number.isSafeInteger(value) && (value as number) >= from,
});
const oneOf = (known: readonly (string | number)[], takes = `one of ${known.join(', ')}`): Value => ({
  takes,
  accepts: (value) => known.includes(value as string | number),
});
const text = (takes: string): Value => ({
  takes,
  accepts: (value) => typeof value === 'string' && value !== '',
});
const milliseconds = (accepts: (ms: number) => boolean, bound: string): Value => ({
  takes: `a number of milliseconds ${bound}`,
  accepts: (value) => typeof value === 'number' && accepts(value),
});
const FLAG: Value = { takes: 'true or false', accepts: (value) => typeof value === 'boolean' };
const FUNCTION: Value = { takes: 'a function', accepts: (value) => typeof value === 'function' };
/** What is in it is checked where it is read. */
const ANY: Value = { takes: 'an object', accepts: () => true };
const FIELDS: Value = {
  takes: 'an object of fields of config.json',
  accepts: (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
};
const OPTIONS: Value = { ...FIELDS, takes: 'an object' };
const HOSTS: Value = {
  takes: 'a list of hosts, each example.com or *.example.com',
  accepts: (value) => Array.isArray(value) && value.length > 0 && value.every(isMediaDomain),
};

const host = <V extends Value>(value: V) => ({ ...value, host: true }) as const;
const caller = <V extends Value>(value: V) => ({ ...value, host: false }) as const;

/** All but those of the KV cache, which go together (kv/options.ts). */
export const OPTION_TABLE = {
  device: host(oneOf(DEVICE_CHOICES)),
  precision: host(oneOf(PRECISIONS)),
  deterministic: host(FLAG),
  threads: host(whole(1)),
  cpuExperts: host(whole(0)),
  allowSoftwareGpu: host(FLAG),
  autotune: host(oneOf(AUTOTUNE_MODES)),
  autotuneMs: host(milliseconds((ms) => ms >= 0, 'from 0')),
  quantize: host(oneOf([4, 8], '4 or 8')),
  hfOverrides: host(FIELDS),
  kvMemory: host(whole(1)),
  kvCalibration: host(text('the name of a file, or auto')),
  maxContext: host(whole(1)),
  maxRows: host(whole(1)),
  maxBatchTokens: host(whole(1)),
  maxQueue: host(whole(0)),
  targetItlMs: host(milliseconds((ms) => Number.isFinite(ms) && ms >= 0, 'from 0')),
  queueTimeoutMs: caller(milliseconds((ms) => ms > 0, 'above 0')),
  blockTokens: host(oneOf([16, 32, 64], '16, 32 or 64')),
  prefixCache: host(FLAG),
  prefixCacheBytes: host(whole(0)),
  prefixSnapshotBytes: host(whole(0)),
  prefixCacheDir: host(text('a folder')),
  prefixCacheDiskBytes: host(whole(1)),
  imageCacheBytes: host(whole(1)),
  allowMediaUrls: caller(FLAG),
  allowedMediaDomains: caller(HOSTS),
  allowedLocalMediaPath: caller(text('a folder')),
  pooling: caller(oneOf(POOLINGS)),
  sampling: caller(OPTIONS),
  tokenizer: caller(text('a folder, a GGUF file or a hub id')),
  mmproj: caller(text('the path of a GGUF file')),
  toolFormat: caller(text('the name of a format')),
  name: caller(text('a string that is not empty')),
  hub: caller(ANY),
  worker: caller(FLAG),
  decodeVideo: caller(FUNCTION),
  onProgress: caller(FUNCTION),
  onLog: caller(FUNCTION),
  signal: caller({ takes: 'an AbortSignal', accepts: isSignal }),
} as const satisfies { readonly [K in Exclude<keyof EngineOptions, keyof KvOptions>]-?: EngineOption };

type Table = typeof OPTION_TABLE;

/** Names of the options that the engine's thread is told. */
export type HostOption = { [K in keyof Table]: Table[K]['host'] extends true ? K : never }[keyof Table];
