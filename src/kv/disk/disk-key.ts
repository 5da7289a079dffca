/** Under which key a block is kept on disk. */

import { type ChainKeys, KEY_WORDS } from '../prefix/chain-keys.js';

/** The block's key in the chain; of a young block, whose chain has the same one, with the last word's bits turned. */
export function diskKey(keys: ChainKeys, at: number, young: boolean): string {
  const key = keys.hex(at);
  if (!young) return key;
  const last = ~keys.word(at, KEY_WORDS - 1) >>> 0;
  return key.slice(0, -8) + last.toString(16).padStart(8, '0');
}

export function* diskKeys(keys: ChainKeys, from: number, to: number, young: boolean): Generator<string> {
  for (let at = from; at < to; at++) yield diskKey(keys, at, young);
}
