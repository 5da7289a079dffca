/** The names of all options of the engine's methods. Their types say what each is for. */
import { KV_OPTION_NAMES, type KvOptions } from '../kv/options.js';
import type { OptionNames } from '../option-names.js';
import type { ShapeOptions, TokenBytesOptions, TokenizeOptions } from './method-options.js';
import type { RenderChatOptions } from './model-text.js';
import type { CloseOptions, EngineOptions, HubAccess } from './types.js';

const KV_OPTIONS = Object.fromEntries(
  KV_OPTION_NAMES.map((name) => [name, true]),
) as unknown as OptionNames<KvOptions>;

export const ENGINE_OPTIONS: OptionNames<EngineOptions> = {
  ...KV_OPTIONS,
  device: true,
  precision: true,
  deterministic: true,
  threads: true,
  allowSoftwareGpu: true,
  autotune: true,
  autotuneMs: true,
  quantize: true,
  kvMemory: true,
  maxContext: true,
  maxRows: true,
  maxBatchTokens: true,
  maxQueue: true,
  targetItlMs: true,
  queueTimeoutMs: true,
  blockTokens: true,
  prefixCache: true,
  prefixCacheBytes: true,
  prefixCacheDir: true,
  prefixCacheDiskBytes: true,
  sampling: true,
  toolFormat: true,
  name: true,
  hub: true,
  worker: true,
  onProgress: true,
  onLog: true,
  signal: true,
};

export const SHAPE_OPTIONS: OptionNames<ShapeOptions> = { ...ENGINE_OPTIONS, vocab: true, standInText: true };

export const HUB_OPTIONS: OptionNames<HubAccess> = {
  token: true,
  cacheDir: true,
  endpoint: true,
  offline: true,
  revision: true,
};

export const RENDER_OPTIONS: OptionNames<RenderChatOptions> = {
  tools: true,
  templateOptions: true,
  addGenerationPrompt: true,
};

export const TOKENIZE_OPTIONS: OptionNames<TokenizeOptions> = { addSpecialTokens: true };

export const TOKEN_BYTES_OPTIONS: OptionNames<TokenBytesOptions> = { special: true };

export const CLOSE_OPTIONS: OptionNames<CloseOptions> = { drain: true };
