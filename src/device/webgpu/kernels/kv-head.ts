/**
 * A float head on the GPU: the first positions of every sequence, as floats at the end of the buffer that the others' codes are in.
 * They lie as what is behind them does, centred, scaled and rotated, but not quantised: so one query meets both, and sums of values
 * are rotated back together.
 *
 * Prompts read both in one kernel. Of a row with one token in the step the head is an item of its own, of a launch that the others do
 * not wait for; the reduce takes what it leaves first.
 */

import { earlierItemText, ITEM_TEXT } from '../record-texts.js';
import type { KvHead, KvRows } from '../shapes.js';
import { type WordWidth, wordAt } from './attend-words.js';
import { codecOf } from './kv-formats/list.js';
import { type KvSideNumbers, type KvSideSpec, signsText, tableWord, vectorText } from './kv-formats/side.js';
import { rotateOneText } from './kv-rotate.js';

type Named = 'keys' | 'values';

/** Of a shape of attention what says where vectors lie. */
interface TileShape {
  readonly headDim: number;
  readonly kvHeads: number;
  readonly blockTokens: number;
  readonly maxBlocksPerSlot: number;
}

/** Names of the partial sums that items leave. */
export const partialNames = ({ only }: KvRows): { readonly sums: string; readonly tops: string } =>
  only === 'head'
    ? { sums: 'scratchHeadSums', tops: 'scratchHeadTops' }
    : { sums: 'scratchSums', tops: 'scratchTops' };

/** Expression: where item `at` leaves them. Those of float tails, one a row, lie behind all others. */
export const partialAt = (
  { rows, maxItems }: { readonly rows: KvRows; readonly maxItems: number },
  at = 'item_at',
): string => (rows.only === 'tail' ? `(${at} + ${maxItems}u)` : at);

/** Where tiles of rows with a float tail leave `[tokens, heads, head_dim]` sums, and `[tokens, heads]` (greatest score, sum of weights). */
export const tileNames = ({ only }: KvRows): { readonly sums: string; readonly tops: string } =>
  only === 'tail'
    ? { sums: 'scratchTailTiles', tops: 'scratchTailTileTops' }
    : { sums: 'out', tops: 'scratchTileTops' };

/** Bindings of sums of weighted values, in elements of that type, and of what goes with them, under such names. */
export const sumBindings = (names: { readonly sums: string; readonly tops: string }, sums: string) =>
  [
    { name: names.sums, access: 'read_write', type: `array<${sums}>` },
    { name: names.tops, access: 'read_write', type: 'array<vec2<f32>>' },
  ] as const;

/**
 * WGSL that declares `item` of `item_at`: a record of the step, or made of that of a row whose head, or tail, is an item. Of a row with a
 * tail all others end before it, and are left where they begin behind.
 */
export function itemText({ only, head, tail }: KvRows): string {
  if (!hasItemOfRow(only)) return tail === undefined ? ITEM_TEXT : earlierItemText(tail.tokens);
  const last = 'step_token(row_record.x).z';
  const earlier = only === 'tail' ? null : tail;
  const end = earlier == null ? last : `(${last} - ${earlier.tokens}u)`;
  return `let records = step[2].y;
  if ((item_at >= step[1].x) | (records == 0u)) { return; }
  let row_record = step[records + item_at];${earlier == null ? '' : `\n  if (${last} < ${earlier.tokens}u) { return; }`}
  let item = vec4<u32>(row_record.x, 0u, row_record.w, ${only === 'head' ? `min(${end}, ${head!.tokens - 1}u)` : end});`;
}

/** Whether a row has one item: of its float head, or tail. */
export const hasItemOfRow = (only: KvRows['only']): boolean => only === 'head' || only === 'tail';

/**
 * Expression: the first position of an item, `last` being its last: a multiple of its splits, or of a tail of as many positions as are read
 * together, `unit`.
 */
export const itemFirst = ({ only, tail }: KvRows, split: number, unit: number): string =>
  only === 'tail'
    ? `(max(last, ${tail!.tokens - 1}u) - ${tail!.tokens - 1}u) / ${unit}u * ${unit}u`
    : `item.y * ${split}u`;

/** Items of a stage's rows. */
export const itemsOf = (
  { only }: KvRows,
  facts: { readonly itemRows: number; readonly items: number },
): number => (hasItemOfRow(only) ? facts.itemRows : facts.items);

/** Expression: the first position that a query at `position` sees here, null where it is 0: of a window, or behind a head. */
export function firstSeen(
  { window, rows }: { readonly window: number | null; readonly rows: KvRows },
  position: string,
): string | null {
  if (rows.only === 'behind') return `${rows.head!.tokens}u`;
  return window === null ? null : `(max(${position}, ${window - 1}u) - ${window - 1}u)`;
}

/** Statement that leaves an item of which no position is seen; `low` is the first that is. */
export function unseenItem({ rows }: { readonly rows: KvRows }, split: string): string {
  const before = rows.only === 'behind' ? ' || last < low' : '';
  return `if (first + ${split} - 1u < low${before}) { return; }`;
}

/** Blocks before the head's in a side's buffer; null where they are among the side's own. */
export const headFirst = (name: Named, head: KvHead): number | null =>
  name === 'keys' ? head.keyFirst : head.valueFirst;

/** Words of a vector of the head. */
const vectorWords = ({ dtype }: Pick<KvHead, 'dtype'>, headDim: number): number =>
  dtype === 'f16' ? headDim / 2 : headDim;

/**
 * Expression: dims `4 vec …` of the head's vector that is KV head `kv` at (`block`, `token_at`), `block` being the table's entry less
 * `before`: the id of the head's first block less the blocks before it.
 */
export function headFour(
  name: Named,
  head: KvHead,
  headDim: number,
  n: Pick<KvSideNumbers, 'kvHeads' | 'blockTokens'>,
  width: WordWidth,
): { readonly declarations: string; readonly four: string } {
  const word = (i: number): string => wordAt(name, width, `(at + ${i}u)`);
  const own = vectorWords(head, headDim) / (headDim / 4);
  const value =
    head.dtype === 'f16'
      ? `vec4<f32>(unpack2x16float(${word(0)}), unpack2x16float(${word(1)}))`
      : `bitcast<vec4<f32>>(vec4<u32>(${[0, 1, 2, 3].map(word).join(', ')}))`;
  return {
    four: `${name}_head`,
    declarations: `fn ${name}_head(block: u32, kv: u32, token_at: u32, vec: u32) -> vec4<f32> {
  let at = ${vectorText({ ...n, metaAt: '', tablesAt: '' })} * ${vectorWords(head, headDim)}u + vec * ${own}u;
  return ${value};
}`,
  };
}

/**
 * Statements that stage positions `base …` of the head for prompt tiles, and the function they call: rows of `stride` elements, whose
 * column c has dim `dimOf(c)`, as halves in vectors of eight or as floats in vectors of four. What is behind the head repeats its last.
 */
export function headTile(
  name: Named,
  rows: KvRows,
  { headDim, kvHeads, blockTokens, maxBlocksPerSlot }: TileShape,
  { type, dimOf }: { readonly type: string; readonly dimOf: (at: string) => string },
  staged: {
    readonly keys: number;
    readonly threads: number;
    readonly stride: number;
    readonly halves: boolean;
  },
): { readonly declarations: string; readonly stage: string } | null {
  const head = rows.head!;
  const first = headFirst(name, head);
  if (first === null) return null;
  const width: WordWidth = type.includes('vec4') ? 4 : type.includes('vec2') ? 2 : 1;
  const words = vectorWords(head, headDim);
  const word = (at: string): string => wordAt(name, width, at);
  const value =
    head.dtype === 'f16'
      ? `unpack2x16float(${word('first + dim / 2u')})[dim & 1u]`
      : `clamp(bitcast<f32>(${word('first + dim')}), -65504.0, 65504.0)`;
  const unit = staged.halves ? 8 : 4;
  const dims = Array.from({ length: unit }, (_, e) => `${name}_dim(first, ${dimOf(`column + ${e}u`)})`);
  const halves = [0, 2, 4, 6].map((e) => `pack2x16float(vec2<f32>(${dims[e]}, ${dims[e + 1]}))`);
  return {
    declarations: `fn ${name}_dim(first: u32, dim: u32) -> f32 { return ${value}; }`,
    stage: `for (var i = lid; i < ${(staged.keys * headDim) / unit}u; i += ${staged.threads}u) {
    let column = i % ${headDim / unit}u * ${unit}u;
    let t = min(base + i / ${headDim / unit}u, min(last, ${head.tokens - 1}u));
    let block = tables[slot * ${maxBlocksPerSlot}u + t / ${blockTokens}u] - ${(rows.border - first) >>> 0}u;
    let first = ((block * ${kvHeads}u + kv) * ${blockTokens}u + t % ${blockTokens}u) * ${words}u;
    staged[i / ${headDim / unit}u * ${staged.stride / unit}u + i % ${headDim / unit}u] = ${staged.halves ? `vec4<u32>(${halves.join(', ')})` : `vec4<f32>(${dims.join(', ')})`};
  }`,
  };
}

/**
 * Statements that store `v`, four dims a thread `lid`, as the head's vector that is KV head `kv` at (`block`, `token_at`); in uniform
 * control flow. `array` is workgroup memory of a quarter of head_dim vectors, `active` whether a thread has dims of a head that is there,
 * `to` another buffer than the side's own, of words.
 */
export function headStoreText(
  side: KvSideSpec<Named>,
  head: Pick<KvHead, 'dtype'>,
  n: KvSideNumbers,
  { array, active, to }: { readonly array: string; readonly active: string; readonly to?: string },
): string {
  const { format, headDim } = side;
  const name = to ?? side.name;
  const atomic = to === undefined && side.atomic === true;
  const rotation = codecOf(format).rotation(format, headDim);
  const turn =
    rotation === null
      ? null
      : rotateOneText({
          name: `${side.name}_float`,
          headDim,
          value: `finite_(v) * ${signsText(side, n)}`,
          array,
          matrix: (i) => tableWord(side, n, `${rotation}u + ${i}`),
          inverse: false,
        });
  const value = turn?.value ?? 'finite_(v)';
  const own = vectorWords(head, headDim) / (headDim / 4);
  const put = (i: number, word: string): string =>
    atomic ? `atomicStore(&${name}[to + ${i}u], ${word});` : `${name}[to + ${i}u] = ${word};`;
  const words =
    head.dtype === 'f16'
      ? `let words = pack_four(${value}); ${put(0, 'words.x')} ${put(1, 'words.y')}`
      : `let words = bitcast<vec4<u32>>(${value}); ${[0, 1, 2, 3].map((i) => put(i, `words[${i}]`)).join(' ')}`;
  return `${turn?.transform ?? ''}
      if (${active}) { let to = ${vectorText(n)} * ${vectorWords(head, headDim)}u + lid * ${own}u; ${words} }`;
}
