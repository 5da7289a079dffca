/** Where q, k and v are one tensor in a file, as some converters write them for any architecture, and three in the family. */

import type { RowPart } from '../../weights/gguf-checkpoint.js';
import type { GgufArchitecture } from './architecture.js';
import type { ShapeOf } from './config.js';

/**
 * The rows of one tensor of q, k and v, by what each would be called alone. How many are q's is told by the columns of what comes behind
 * attention; k and v share the others.
 * @returns undefined for any other tensor, and where the family has the three as one
 */
export function splitQkv(
  name: string,
  architecture: GgufArchitecture,
  shapeOf: ShapeOf,
): [name: string, part: RowPart][] | undefined {
  const [, at, kind] = /^(blk\.\d+\.)attn_qkv\.(weight|bias)$/.exec(name) ?? [];
  if (at === undefined || isOne(architecture, at, shapeOf)) return undefined;
  const [rows = 0] = shapeOf(name) ?? [];
  const heads = (shapeOf(`${at}attn_output.weight`) ?? shapeOf(`${at}attn_out.weight`))?.at(-1) ?? 0;
  const q = architecture.gatedQueries === true ? 2 * heads : heads;
  const kv = (rows - q) / 2;
  if (q === 0 || kv <= 0 || !Number.isInteger(kv)) return undefined;
  return [
    [`${at}attn_q.${kind}`, { first: 0, rows: q }],
    [`${at}attn_k.${kind}`, { first: q, rows: kv }],
    [`${at}attn_v.${kind}`, { first: q + kv, rows: kv }],
  ];
}

/** Of hybrids the recurrent layers have one matrix by that name, and those that attend have none. */
function isOne(
  { joinedQkv, names = {}, someAttend }: GgufArchitecture,
  at: string,
  shapeOf: ShapeOf,
): boolean {
  if (joinedQkv === true) return true;
  if (!Object.hasOwn(names, 'attn_qkv')) return false;
  return someAttend !== true || shapeOf(`${at}ssm_conv1d.weight`) !== undefined;
}
