/** Steps as the oracle's device is given them: what it keeps of each, and what makes one bad. */
import type { ProgramLimits } from '../../src/device/device.js';
import type { StepInputs } from '../../src/device/step.js';

/** One submitted step, as the log keeps it. */
export interface LoggedStep {
  readonly tokens: number;
  readonly sequences: readonly { slot: number; position: number; length: number }[];
  readonly outputs: number;
  /** It was run in two halves. */
  readonly split: boolean;
  /** Slots that it draws for: none before the draw has been asked for. */
  draws: readonly number[];
  settled: boolean;
}

/** What was asked of a program and what it gave back, in order. `step` is an index into the log. */
export interface Traced {
  readonly what: 'submit' | 'forward' | 'sample' | 'ids';
  readonly step: number;
}

/** A copy of the inputs: the contract lets the caller reuse them at once. */
export function copyInputs(inputs: StepInputs): StepInputs {
  return structuredClone(inputs) as StepInputs;
}

/** The halves of a step differ in what is drawn, and in nothing else. */
export function checkHalves(forward: StepInputs, sample: StepInputs): void {
  for (const [name, value] of Object.entries(forward)) {
    if (name === 'outputSlot' || name === 'sampling') continue;
    if (JSON.stringify(value) !== JSON.stringify(sample[name as keyof StepInputs]))
      throw new Error(`the halves of a step differ in ${name}`);
  }
}

export function checkInputs(inputs: StepInputs, limits: ProgramLimits): void {
  const fail = (why: string): never => {
    throw new Error(`bad step: ${why}`);
  };
  if (inputs.tokenCount < 1 || inputs.tokenCount > limits.maxTokens) fail(`${inputs.tokenCount} tokens`);
  if (inputs.sequenceCount > limits.maxSequences) fail('too many sequences');
  if (inputs.outputCount > limits.maxOutputs) fail('too many outputs');
  const slots = new Set<number>();
  let at = 0;
  for (let s = 0; s < inputs.sequenceCount; s++) {
    if (inputs.seqStart[s] !== at) fail('sequences are not laid out one after another');
    if (inputs.seqLength[s]! < 1) fail('an empty sequence');
    if (inputs.seqAdapter[s] !== 0) fail(`adapter ${inputs.seqAdapter[s]}`);
    if (inputs.seqPosition[s]! + inputs.seqLength[s]! > limits.maxContext) fail('beyond the context');
    at += inputs.seqLength[s]!;
    slots.add(inputs.seqSlot[s]!);
  }
  if (at !== inputs.tokenCount) fail('tokens and sequences disagree');
  if (slots.size !== inputs.sequenceCount) fail('a slot twice');
  for (let row = 1; row < inputs.outputCount; row++)
    if (inputs.outputs[row]! <= inputs.outputs[row - 1]!) fail('outputs are not ascending');
}
