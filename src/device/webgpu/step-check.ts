/** What a step must keep, and the error of one that does not. */

import { KvantError } from '../../errors.js';
import { checkAdapters, HELD_ADAPTERS } from '../adapters.js';
import type { ProgramLimits } from '../device.js';
import { checkFeatureTokens, featureRowsOf } from '../feature-tokens.js';
import type { Graph } from '../graph.js';
import { type KvCaches, kvReach } from '../kv.js';
import { looksAhead } from '../look-ahead.js';
import { checkRotary, rotaryReach } from '../rotary-positions.js';
import { NO_SLOT, type StepInputs } from '../step.js';

export interface StepBounds {
  /** State slots there are. */
  readonly slots: number;
  /** Positions a slot can hold. */
  readonly positions: number;
  /** Rotary positions there are. Default 0: all are cache indexes. */
  readonly rotary?: number;
  /** Rows of the feature slab that tokens may name. Default 0. */
  readonly features?: number;
  /** Tokens may see later ones. Default false. */
  readonly ahead?: boolean;
}

export function stepBounds(
  graph: Graph,
  limits: ProgramLimits,
  caches: KvCaches | null,
): Required<StepBounds> {
  return {
    slots: caches?.pools[0]?.spec.slots ?? Math.max(limits.maxSequences, limits.maxOutputs),
    positions: caches === null ? Number.POSITIVE_INFINITY : kvReach(caches),
    rotary: rotaryReach(graph),
    features: featureRowsOf(graph),
    ahead: looksAhead(graph),
  };
}

/** Throws for a step that breaks a bound. */
export function checkStep(inputs: StepInputs, limits: ProgramLimits, bounds: StepBounds): void {
  const { maxTokens, maxOutputs, maxSequences, maxContext } = limits;
  const { slots, positions, rotary = 0, features = 0 } = bounds;
  const { tokenCount, outputCount, sequenceCount } = inputs;
  if (tokenCount > maxTokens || outputCount > maxOutputs || sequenceCount > maxSequences) {
    throw misuse(
      `${tokenCount} tokens, ${sequenceCount} sequences, ${outputCount} outputs; ` +
        `${maxTokens}, ${maxSequences}, ${maxOutputs} are possible`,
    );
  }
  let at = 0;
  for (let s = 0; s < sequenceCount; s++) {
    if (inputs.seqStart[s] !== at) throw misuse(`sequence ${s} does not begin where the one before ends`);
    at += inputs.seqLength[s]!;
    const end = inputs.seqPosition[s]! + inputs.seqLength[s]!;
    if (end > Math.min(maxContext, positions)) throw misuse(`sequence ${s} reaches position ${end}`);
    if (inputs.seqSlot[s]! >= slots) throw misuse(`sequence ${s} names slot ${inputs.seqSlot[s]}`);
  }
  checkRotary(inputs, rotary);
  checkAdapters(inputs, HELD_ADAPTERS);
  checkFeatureTokens(inputs, features);
  if (at !== tokenCount) throw misuse(`the sequences hold ${at} tokens of ${tokenCount}`);
  for (let i = 0; i < tokenCount; i++) {
    if (inputs.tokens[i]! < -slots) throw misuse(`token ${i} names slot ${-inputs.tokens[i]! - 1}`);
  }
  for (let i = 0; i < outputCount; i++) {
    if (inputs.outputs[i]! >= tokenCount) throw misuse(`output ${i} names token ${inputs.outputs[i]}`);
    if (inputs.outputSlot[i]! >= slots && inputs.outputSlot[i] !== NO_SLOT)
      throw misuse(`output ${i} names slot ${inputs.outputSlot[i]}`);
  }
}

function misuse(message: string): KvantError {
  return new KvantError('invalid-step', `Step: ${message}.`, {
    where: 'submit',
    fix: 'This is a fault of the caller: steps must keep the limits the program was compiled with.',
  });
}
