/** How kernels of attention find their records in the step's words (step-buffer.ts). */

/** Attention sums start anew at every multiple of this position, and are merged in order. */
export const ATTENTION_SPLIT = 256;
/** Tokens of a tile. */
export const ATTENTION_TILE = 16;

/**
 * WGSL: leaves a workgroup that has no item or no row of items, and declares `item`, the record of item `item_at`, or `row`, that
 * of row `wid.y`. Where records begin, which is never 0, is in the condition: compilers put loads off behind the return otherwise,
 * and a workgroup begins with loads that wait for each other as it is.
 */
const recordText = (name: string, at: string, count: string, from: string): string => `let records = ${from};
  if ((${at} >= ${count}) | (records == 0u)) { return; }
  let ${name} = step[records + ${at}];`;
const itemRecord = (name: string): string => recordText(name, 'item_at', 'step[0].w', 'step[2].x');
export const ITEM_TEXT = itemRecord('item');
/** The same, of the `tokens` before whose last position the newest ones begin: the item ends there, and is left where it begins behind. */
export const earlierItemText = (tokens: number): string => `${itemRecord('own')}
  if (own.w < ${tokens}u + own.y * ${ATTENTION_SPLIT}u * step[1].w) { return; }
  let item = vec4<u32>(own.xyz, own.w - ${tokens}u);`;
export const ITEM_ROW_TEXT = recordText('row', 'wid.y', 'step[1].x', 'step[2].y');
