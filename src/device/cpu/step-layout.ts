/**
 * How a step lies in memory: four head words (opcodes.ts), then the arrays of StepInputs, each as long as the limits
 * allow. All offsets are in words.
 */
import type { ProgramLimits } from '../device.js';
import { visibleEndOf } from '../look-ahead.js';
import { ROPE_AXES } from '../rope.js';
import { writeRotary } from '../rotary-positions.js';
import { SAMPLING_WORDS } from '../sampling-inputs.js';
import { NO_SLOT, type StepInputs } from '../step.js';
import { STEP_OUTPUTS, STEP_SEQUENCES, STEP_TOKENS, STEP_WANTS } from './opcodes.js';
import { wantsOf } from './sample-wants.js';
import { P_FEATURES, P_TEMPERATURE } from './sample-words.js';

const HEAD = 16;

export interface StepLayout {
  readonly tokens: number;
  /** slot, start, length, position: `seqStride` words apart. */
  readonly sequences: number;
  readonly seqStride: number;
  readonly outputs: number;
  readonly outputSlots: number;
  /** The columns of SAMPLING_FIELDS (sampling-inputs.ts): `samplingStride` words apart. */
  readonly sampling: number;
  readonly samplingStride: number;
  /** Three rotary positions a token; null where all are cache indexes. */
  readonly rotary: number | null;
  /** Cache index behind the last token that each token sees; null where layers only look back. */
  readonly visible: number | null;
  /** By token its position and 1, as floats: the taps of a table of positions; null where there is none. */
  readonly places: number | null;
  /** How many hidden rows are asked for, and which; null in a program that has none. */
  readonly hidden: number | null;
  readonly words: number;
}

export interface StepLayoutOptions {
  /** Rotations go by axes. */
  readonly rotary: boolean;
  /** Tokens may see later ones. */
  readonly ahead: boolean;
  /** Positions are looked up in a table. */
  readonly places: boolean;
  /** Most hidden rows that a step may ask for; 0 where the graph has none. */
  readonly hidden: number;
}

export function stepLayout(
  limits: ProgramLimits,
  { rotary, ahead, places, hidden }: StepLayoutOptions,
): StepLayout {
  const tokens = HEAD;
  const sequences = tokens + limits.maxTokens;
  const outputs = sequences + 4 * limits.maxSequences;
  const outputSlots = outputs + limits.maxOutputs;
  const sampling = outputSlots + limits.maxOutputs;
  const behind = sampling + SAMPLING_WORDS * limits.maxOutputs;
  const visible = behind + (rotary ? ROPE_AXES * limits.maxTokens : 0);
  const placesAt = visible + (ahead ? limits.maxTokens : 0);
  const last = placesAt + (places ? 2 * limits.maxTokens : 0);
  return {
    tokens,
    sequences,
    seqStride: limits.maxSequences,
    outputs,
    outputSlots,
    sampling,
    samplingStride: limits.maxOutputs,
    rotary: rotary ? behind : null,
    visible: ahead ? visible : null,
    places: places ? placesAt : null,
    hidden: hidden > 0 ? last : null,
    words: last + (hidden > 0 ? 1 + hidden : 0),
  };
}

/** Copies a step to where the threads will find it. `u32` and `f32` are views of the same words. */
export function writeStep(layout: StepLayout, step: StepInputs, u32: Uint32Array, f32: Float32Array): void {
  const { tokenCount, sequenceCount, outputCount, sampling } = step;
  u32[STEP_TOKENS] = tokenCount;
  u32[STEP_SEQUENCES] = sequenceCount;
  u32[STEP_OUTPUTS] = outputCount;
  u32[STEP_WANTS] = wantsOf(step);
  copy(u32, layout.tokens, step.tokens, tokenCount);
  const { sequences: s, seqStride: n } = layout;
  copy(u32, s, step.seqSlot, sequenceCount);
  copy(u32, s + n, step.seqStart, sequenceCount);
  copy(u32, s + 2 * n, step.seqLength, sequenceCount);
  copy(u32, s + 3 * n, step.seqPosition, sequenceCount);
  if (layout.rotary !== null) writeRotary(step, u32, layout.rotary, ROPE_AXES);
  if (layout.visible !== null) writeVisible(step, u32, layout.visible);
  if (layout.places !== null) writePlaces(step, f32, layout.places);
  if (layout.hidden !== null) {
    u32[layout.hidden] = step.hiddenCount;
    copy(u32, layout.hidden + 1, step.hiddenRows, step.hiddenCount);
  }
  copy(u32, layout.outputs, step.outputs, outputCount);
  copy(u32, layout.outputSlots, step.outputSlot, outputCount);
  const { sampling: p, samplingStride: m } = layout;
  for (let i = 0; i < SAMPLING_WORDS; i++) {
    const column = sampling.columns[i]!;
    copy(column instanceof Float32Array ? f32 : u32, p + i * m, column, outputCount);
  }
  // An output that is not drawn for is the cheapest there is, and no state is looked at.
  for (let row = 0; row < outputCount; row++) {
    if (step.outputSlot[row] !== NO_SLOT) continue;
    f32[p + P_TEMPERATURE * m + row] = 0;
    u32[p + P_FEATURES * m + row] = 0;
  }
}

function writeVisible(step: StepInputs, words: Uint32Array, at: number): void {
  for (let s = 0; s < step.sequenceCount; s++) {
    const [start, position] = [step.seqStart[s]!, step.seqPosition[s]!];
    for (let i = 0; i < step.seqLength[s]!; i++)
      words[at + start + i] = visibleEndOf(step, start + i, position + i);
  }
}

function writePlaces(step: StepInputs, numbers: Float32Array, at: number): void {
  for (let s = 0; s < step.sequenceCount; s++)
    for (let i = 0; i < step.seqLength[s]!; i++) {
      const token = step.seqStart[s]! + i;
      numbers[at + 2 * token] = step.seqPosition[s]! + i;
      numbers[at + 2 * token + 1] = 1;
    }
}

/** By a loop: a subarray would be made anew every step. */
function copy(
  to: Uint32Array | Float32Array,
  at: number,
  from: Int32Array | Uint32Array | Float32Array,
  count: number,
): void {
  for (let i = 0; i < count; i++) to[at + i] = from[i]!;
}
