import {
  KIND_CODES, KIND_F16, SIDE_BITS, SIDE_CODES, SIDE_HEAD_BYTES, SIDE_KIND, SIDE_VECTOR_BYTES,
} from '../kv-layout';
import { storeKey, storeValue } from './kv';
import { packKey, packValue } from './kv-codes';
import { codeVector } from './kv-formats';

/** A vector whose place in its sequence is not known: one that is converted. */
export const POSITION_UNKNOWN: u32 = 0xffffffff;

/**
 * Stores `dim` floats at `x` as one K or V vector, as ../../kv-formats says. `side`: see ../kv-layout.ts. `position`: its
 * place in its sequence, or POSITION_UNKNOWN. `scratch`: 3 · dim floats.
 */
export function storeVector(
  side: usize, isKey: bool, x: usize, block: u32, head: u32, kvHeads: u32, token: u32, dim: u32, blockTokens: u32,
  position: u32, scratch: usize,
): void {
  const kind = load<i32>(side, SIDE_KIND);
  const at = load<u32>(side, SIDE_CODES) + (block * kvHeads + head) * load<u32>(side, SIDE_HEAD_BYTES);
  if (kind < KIND_CODES) {
    if (isKey) storeKey(x, at, token, dim, kind == KIND_F16);
    else storeValue(x, at, token, dim, blockTokens, kind == KIND_F16);
    return;
  }
  const bits = load<u32>(side, SIDE_BITS);
  const codes = scratch;
  const clean = scratch + dim * 4;
  for (let d: u32 = 0; d < dim; d += 4) v128.store(clean + d * 4, finite(v128.load(x + d * 4)));
  codeVector(side, isKey, clean, block, head, kvHeads, token, dim, blockTokens, position, codes, clean + dim * 4);
  if (isKey) packKey(bits, codes, at, token, dim, load<u32>(side, SIDE_VECTOR_BYTES));
  else packValue(bits, codes, at, token, dim, blockTokens);
}

/** NaN to 0, the rest to what f16 can hold. */
// @ts-ignore: decorator
@inline function finite(x: v128): v128 {
  const number = v128.and(x, f32x4.eq(x, x));
  return f32x4.max(f32x4.min(number, f32x4.splat(65504)), f32x4.splat(-65504));
}
