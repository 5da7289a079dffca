/**
 * The kinds of KV formats. A new one is an object here and in the list of each device that has it
 * (cpu/kv-formats/list.ts, webgpu/kv-formats/list.ts); docs/extending.md describes the walk. Nothing else asks what kind
 * a format is.
 */

import { KvantError } from '../../errors.js';
import { affineKv } from './affine.js';
import { floatKv } from './float.js';
import type { KvFormatData, KvFormatKind } from './kind.js';
import { turboKv } from './turbo.js';

const KINDS = [floatKv, affineKv, turboKv] as const;

/**
 * How one K or V vector of `head_dim` values is stored. K and V of a layer choose apart. A device answers for each
 * with a codec: how it is appended, and the snippets attention is made from.
 *
 * Before it is quantised a vector is made finite: NaN counts as 0, values are clamped to ±65504. What is stored
 * depends on the vector alone, so its bytes are the same whether it came by prefill, by decode or by conversion.
 */
export type KvFormat = NonNullable<ReturnType<(typeof KINDS)[number]['parse']>>;

type Listed = Extract<(typeof KINDS)[number], { readonly scheme: unknown }>['scheme']['name'];
/** Ways to quantise by bits: the schemes of the list. Written out, for users of the package see no other type than this. */
export type KvScheme = 'uniform' | 'turboquant';
/** A scheme of the list that is not written out above, or the reverse, does not compile. */
export const SCHEMES_ARE_LISTED: [Listed, KvScheme] extends [KvScheme, Listed] ? true : never = true;

export const KV_FORMATS: KvFormatKind[] = [...KINDS];

/** Errors: `kv-format-unsupported`, for a kind that is not in the list. */
export function kvFormatKind(format: KvFormatData): KvFormatKind {
  const found = KV_FORMATS.find(({ kind }) => kind === format.kind);
  if (found !== undefined) return found;
  throw new KvantError(
    'kv-format-unsupported',
    `There is no kind ${JSON.stringify(format.kind)} of KV format.`,
    { kind: 'unsupported', fix: `Use one of: ${KV_FORMATS.map(({ kind }) => kind).join(', ')}.` },
  );
}
