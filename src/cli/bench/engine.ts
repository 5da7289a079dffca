/** The engine that a benchmark of whole cases runs on: a model, or a named shape with random weights. */
import type { Command } from 'commander';
import type { Engine } from '../../engine/engine.js';
import { shapeNames } from '../../models/shapes.js';
import { type EngineFlags, engineOptions, integer } from '../flags.js';
import { Option } from '../option.js';
import type { ShapeFlags } from '../shape-flags.js';

export { requireTarget, type ShapeFlags } from '../shape-flags.js';

export function addShapeFlags(command: Command): Command {
  return command
    .addOption(
      new Option('--shapes <name>', `random weights in the sizes of: ${shapeNames().join(', ')}`).choices(
        shapeNames(),
      ),
    )
    .option('--vocab <n>', 'rows of the vocabulary, with --shapes', integer(2));
}

/** Loads it with room for `rows` sequences of `tokens` each, so that every prompt is computed, and at once. */
export async function openBenchEngine(
  model: string | undefined,
  flags: EngineFlags & ShapeFlags,
  rows: number,
  tokens: number,
): Promise<Engine> {
  const { shapes, vocab } = flags;
  const given = engineOptions(flags);
  const options = {
    ...given,
    maxRows: given.maxRows ?? rows,
    maxContext: given.maxContext ?? tokens,
    // Every prompt is computed, also one that came before.
    prefixCache: false,
    // Prefill is measured by itself: the first rows that decode do not hold the others’ prompts back.
    targetItlMs: given.targetItlMs ?? 0,
  };
  const { loadEngine, loadShape } = await import('../load.js');
  return shapes === undefined
    ? loadEngine(model ?? '', options)
    : loadShape(shapes, { ...options, ...(vocab === undefined ? {} : { vocab }) });
}
