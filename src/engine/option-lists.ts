/** The names of all options of the engine's methods. Their types say what each is for. */
import { KV_OPTION_NAMES } from '../kv/options.js';
import type { OptionNames } from '../option-names.js';
import type { ShapeOptions, TokenBytesOptions, TokenizeOptions } from './method-options.js';
import type { RenderChatOptions } from './model-text.js';
import { OPTION_TABLE } from './option-table.js';
import type { CloseOptions, EngineOptions, HubAccess } from './types.js';

export const ENGINE_OPTIONS = Object.fromEntries(
  [...KV_OPTION_NAMES, ...Object.keys(OPTION_TABLE)].map((name) => [name, true]),
) as OptionNames<EngineOptions>;

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
  reasoningEffort: true,
  addGenerationPrompt: true,
};

export const TOKENIZE_OPTIONS: OptionNames<TokenizeOptions> = { addSpecialTokens: true };

export const TOKEN_BYTES_OPTIONS: OptionNames<TokenBytesOptions> = { special: true };

export const CLOSE_OPTIONS: OptionNames<CloseOptions> = { drain: true };
