/** The engine that a benchmark of whole cases runs on: a model, or a named shape with random weights. */
import { type Command, Option } from 'commander';
import type { Engine } from '../engine/engine.js';
import { KvantError } from '../errors.js';
import { shapeNames } from '../models/shapes.js';
import { type EngineFlags, engineOptions, integer } from './flags.js';

export interface ShapeFlags {
  readonly shapes?: string;
  readonly vocab?: number;
}

export function addShapeFlags(command: Command): Command {
  return command
    .addOption(
      new Option('--shapes <name>', `random weights in the sizes of: ${shapeNames().join(', ')}`).choices(
        shapeNames(),
      ),
    )
    .option('--vocab <n>', 'rows of the vocabulary, with --shapes', integer(2));
}

/** Errors: `invalid-flags` unless one of the two is given. */
export function requireTarget(model: string | undefined, { shapes }: ShapeFlags, command: string): void {
  if ((model === undefined) !== (shapes === undefined)) return;
  throw new KvantError('invalid-flags', 'One of a model and --shapes is needed.', {
    kind: 'invalid-request',
    fix: `For example: ${command} --shapes qwen3-0.6b --vocab 32000.`,
  });
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
  const { loadEngine, loadShape } = await import('./load.js');
  return shapes === undefined
    ? loadEngine(model ?? '', options)
    : loadShape(shapes, { ...options, ...(vocab === undefined ? {} : { vocab }) });
}
