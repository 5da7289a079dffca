/** How many items of attention a program has scratch for. */

import type { ProgramLimits } from '../device.js';
import type { Graph } from '../graph.js';
import { itemScratchBytes } from './kernels/attend-plan.js';
import { ATTENTION_SPLIT } from './step-buffer.js';

/** Scratch that partial sums of attention may take. What does not fit is attended to without splitting. */
const PARTIALS_BYTES = 128 * 1024 * 1024;

/** Items (split, row) there is scratch for, the same in every layer; beside one for each row where some have a float `tail`. */
export function attentionItems(
  graph: Graph,
  limits: ProgramLimits,
  bindingBytes: number,
  tail = false,
): number {
  let most = 0;
  for (const node of graph.nodes) {
    if (node.op === 'attend') most = Math.max(most, itemScratchBytes(node.shape));
  }
  if (most === 0) return 0;
  const wanted = limits.maxSequences * Math.ceil(limits.maxContext / ATTENTION_SPLIT);
  const room = Math.floor(Math.min(PARTIALS_BYTES, bindingBytes) / most);
  return Math.min(wanted, tail ? Math.max(0, room - limits.maxSequences) : room);
}
