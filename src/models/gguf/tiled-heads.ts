/**
 * Recurrent layers of Qwen3.5 with more value heads than key heads: files have value head h go with key head `h mod keyHeads`, and kvant
 * computes with `⌊h · keyHeads / heads⌋`. Value heads cannot be moved, for the last matrix has them in its columns, and several in one
 * block. So each has a key head of its own: rows of q and k stand for as many heads as they serve.
 *
 * Source: llama.cpp's converter (conversion/qwen.py) and its graph (models/qwen35.cpp).
 */

import type { RowOrder } from '../../weights/gguf-matrix.js';
import type { GgufMetadata } from '../../weights/gguf-metadata.js';

export interface TiledHeads {
  readonly keyHeads: number;
  readonly heads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly taps: number;
}

/** @returns undefined where each value head has a key head of its own already */
export function tiledHeads(metadata: GgufMetadata, name: string): TiledHeads | undefined {
  const count = (key: string): number => metadata.count(`${name}.ssm.${key}`) ?? 1;
  const [keyHeads, heads] = [count('group_count'), count('time_step_rank')];
  if (keyHeads === heads || heads % keyHeads !== 0) return undefined;
  const valueDim = count('inner_size') / heads;
  return { keyHeads, heads, keyDim: count('state_size'), valueDim, taps: count('conv_kernel') };
}

export const isConv = (stored: string): boolean => stored.endsWith('.ssm_conv1d.weight');

/** The order of the rows of q, k and v, and of what the convolution before them has for each. */
export function tiledOrder(stored: string, shape: TiledHeads): RowOrder | undefined {
  const conv = isConv(stored);
  if (!conv && !/^blk\.\d+\.attn_qkv\.weight$/.test(stored)) return undefined;
  const { keyHeads, heads, keyDim, valueDim, taps } = shape;
  const own = 2 * heads * keyDim;
  const of = (row: number): number => {
    if (row >= own) return row - own + 2 * keyHeads * keyDim;
    const side = Math.floor(row / (heads * keyDim));
    const head = Math.floor(row / keyDim) % heads;
    return (side * keyHeads + (head % keyHeads)) * keyDim + (row % keyDim);
  };
  const rows = own + heads * valueDim;
  if (!conv) return { rows, of };
  return { rows: rows * taps, of: (number) => of(Math.floor(number / taps)) * taps + (number % taps) };
}
