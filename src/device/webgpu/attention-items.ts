/** How many items of attention a program has scratch for. */

import type { ProgramLimits } from '../device.js';
import type { Graph } from '../graph.js';
import { itemScratchBytes } from './kernels/attend.js';
import { ATTENTION_SPLIT } from './step-buffer.js';

/** Scratch that partial sums of attention may take. What does not fit is attended to without splitting. */
const PARTIALS_BYTES = 128 * 1024 * 1024;

/** Items (split, row) there is scratch for, the same in every layer. */
export function attentionItems(graph: Graph, limits: ProgramLimits, bindingBytes: number): number {
  let most = 0;
  for (const node of graph.nodes) {
    if (node.op === 'attend') most = Math.max(most, itemScratchBytes(node.shape));
  }
  if (most === 0) return 0;
  const wanted = limits.maxSequences * Math.ceil(limits.maxContext / ATTENTION_SPLIT);
  return Math.min(wanted, Math.floor(Math.min(PARTIALS_BYTES, bindingBytes) / most));
}
