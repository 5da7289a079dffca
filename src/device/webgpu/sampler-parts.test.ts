import { describe, expect, it } from 'vitest';
import { Random } from '../../../test/devices/numbers.js';
import { type RowParams, specOfRow } from '../../../test/devices/sampling-reference.js';
import { LISTS } from './kernels/sample-penalties.js';
import { fillParts, layoutParts, packLists, tailWrites } from './sampler-parts.js';
import { STATE_PARTS, type StatePart } from './step-buffer.js';

const SHAPE = { vocab: 100, stride: 100, maxContext: 64 };
const layoutOf = (row: RowParams) => layoutParts(specOfRow(row), SHAPE);
function partsOf(row: RowParams): StatePart[] {
  const layout = layoutOf(row);
  return layout === null ? [] : STATE_PARTS.filter((p, i) => p !== 'ring' && layout.at[i] !== 0);
}

describe('the parts of a slot', () => {
  it('are those that its spec asks for', () => {
    expect(layoutOf({ temperature: 1, topK: 4, typicalP: 0.5, logprobs: 3 })).toBeNull();
    expect(partsOf({ repetition: { penalty: 2 } })).toEqual(['processed', 'seen']);
    expect(partsOf({ repetition: { penalty: 2, window: 9 } })).toEqual(['processed', 'seen', 'history']);
    expect(partsOf({ frequency: 1 })).toEqual(['processed', 'generated']);
    expect(partsOf({ mask: [] })).toEqual(['processed', 'mask']);
    expect(partsOf({ bias: { 1: 2 } })).toEqual(['processed', 'lists']);
    expect(partsOf({ banned: [[1, 2]] })).toEqual(['processed', 'history', 'lists']);
    expect(partsOf({ dry: { multiplier: 1, breakers: [4] } })).toEqual([
      'processed',
      'matched',
      'history',
      'lengths',
      'breakers',
    ]);
    // The head alone.
    expect(partsOf({ mirostat: { tau: 1, eta: 1 } })).toEqual([]);
    expect(layoutOf({ mirostat: { tau: 1, eta: 1 } })?.vectors).toBe(1);
  });

  it('hold no more tokens than the longest window looks back on', () => {
    const ring = STATE_PARTS.indexOf('ring');
    expect(layoutOf({ repetition: { penalty: 2, window: 9 } })?.at[ring]).toBe(10);
    expect(layoutOf({ dry: { multiplier: 1, window: 20 } })?.at[ring]).toBe(21);
    expect(layoutOf({ dry: { multiplier: 1 } })?.at[ring]).toBe(65);
    expect(layoutOf({ dry: { multiplier: 1, window: 5, breakerSequences: [[1, 2]] } })?.at[ring]).toBe(33);
  });

  it('have the last tokens where their positions say', () => {
    const row: RowParams = { repetition: { penalty: 2, window: 4 } };
    const spec = specOfRow(row);
    const history = Int32Array.from({ length: 13 }, (_, i) => i);
    const parts = fillParts(spec, layoutParts(spec, SHAPE)!, SHAPE, history, 3, true);
    // A ring of five: position p at p mod 5.
    expect([...parts.get('history')!]).toEqual([10, 11, 12, 8, 9]);
    expect([...parts.get('seen')!].flatMap((n, id) => (n > 0 ? [id] : []))).toEqual([9, 10, 11, 12]);
    expect([...parts.get('head')!].slice(1, 3)).toEqual([0, 13]);
  });

  it('have lists that say where each sequence stands', () => {
    const lists = packLists(
      specOfRow({
        bias: { 3: 1.5, 9: -2 },
        withheld: [8],
        banned: [
          [1, 2, 3],
          [4, 5],
        ],
      }),
    );
    const floats = new Float32Array(lists.buffer);
    const at = (name: keyof typeof LISTS): number => lists[LISTS[name]]!;
    expect([...lists.subarray(at('biasAt'), at('biasAt') + 2)]).toEqual([3, 9]);
    expect([...floats.subarray(at('biasAt') + 2, at('biasAt') + 4)]).toEqual([1.5, -2]);
    expect(lists[at('withheldAt')]).toBe(8);
    const sequence = (i: number): number[] => {
      const start = lists[at('bannedAt') + 2 * i]!;
      return [...lists.subarray(start, start + lists[at('bannedAt') + 2 * i + 1]!)];
    };
    expect([at('bannedCount'), sequence(0), sequence(1)]).toEqual([2, [1, 2, 3], [4, 5]]);
    expect(at('breakerCount')).toBe(0);
  });

  it('go on to a longer history by what is new, as if filled with all of it', () => {
    const dry = { multiplier: 1, breakers: [3], breakerSequences: [[1, 2]] };
    const rows: RowParams[] = [
      { repetition: { penalty: 2 } },
      { repetition: { penalty: 2, window: 7 }, frequency: 1 },
      { frequency: 1, banned: [[1, 2]] },
      { dry },
      { dry: { ...dry, window: 11 }, repetition: { penalty: 2, window: 30 }, presence: 1 },
    ];
    const random = new Random(3);
    for (const [r, row] of rows.entries()) {
      const spec = specOfRow(row);
      for (const shape of [SHAPE, { vocab: 5000, stride: 5000, maxContext: 400 }]) {
        const layout = layoutParts(spec, shape)!;
        for (let n = 0; n < 30; n++) {
          const length = 1 + random.int(shape.maxContext);
          // Few ids that come again, many, and some beyond the vocabulary.
          const ids = [6, shape.vocab, shape.vocab + 9][n % 3]!;
          const history = Int32Array.from({ length }, () => random.int(ids));
          const [from, promptLength] = [random.int(length), random.int(length + 1)];
          const parts = fillParts(spec, layout, shape, history.subarray(0, from), promptLength, false);
          const writes = tailWrites(spec, layout, shape, history, from, promptLength);
          for (const { part, at, words } of writes) parts.get(part)!.set(words, at);
          const want = fillParts(spec, layout, shape, history, promptLength, false);
          const ring = layout.at[STATE_PARTS.indexOf('ring')]!;
          for (const [part, words] of want) {
            const got = parts.get(part)!;
            // What left the ring is still there; nobody looks.
            const compared = part === 'history' ? Math.min(ring, length) : words.length;
            for (let i = 0; i < compared; i++) {
              const at = part === 'history' ? (length - 1 - i) % ring : i;
              if (got[at] !== words[at])
                expect.fail(
                  `row ${r}, ${part} ${at} of ${length}, from ${from}: ${got[at]} for ${words[at]}`,
                );
            }
          }
          const sent = writes.reduce((sum, { words }) => sum + words.length, 0);
          if (spec.features === specOfRow(rows[0]!).features && length - from <= 64)
            expect(sent).toBeLessThanOrEqual(4 + length - from);
        }
      }
    }
  });
});
