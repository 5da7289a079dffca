/**
 * What one kernel hands the next product in the form that this would make of it in a launch of its own: halves, from attention
 * or a GEMM with a glu, to a GEMM, and from a GEMM in slices through a norm; bytes, from attention or a dp4a product with a
 * glu, to one of dp4a. The bits are the same.
 */

import type { Capabilities, Handed, LinearShape, NormHanded } from '../kernel.js';
import { gemvSpec, type LinearChoice, linearFits, matrixOf, specOf } from './linear-choice.js';
import { dp4aLayout, dp4aTiles } from './linear-dp4a-plan.js';
import { outCols } from './linear-spec.js';

/** The choice for a product, or null where a portable kernel takes it. */
export type ChoiceOf = (shape: LinearShape) => LinearChoice | null;

/** In what form a product takes rows of `cols` that are left for it alone, or null where it reads f32. */
export function formTaken(
  capabilities: Capabilities,
  shape: LinearShape,
  cols: number,
  choice: LinearChoice | null,
): Handed | null {
  if (shape.k !== cols || shape.norm !== null) return null;
  if (choice?.family === 'dp4a') return dp4aLayout(gemvSpec(shape), choice.config);
  return choice?.family === 'matrices' && matrixOf(capabilities)?.component === 'f16' ? 'halves' : null;
}

/** In what form the result of a product with a glu goes to the next one, or null where it stays f32. */
export function formHanded(
  capabilities: Capabilities,
  shape: LinearShape,
  next: LinearShape,
  choiceOf: ChoiceOf,
): Handed | null {
  if (shape.glu === null || shape.outOffset !== 0) return null;
  const choice = choiceOf(shape);
  const form = formTaken(capabilities, next, outCols(specOf(shape)), choiceOf(next));
  if (choice === null || form === null) return null;
  return linearFits(capabilities, { ...shape, outHanded: form }, choice) ? form : null;
}

/**
 * In what form a product whose result goes through a norm to the next one leaves it for that, or null where it does not: normed, as the
 * halves that the next one reads, where it has a launch that sees whole rows anyway, to put slices of K together; as bytes with sums of
 * squares, where both are dp4a products and workgroups of the first make whole pieces of what the second reads.
 */
export function normHanded(
  capabilities: Capabilities,
  shape: LinearShape,
  next: LinearShape,
  choiceOf: ChoiceOf,
): NormHanded | null {
  const { k, norm } = next;
  if (norm === null || shape.glu !== null || shape.n !== k || shape.rowKind !== next.rowKind) return null;
  const [choice, consumer] = [choiceOf(shape), choiceOf(next)];
  if (choice === null || consumer === null) return null;
  const left = (form: NormHanded): NormHanded | null =>
    linearFits(capabilities, { ...shape, outNorm: { eps: norm.eps, form } }, choice) &&
    linearFits(capabilities, { ...next, xNormed: form }, consumer)
      ? form
      : null;
  if (consumer.family === 'matrices' && matrixOf(capabilities)?.component === 'f16') return left('halves');
  if (consumer.family !== 'dp4a' || choice.family !== 'dp4a') return null;
  const bytes = dp4aLayout(gemvSpec(next), consumer.config);
  return left({ bytes, tiles: dp4aTiles(gemvSpec(shape), choice.config) });
}

/** The form that several products take all, or null. */
export function formOfAll<Form extends Handed | NormHanded>(forms: readonly (Form | null)[]): Form | null {
  const [first = null, ...more] = forms;
  const text = JSON.stringify(first);
  return more.every((form) => JSON.stringify(form) === text) ? first : null;
}

/**
 * Whether a product with this choice still takes what it is given, be it in another layout: who makes whole pieces of bytes makes
 * whole ones of smaller pieces too.
 */
export function keepsTaking(
  capabilities: Capabilities,
  shape: LinearShape,
  form: Handed,
  choice: LinearChoice,
): boolean {
  const taken = formTaken(capabilities, shape, shape.k, choice);
  if (taken === null || taken === 'halves' || form === 'halves') return taken === form;
  return taken.pieces <= form.pieces;
}

/** The same of what lies behind a norm as bytes. Halves are left to whoever takes them. */
export function keepsNormed(form: NormHanded, choice: LinearChoice): boolean {
  return form === 'halves' || (choice.family === 'dp4a' && choice.config.pieces <= form.bytes.pieces);
}

/** Whether a product with this choice still leaves such bytes. */
export function keepsNorming(
  capabilities: Capabilities,
  shape: LinearShape,
  form: NormHanded,
  choice: LinearChoice,
): boolean {
  return form === 'halves' || linearFits(capabilities, { ...shape, outNorm: { eps: 1, form } }, choice);
}
