/** Under which key a block is kept on disk. */

import { type ChainKeys, KEY_WORDS } from '../prefix/chain-keys.js';

/** Which of the caches of a model a block is of: the cache group, and whether it is a float-start block. */
export interface BlockKind {
  readonly group: number;
  readonly floatStart: boolean;
}

/** The block's key in the chain, with the last word changed by its kind: blocks of all kinds have the same one in the chain. */
export function diskKey(keys: ChainKeys, at: number, { group, floatStart }: BlockKind): string {
  const key = keys.hex(at);
  if (!floatStart && group === 0) return key;
  const last = (keys.word(at, KEY_WORDS - 1) ^ group ^ (floatStart ? -1 : 0)) >>> 0;
  return key.slice(0, -8) + last.toString(16).padStart(8, '0');
}

export function* diskKeys(keys: ChainKeys, from: number, to: number, kind: BlockKind): Generator<string> {
  for (let at = from; at < to; at++) yield diskKey(keys, at, kind);
}
