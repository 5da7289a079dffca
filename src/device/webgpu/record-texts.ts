/** How kernels of attention find their records in the step's words (step-buffer.ts). */

/**
 * WGSL: leaves a workgroup that has no item or no row of items, and declares `item`, the record of item `item_at`, or `row`, that
 * of row `wid.y`. Where records begin, which is never 0, is in the condition: compilers put loads off behind the return otherwise,
 * and a workgroup begins with loads that wait for each other as it is.
 */
const recordText = (name: string, at: string, count: string, from: string): string => `let records = ${from};
  if ((${at} >= ${count}) | (records == 0u)) { return; }
  let ${name} = step[records + ${at}];`;
export const ITEM_TEXT = recordText('item', 'item_at', 'step[0].w', 'step[2].x');
export const ITEM_ROW_TEXT = recordText('row', 'wid.y', 'step[1].x', 'step[2].y');
