/** Options of the Engine's methods that are no requests. */
import type { EngineOptions } from './types.js';

export interface TokenizeOptions {
  /** Let the tokenizer add its BOS and the like. Default true. */
  readonly addSpecialTokens?: boolean;
}

export interface TokenBytesOptions {
  /** Spell special tokens out, which are left out of texts. Default true. */
  readonly special?: boolean;
}

export interface ShapeOptions extends EngineOptions {
  /** Rows of the vocabulary. Default: the model's. */
  readonly vocab?: number;
  /** A made-up tokenizer and chat template as well: what comes out is words without sense. Default false. */
  readonly standInText?: boolean;
}
