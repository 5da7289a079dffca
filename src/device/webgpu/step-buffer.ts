/**
 * What the host tells a step, packed into one buffer and sent with one write: only the part that the step uses.
 *
 * The buffer is an array of vec4<u32>:
 * - header, three vectors: (tokens, outputs, sequences, items), (itemRows, tiles, outputs at, splits of an item),
 *   (items at, itemRows at, tiles at, extras at);
 * - tokens, from vector 3: (id, −(slot + 1) or FEATURE_TOKEN + row, slot, position, behind the last position it sees where layers look ahead, else 0);
 * - in a program with rotations by axes, for each token its three rotary positions: (time, height, width, 0);
 * - in a program with recurrent layers, the sequences: (first token, tokens, position of the first, slot);
 * - outputs, three vectors each: (token index, slot, temperature, topK), (topP, minP, seedLow, seedHigh),
 *   (choice, position, i-th row that draws with a top-k, top-p or typical-p, 0), i being the place of the output. One that is
 *   not drawn for is greedy, without features, and its slot is the one behind all others;
 * - the work of attention. A sequence with one token in the step is cut along its context: an *item* is one split, or
 *   WIDE_SPLITS of them where there are many, (token index, which item of the row, slot, position), an *item row* says which items are one token's: (token index, first item,
 *   items, slot).
 *   Other sequences are cut along their tokens: a *tile* is (first token, tokens, position of the first, slot);
 * - extras, for each output, in a step in which some row has features of the sampler (else `extras at` is 0): the
 *   columns of SamplingInputs from `features` on, then where the parts of its slot's state stand (STATE_PARTS).
 */

import type { ProgramLimits } from '../device.js';
import type { RowKind } from '../graph.js';
import { checkLookAhead, visibleEndOf } from '../look-ahead.js';
import { ROPE_AXES } from '../rope.js';
import { writeRotary } from '../rotary-positions.js';
import { FEATURE, featuresOf } from '../sampling.js';
import { SAMPLING_FIELDS, type SamplingField, samplingField } from '../sampling-inputs.js';
import { NO_SLOT, type StepInputs } from '../step.js';
import type { StepFacts } from './kernel.js';
import { ATTENTION_SPLIT, ATTENTION_TILE, ITEM_ROW_TEXT, ITEM_TEXT } from './record-texts.js';
import { checkStep, type StepBounds } from './step-check.js';

export { ATTENTION_SPLIT, ATTENTION_TILE, ITEM_ROW_TEXT, ITEM_TEXT };

/** Splits of an item in a step that has so many items that they keep a GPU busy without a finer cut. */
export const WIDE_SPLITS = 2;
/**
 * A step with few tiles has each of them walked by several workgroups, a part of the positions each: as many parts as keep within
 * so many workgroups, but no more than `MOST_PARTS`, of so many positions at least.
 */
export const TILE_WORKGROUPS = 2048;
export const PART_POSITIONS = 512;
export const MOST_PARTS = 16;

/** Tokens that `StepFacts.dryWindow` is rounded up to: steps that follow one another then dispatch the same, and are replayed. */
export const LOOK_BACK = 256;

const HEADER = 3;
const OUTPUT = 3;

/**
 * Parts of a slot's sampler state (sampler-parts.ts lays them out), by what the extras say of each: the vector of the buffer `sampler` it begins
 * at, 0 where the slot does not have it. `ring` alone is no part: it is the length of `history`.
 */
export const STATE_PARTS = [
  /** (μ of mirostat, where the last breaker ended, tokens that `lengths` has taken in, 0). */
  'head',
  /** `[vocab]` logits behind the penalties. */
  'processed',
  /** `[vocab]` how often the repetition penalty's window has each token. */
  'seen',
  /** `[vocab]` how often each token was drawn. */
  'generated',
  /** `[vocab]` DRY: the longest repeat that each token would go on with. */
  'matched',
  /** The newest tokens, token p at `p % ring`. */
  'history',
  'ring',
  /** DRY: at d, how many of the newest tokens stand again d tokens before. */
  'lengths',
  /** `[vocab / 32]` a bit for each token that may be drawn. */
  'mask',
  /** Biased, withheld and banned tokens, and sequences that break repeats. */
  'lists',
  /** `[vocab / 32]` a bit for each token that breaks a repeat by itself. */
  'breakers',
] as const;
export type StatePart = (typeof STATE_PARTS)[number];

/** The first column among the extras. */
const FIRST_EXTRA = samplingField('features');
const EXTRA_FIELDS = SAMPLING_FIELDS.length - FIRST_EXTRA;
const EXTRA = Math.ceil((EXTRA_FIELDS + STATE_PARTS.length) / 4);

/** WGSL expression: a word of the extras of output `row`. Only in steps that have them. */
export function rowWord(name: SamplingField | StatePart): string {
  const part = STATE_PARTS.indexOf(name as StatePart);
  const at = part < 0 ? samplingField(name as SamplingField) - FIRST_EXTRA : EXTRA_FIELDS + part;
  return `step[step[2].w + row * ${EXTRA}u + ${at >> 2}u].${'xyzw'[at & 3]}`;
}

/** Where a slot's parts stand, in the order of STATE_PARTS; null for a slot without state. */
export type PartsOf = (slot: number) => Uint32Array | null;

/** The binding `step`, and how kernels read it. */
export const STEP_BINDING = { name: 'step', access: 'read', type: 'array<vec4<u32>>' } as const;

export const STEP_WGSL = `
fn step_token(i: u32) -> vec4<u32> { return step[${HEADER}u + i]; }
fn step_sequence(s: u32) -> vec4<u32> { return step[step[1].z - step[0].z + s]; }
fn step_output(i: u32, part: u32) -> vec4<u32> { return step[step[1].z + i * ${OUTPUT}u + part]; }
`;

/** Of a program with rotations by axes: the three rotary positions of a token. */
export const STEP_ROTARY_WGSL = `
fn step_rotary(i: u32) -> vec4<u32> { return step[${HEADER}u + step[0].x + i]; }
`;

/** WGSL expression: rows of the kind in this step. */
export function rowCount(kind: RowKind): string {
  return kind === 'tokens' ? 'step[0].x' : 'step[0].y';
}

/** Counts of a step with nothing in it. */
export function emptyFacts(): StepFacts {
  return {
    tokens: 0,
    outputs: 0,
    sequences: 0,
    items: 0,
    itemRows: 0,
    itemSplits: 1,
    tiles: 0,
    tileParts: 1,
    ahead: 0,
    features: 0,
    dryWindow: 0,
    maxTopK: 0,
    filteredRows: 0,
  };
}

/**
 * Packs steps of one program. What a step counts is in `facts` until the next one is packed.
 * @example queue.writeBuffer(buffer, 0, packer.words, 0, packer.pack(inputs));
 */
export class StepPacker {
  /** Of the step packed last. */
  readonly facts = emptyFacts();
  /** Bytes the buffer must have. */
  readonly bytes: number;
  /** The step packed last, from the first word on. */
  readonly words: Uint32Array<ArrayBuffer>;
  readonly #floats: Float32Array;
  readonly #limits: ProgramLimits;
  readonly #bounds: StepBounds;
  readonly #maxItems: number;
  readonly #attends: boolean;
  /** Tokens have rotary positions of their own. */
  readonly #turns: boolean;
  readonly #recurs: boolean;
  #wideFrom = Number.POSITIVE_INFINITY;
  #tileWorkgroups = 0;

  /**
   * `maxItems`: items there is scratch for; a step with more has the rest of its sequences tiled. 0: tile all. `attends`, `recurs`:
   * what layers of the graph do, and so what the step has records for.
   */
  constructor(limits: ProgramLimits, bounds: StepBounds, maxItems: number, attends: boolean, recurs = false) {
    this.#limits = limits;
    this.#bounds = bounds;
    this.#maxItems = maxItems;
    this.#attends = attends;
    this.#recurs = recurs;
    this.#turns = (bounds.rotary ?? 0) > 0;
    const tiles = Math.ceil(limits.maxTokens / ATTENTION_TILE) + limits.maxSequences;
    const vectors =
      HEADER +
      limits.maxTokens * (this.#turns ? 2 : 1) +
      (recurs ? limits.maxSequences : 0) +
      OUTPUT * limits.maxOutputs +
      maxItems +
      limits.maxSequences +
      tiles +
      EXTRA * limits.maxOutputs;
    this.bytes = vectors * 16;
    this.words = new Uint32Array(vectors * 4);
    this.#floats = new Float32Array(this.words.buffer);
  }

  /** From so many splits on, items are wide: for kernels that take such. */
  set wideFrom(splits: number) {
    this.#wideFrom = splits;
  }

  /** Workgroups of a tile, had it one part: for kernels that take parts; 0: none does. */
  set tileWorkgroups(count: number) {
    this.#tileWorkgroups = count;
  }

  /** Packs a step and returns how many words of `words` it takes. Throws for a step that breaks a bound. */
  pack(inputs: StepInputs, partsOf: PartsOf = () => null): number {
    checkStep(inputs, this.#limits, this.#bounds);
    const ahead = checkLookAhead(inputs, this.#bounds.ahead ?? false);
    const { words, facts } = this;
    const tokensAt = HEADER;
    const sequencesAt = tokensAt + inputs.tokenCount * (this.#turns ? 2 : 1);
    const outputsAt = sequencesAt + (this.#recurs ? inputs.sequenceCount : 0);
    const workAt = outputsAt + OUTPUT * inputs.outputCount;
    facts.tokens = inputs.tokenCount;
    facts.outputs = inputs.outputCount;
    facts.sequences = inputs.sequenceCount;
    facts.items = 0;
    facts.itemRows = 0;
    facts.itemSplits = 1;
    facts.tiles = 0;
    facts.tileParts = 1;
    facts.ahead = ahead ? 1 : 0;
    facts.features = featuresOf(inputs);
    facts.dryWindow = 0;
    facts.maxTopK = 0;
    facts.filteredRows = 0;

    for (let s = 0; s < inputs.sequenceCount; s++) {
      const [slot, start] = [inputs.seqSlot[s]!, inputs.seqStart[s]!];
      const [length, position] = [inputs.seqLength[s]!, inputs.seqPosition[s]!];
      for (let i = 0; i < length; i++) {
        const at = (tokensAt + start + i) * 4;
        words[at] = inputs.tokens[start + i]!;
        words[at + 1] = slot;
        words[at + 2] = position + i;
        words[at + 3] = this.#bounds.ahead === true ? visibleEndOf(inputs, start + i, position + i) : 0;
      }
      if (this.#recurs) words.set([start, length, position, slot], (sequencesAt + s) * 4);
    }
    if (this.#turns) this.#packRotary(inputs, tokensAt + inputs.tokenCount);
    this.#packOutputs(inputs, outputsAt);
    const end = this.#attends ? this.#packWork(inputs, workAt) : workAt;
    words[0] = facts.tokens;
    words[1] = facts.outputs;
    words[2] = facts.sequences;
    words[3] = facts.items;
    words[4] = facts.itemRows;
    words[5] = facts.tiles;
    words[6] = outputsAt;
    words[7] = facts.itemSplits;
    words[8] = workAt;
    words[9] = workAt + facts.items;
    words[10] = workAt + facts.items + facts.itemRows;
    words[11] = 0;
    if (facts.features === 0) return end * 4;
    words[11] = end;
    return this.#packExtras(inputs, end, partsOf) * 4;
  }

  #packRotary(inputs: StepInputs, rotaryAt: number): void {
    for (let i = 0; i < inputs.tokenCount; i++) this.words[(rotaryAt + i) * 4 + ROPE_AXES] = 0;
    writeRotary(inputs, this.words, rotaryAt * 4, 4);
  }

  #packExtras(inputs: StepInputs, extrasAt: number, partsOf: PartsOf): number {
    const { words, facts } = this;
    const floats = this.#floats;
    const { columns, features, position, dryWindow } = inputs.sampling;
    for (let i = 0; i < inputs.outputCount; i++) {
      const at = (extrasAt + i * EXTRA) * 4;
      if (inputs.outputSlot[i] === NO_SLOT) {
        words.fill(0, at, at + EXTRA * 4);
        continue;
      }
      for (let f = 0; f < EXTRA_FIELDS; f++) {
        const column = columns[FIRST_EXTRA + f]!;
        if (column instanceof Float32Array) floats[at + f] = column[i]!;
        else words[at + f] = column[i]!;
      }
      const parts = partsOf(inputs.outputSlot[i]!);
      for (let p = 0; p < STATE_PARTS.length; p++)
        words[at + EXTRA_FIELDS + p] = parts === null ? 0 : parts[p]!;
      if (features[i]! & FEATURE.DRY) {
        const [n, window] = [position[i]!, dryWindow[i]!];
        const back = window === 0 ? n : Math.min(n, window);
        facts.dryWindow = Math.max(facts.dryWindow, Math.ceil(back / LOOK_BACK) * LOOK_BACK);
      }
    }
    return extrasAt + inputs.outputCount * EXTRA;
  }

  #packOutputs(inputs: StepInputs, outputsAt: number): void {
    const { words, facts } = this;
    const floats = this.#floats;
    const s = inputs.sampling;
    let before = -1;
    for (let i = 0; i < inputs.outputCount; i++) {
      const at = (outputsAt + i * OUTPUT) * 4;
      words[at] = inputs.outputs[i]!;
      if (inputs.outputSlot[i] === NO_SLOT) {
        words.fill(0, at + 1, at + OUTPUT * 4);
        words[at + 1] = this.#bounds.slots;
        continue;
      }
      words[at + 1] = inputs.outputSlot[i]!;
      // Of several that draw for a slot the last one alone leaves its token there.
      if (before >= 0 && words[before + 1] === words[at + 1]) words[before + 1] = this.#bounds.slots;
      before = at;
      floats[at + 2] = s.temperature[i]!;
      words[at + 3] = s.topK[i]!;
      floats[at + 4] = s.topP[i]!;
      floats[at + 5] = s.minP[i]!;
      words[at + 6] = s.seedLow[i]!;
      words[at + 7] = s.seedHigh[i]!;
      words[at + 8] = s.choice[i]!;
      words[at + 9] = s.position[i]!;
      words[at + 10] = 0;
      words[at + 11] = 0;
      if (s.temperature[i]! <= 0) continue;
      const filtered = s.topK[i]! > 0 || s.topP[i]! < 1;
      if (filtered) facts.maxTopK = Math.max(facts.maxTopK, s.topK[i]! > 0 ? s.topK[i]! : 0xffff_ffff);
      if (filtered || (s.features[i]! & FEATURE.TYPICAL) !== 0)
        words[(outputsAt + facts.filteredRows++ * OUTPUT) * 4 + 10] = i;
    }
  }

  /** Items, then item rows, then tiles. */
  #packWork(inputs: StepInputs, workAt: number): number {
    const { words, facts } = this;
    let at = workAt * 4;
    let width = ATTENTION_SPLIT;
    const split = (s: number): number =>
      inputs.seqLength[s] === 1 ? Math.floor(inputs.seqPosition[s]! / width) + 1 : 0;
    if (this.#wideFrom < Number.POSITIVE_INFINITY) {
      let all = 0;
      for (let s = 0; s < inputs.sequenceCount; s++) all += split(s);
      if (all >= this.#wideFrom) facts.itemSplits = WIDE_SPLITS;
      width *= facts.itemSplits;
    }
    // The first pass decides; the later ones repeat its decisions.
    let taken = 0;
    let rows = 0;
    let lastItemised = -1;
    for (let s = 0; s < inputs.sequenceCount; s++) {
      const splits = split(s);
      if (splits === 0 || this.#maxItems === 0) continue;
      if (taken + splits > this.#maxItems) break;
      for (let i = 0; i < splits; i++, at += 4) {
        words[at] = inputs.seqStart[s]!;
        words[at + 1] = i;
        words[at + 2] = inputs.seqSlot[s]!;
        words[at + 3] = inputs.seqPosition[s]!;
      }
      taken += splits;
      rows++;
      lastItemised = s;
    }
    let first = 0;
    for (let s = 0; s <= lastItemised; s++) {
      const splits = split(s);
      if (splits === 0) continue;
      words[at] = inputs.seqStart[s]!;
      words[at + 1] = first;
      words[at + 2] = splits;
      words[at + 3] = inputs.seqSlot[s]!;
      first += splits;
      at += 4;
    }
    let deepest = 0;
    for (let s = 0; s < inputs.sequenceCount; s++) {
      if (s <= lastItemised && split(s) > 0) continue;
      const length = inputs.seqLength[s]!;
      deepest = Math.max(deepest, inputs.seqPosition[s]! + length);
      for (let i = 0; i < length; i += ATTENTION_TILE, at += 4) {
        words[at] = inputs.seqStart[s]! + i;
        words[at + 1] = Math.min(ATTENTION_TILE, length - i);
        words[at + 2] = inputs.seqPosition[s]! + i;
        words[at + 3] = inputs.seqSlot[s]!;
        facts.tiles++;
      }
    }
    facts.items = taken;
    facts.itemRows = rows;
    const parts = Math.min(
      TILE_WORKGROUPS / (facts.tiles * this.#tileWorkgroups),
      deepest / PART_POSITIONS,
      MOST_PARTS,
    );
    if (this.#tileWorkgroups > 0 && parts >= 2) facts.tileParts = Math.floor(parts);
    return at / 4;
  }
}
