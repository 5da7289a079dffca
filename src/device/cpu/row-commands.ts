/** Commands of what pictures do with rows: see assembly/add-rows.ts and clamp.ts. */

import type { NodeOf } from '../graph.js';
import type { Command } from './command.js';
import { type CommandPlace, rowCountAt } from './command-place.js';

import { OP_ADD_FEATURES, OP_ADD_GATHERED, OP_CLAMP } from './opcodes.js';

export function addFeaturesCommand(
  place: CommandPlace,
  node: NodeOf<'add-features'>,
  x: number,
  features: { readonly at: number; readonly rows: number; readonly cols: number },
  out: number,
): Command {
  const tokens = place.step + 4 * place.layout.tokens;
  const slab = [features.at + 4 * node.column, features.rows, features.cols];
  return {
    opcode: OP_ADD_FEATURES,
    words: [x, tokens, rowCountAt(place, 'tokens'), out, node.x.cols, ...slab],
  };
}

export function addGatheredCommand(
  place: CommandPlace,
  { x, table, taps }: NodeOf<'add-gathered'>,
  at: { readonly x: number; readonly table: number; readonly taps: number; readonly out: number },
): Command {
  const count = taps === 'position' ? 1 : taps.cols / 2;
  const shape = [x.cols, count, table.length / x.cols];
  return {
    opcode: OP_ADD_GATHERED,
    words: [at.x, at.table, at.taps, rowCountAt(place, x.rows), at.out, ...shape],
  };
}

export function clampCommand(
  place: CommandPlace,
  { x, bounds }: NodeOf<'clamp'>,
  at: { readonly x: number; readonly bounds: number; readonly out: number },
): Command {
  const runs = bounds.length / 2;
  return {
    opcode: OP_CLAMP,
    words: [at.x, at.bounds, rowCountAt(place, x.rows), at.out, x.cols / runs, runs],
  };
}
