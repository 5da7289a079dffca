/** What is asked of a GGUF file to make its tokenizer. */

import type { KvantError } from '../../errors.js';

/** The keys of a GGUF file, each checked when it is asked for. */
export interface TokenizerMetadata {
  readonly path: string;
  keys(): string[];
  text(key: string): string | undefined;
  flag(key: string): boolean | undefined;
  number(key: string): number | undefined;
  count(key: string, min?: number): number | undefined;
  texts(key: string): string[] | undefined;
  numbers(key: string): number[] | undefined;
  /** An error that names the key. */
  odd(key: string, wanted: string): KvantError;
}
