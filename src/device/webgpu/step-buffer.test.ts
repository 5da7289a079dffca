import { describe, expect, it } from 'vitest';
import { RotaryInputs } from '../rotary-inputs.js';
import { FEATURE } from '../sampling.js';
import { StepInputs } from '../step.js';
import {
  ATTENTION_SPLIT,
  ATTENTION_TILE,
  LOOK_BACK,
  MOST_PARTS,
  PART_POSITIONS,
  StepPacker,
  TILE_WORKGROUPS,
  WIDE_SPLITS,
} from './step-buffer.js';

const LIMITS = { maxTokens: 64, maxOutputs: 8, maxSequences: 8, maxContext: 4096, inFlight: 2 };
const BOUNDS = { slots: 10, positions: 4096 };

function inputs(
  sequences: readonly (readonly [slot: number, length: number, position: number])[],
): StepInputs {
  const step = new StepInputs(LIMITS.maxTokens, LIMITS.maxSequences, LIMITS.maxOutputs);
  sequences.forEach(([slot, length, position], s) => {
    step.seqSlot[s] = slot;
    step.seqStart[s] = step.tokenCount;
    step.seqLength[s] = length;
    step.seqPosition[s] = position;
    step.tokenCount += length;
  });
  step.sequenceCount = sequences.length;
  return step;
}

/** The vectors of a packed step, from index `from`. */
function vectors(packer: StepPacker, from: number, count: number): number[][] {
  return Array.from({ length: count }, (_, i) => [
    ...packer.words.subarray((from + i) * 4, (from + i + 1) * 4),
  ]);
}

describe('StepPacker', () => {
  it('gives every token its id, slot and position', () => {
    const packer = new StepPacker(LIMITS, BOUNDS, 16, false);
    const step = inputs([
      [4, 3, 100],
      [9, 1, 0],
    ]);
    step.tokens.set([11, 12, 13, -5]);
    expect(packer.pack(step)).toBe((3 + 4) * 4);
    expect(vectors(packer, 3, 4)).toEqual([
      [11, 4, 100, 0],
      [12, 4, 101, 0],
      [13, 4, 102, 0],
      [0xfffffffb, 9, 0, 0],
    ]);
    expect(packer.facts).toMatchObject({
      tokens: 4,
      outputs: 0,
      sequences: 2,
      items: 0,
      itemRows: 0,
      tiles: 0,
    });
  });

  it('gives every token its rotary positions behind all tokens, in a program that turns by them', () => {
    const packer = new StepPacker(LIMITS, { ...BOUNDS, rotary: 512 }, 16, false);
    const step = Object.assign(
      inputs([
        [4, 2, 100],
        [9, 2, 7],
      ]),
      { rotary: new RotaryInputs(4, 2) },
    );
    step.rotary.shift[0] = -3;
    step.rotary.placed[1] = 1;
    step.rotary.positions.set([1, 2, 3, 4, 5, 6], 6);
    packer.words.fill(77);
    expect(packer.pack(step)).toBe((3 + 8) * 4);
    expect(vectors(packer, 7, 4)).toEqual([
      [97, 97, 97, 0],
      [98, 98, 98, 0],
      [1, 2, 3, 0],
      [4, 5, 6, 0],
    ]);
    expect(packer.words[6]).toBe(11);
    step.clear();
    Object.assign(step, { tokenCount: 4, sequenceCount: 2 });
    packer.pack(step);
    expect(vectors(packer, 7, 4).map(([t]) => t)).toEqual([100, 101, 7, 8]);
  });

  it('gives every output its parameters', () => {
    const packer = new StepPacker(LIMITS, BOUNDS, 16, false);
    const step = inputs([[0, 2, 5]]);
    step.outputs[0] = 1;
    step.outputSlot[0] = 7;
    step.outputCount = 1;
    const s = step.sampling;
    s.temperature[0] = 1;
    s.topK[0] = 40;
    s.topP[0] = 0.5;
    s.minP[0] = 2;
    s.seedLow[0] = 21;
    s.seedHigh[0] = 22;
    s.choice[0] = 3;
    s.position[0] = 8;
    packer.pack(step);
    const at = packer.words[6]!;
    expect(vectors(packer, at, 3)).toEqual([
      [1, 7, 0x3f800000, 40],
      [0x3f000000, 0x40000000, 21, 22],
      [3, 8, 0, 0],
    ]);
    expect(packer.facts).toMatchObject({ filteredRows: 1, maxTopK: 40 });
  });

  it('names the rows that filter in order, and rounds up how far DRY looks back', () => {
    const packer = new StepPacker(LIMITS, BOUNDS, 16, true);
    const step = inputs([
      [1, 1, 0],
      [2, 1, 0],
      [3, 1, 0],
      [4, 1, 0],
    ]);
    step.outputCount = 4;
    const s = step.sampling;
    for (let i = 0; i < 4; i++) {
      step.outputs[i] = i;
      s.clearRow(i);
      s.temperature[i] = 1;
    }
    s.topP[1] = 0.9;
    s.features[3] = FEATURE.TYPICAL;
    s.features[2] = FEATURE.DRY;
    // Greedy: its top-k is nobody's business.
    s.temperature[0] = 0;
    s.topK[0] = 7;
    for (const [position, dryWindow] of [
      [1, LOOK_BACK],
      [LOOK_BACK, LOOK_BACK],
      [LOOK_BACK + 1, 2 * LOOK_BACK],
    ]) {
      s.position[2] = position!;
      packer.pack(step);
      expect(packer.facts).toMatchObject({ filteredRows: 2, maxTopK: 0xffffffff, dryWindow });
    }
    const listed = [0, 1].map((i) => packer.words[(packer.words[6]! + 3 * i) * 4 + 10]);
    expect(listed).toEqual([1, 3]);
  });

  it('cuts decoding rows along their context, and prompts along their tokens', () => {
    const packer = new StepPacker(LIMITS, BOUNDS, 16, true);
    const step = inputs([
      [1, 1, ATTENTION_SPLIT],
      [2, ATTENTION_TILE + 3, 40],
      [3, 1, 0],
    ]);
    packer.pack(step);
    expect(packer.facts).toMatchObject({ items: 3, itemRows: 2, tiles: 2 });
    const last = 1 + ATTENTION_TILE + 3;
    const [items, rows, tiles] = [packer.words[8]!, packer.words[9]!, packer.words[10]!];
    expect(vectors(packer, items, 3)).toEqual([
      [0, 0, 1, ATTENTION_SPLIT],
      [0, 1, 1, ATTENTION_SPLIT],
      [last, 0, 3, 0],
    ]);
    expect(vectors(packer, rows, 2)).toEqual([
      [0, 0, 2, 1],
      [last, 2, 1, 3],
    ]);
    expect(vectors(packer, tiles, 2)).toEqual([
      [1, ATTENTION_TILE, 40, 2],
      [1 + ATTENTION_TILE, 3, 40 + ATTENTION_TILE, 2],
    ]);
  });

  it('cuts a context coarser where there would be many pieces', () => {
    const packer = new StepPacker(LIMITS, BOUNDS, 16, true);
    const wide = WIDE_SPLITS * ATTENTION_SPLIT;
    const step = inputs([
      [1, 1, wide - 1],
      [3, 1, wide],
    ]);
    packer.wideFrom = 2 * WIDE_SPLITS + 1;
    packer.pack(step);
    expect(packer.facts).toMatchObject({ items: 3, itemRows: 2, itemSplits: WIDE_SPLITS });
    expect(packer.words[7]).toBe(WIDE_SPLITS);
    expect(vectors(packer, packer.words[8]!, 3)).toEqual([
      [0, 0, 1, wide - 1],
      [1, 0, 3, wide],
      [1, 1, 3, wide],
    ]);
    expect(vectors(packer, packer.words[9]!, 2)).toEqual([
      [0, 0, 1, 1],
      [1, 1, 2, 3],
    ]);
    packer.wideFrom = 2 * WIDE_SPLITS + 2;
    packer.pack(step);
    expect(packer.facts).toMatchObject({ items: 2 * WIDE_SPLITS + 1, itemSplits: 1 });
    expect(packer.words[7]).toBe(1);
  });

  it('has the positions of few tiles walked in parts', () => {
    const packer = new StepPacker(LIMITS, BOUNDS, 16, true);
    const parts = (position: number, length: number, workgroups: number): number => {
      packer.tileWorkgroups = workgroups;
      packer.pack(inputs([[2, length, position]]));
      return packer.facts.tileParts;
    };
    expect(parts(3000, 64, 0)).toBe(1);
    expect(parts(3000, 64, 8)).toBe(Math.floor(3064 / PART_POSITIONS));
    expect(parts(4000, 20, 8)).toBe(Math.floor(4020 / PART_POSITIONS));
    expect(parts(2 * PART_POSITIONS - 20, 19, 8)).toBe(1);
    expect(parts(2 * PART_POSITIONS - 20, 20, 8)).toBe(2);
    // Four tiles.
    expect(parts(3000, 64, TILE_WORKGROUPS / 8)).toBe(2);
    expect(parts(3000, 64, TILE_WORKGROUPS / 4)).toBe(1);
    expect(parts(4032, 16, 1)).toBe(Math.min(MOST_PARTS, Math.floor(4048 / PART_POSITIONS)));
  });

  it('tiles what there is no room to split', () => {
    const packer = new StepPacker(LIMITS, BOUNDS, 3, true);
    const step = inputs([
      [0, 1, ATTENTION_SPLIT * 2 - 1],
      [1, 1, ATTENTION_SPLIT * 3],
      [2, 1, 5],
    ]);
    packer.pack(step);
    expect(packer.facts).toMatchObject({ items: 2, itemRows: 1, tiles: 2 });
    expect(vectors(packer, packer.words[10]!, 2)).toEqual([
      [1, 1, ATTENTION_SPLIT * 3, 1],
      [2, 1, 5, 2],
    ]);
  });

  it('fits the largest step that the limits allow', () => {
    const limits = { ...LIMITS, maxTokens: 8 };
    const packer = new StepPacker(limits, BOUNDS, 8, true);
    const step = inputs(Array.from({ length: 8 }, (_, s) => [s, 1, 0] as const));
    for (let i = 0; i < 8; i++) step.outputs[i] = i;
    step.outputCount = 8;
    expect(packer.pack(step) * 4).toBeLessThanOrEqual(packer.bytes);
    const tiled = new StepPacker(limits, BOUNDS, 0, true);
    expect(tiled.pack(step) * 4).toBeLessThanOrEqual(tiled.bytes);
    expect(tiled.facts).toMatchObject({ items: 0, itemRows: 0, tiles: 8 });
  });

  it('refuses steps that would read or write out of bounds', () => {
    const packer = new StepPacker(LIMITS, BOUNDS, 16, true);
    const broken: [string, (step: StepInputs) => void][] = [
      ['tokens', (s) => (s.tokenCount = 65)],
      ['outputs', (s) => (s.outputCount = 9)],
      ['sequences', (s) => (s.sequenceCount = 9)],
      ['slot of a sequence', (s) => (s.seqSlot[0] = 10)],
      ['slot of an output', (s) => (s.outputSlot[0] = 10)],
      ['slot of a token', (s) => (s.tokens[1] = -11)],
      ['token of an output', (s) => (s.outputs[0] = 2)],
      ['position', (s) => (s.seqPosition[0] = 4095)],
      ['start', (s) => (s.seqStart[0] = 1)],
      ['length', (s) => (s.seqLength[0] = 1)],
    ];
    const good = (): StepInputs => {
      const step = inputs([[0, 2, 0]]);
      step.outputCount = 1;
      return step;
    };
    expect(packer.pack(good())).toBeGreaterThan(0);
    for (const [what, change] of broken) {
      const step = good();
      change(step);
      expect(() => packer.pack(step), what).toThrowError(expect.objectContaining({ code: 'invalid-step' }));
    }
  });
});
