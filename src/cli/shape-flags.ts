/** A model, or the shapes of one: for commands that run on either. */
import { KvantError } from '../errors.js';
import { EXAMPLE_MODEL } from './example-model.js';

export interface ShapeFlags {
  readonly shapes?: string;
  readonly vocab?: number;
}

/** Errors: `invalid-flags` unless one of the two is given. */
export function requireTarget(model: string | undefined, { shapes }: ShapeFlags, command: string): void {
  if ((model === undefined) !== (shapes === undefined)) return;
  throw new KvantError('invalid-flags', 'One of a model and --shapes is needed.', {
    kind: 'invalid-request',
    fix: `For example: ${command} ${EXAMPLE_MODEL}; or, with random weights: ${command} --shapes qwen3-0.6b --vocab 32000.`,
  });
}
