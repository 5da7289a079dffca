import { describe, expect, it } from 'vitest';
import { ChainKeys, chainRoot, tokensOf } from './chain-keys.js';
import {
  agreedBorder,
  type ChainView,
  FullHolder,
  holderOf,
  type LayerHolder,
  WindowHolder,
} from './holders.js';

const keys = new ChainKeys(chainRoot('m'), 16);
const view = (blocks: Iterable<number>): ChainView => {
  const there = new Set(blocks);
  return { keys, has: (at) => there.has(at) };
};
const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

describe('what layers need at a border', () => {
  it('full attention: all before it', () => {
    const full = new FullHolder();
    expect(full.firstHeld()).toBe(0);
    expect(full.longest(view(range(0, 7)), 9)).toBe(7);
    expect(full.longest(view(range(0, 7)), 5)).toBe(5);
    expect(full.longest(view(range(1, 7)), 9)).toBe(0);
  });

  it('a window: exactly the blocks with a position that the mask shows to the next token or a later one', () => {
    for (const blockTokens of [16, 32])
      for (let window = 1; window <= 100; window++) {
        const holder = new WindowHolder(window, blockTokens);
        for (let tokens = 0; tokens <= 200; tokens++) {
          // The mask of src/device/graph.ts: the token at p sees positions > p − w.
          let first = 0;
          while (first < tokens && !(first > tokens - window)) first++;
          expect(holder.firstHeld(tokens)).toBe(Math.floor(first / blockTokens));
        }
      }
  });

  it('a window: the longest border whose window is whole, whatever is missing before', () => {
    // Of blocks of 16: [b − 63, b) are four of them.
    const holder = new WindowHolder(64, 16);
    expect(holder.longest(view(range(0, 12)), 20)).toBe(12);
    expect(holder.longest(view(range(8, 12)), 20)).toBe(12);
    expect(holder.longest(view(range(9, 12)), 20)).toBe(0);
    expect(holder.longest(view([...range(0, 3), ...range(9, 12)]), 20)).toBe(3);
    expect(holder.longest(view([...range(0, 3), ...range(8, 12)]), 11)).toBe(3);
    expect(holder.longest(view([...range(4, 9), 10]), 11)).toBe(9);
    // One token more than four blocks reach back to.
    expect(new WindowHolder(65, 16).longest(view(range(8, 12)), 20)).toBe(12);
    expect(new WindowHolder(66, 16).longest(view(range(8, 12)), 20)).toBe(0);
  });

  it('agrees with trying every border', () => {
    let seed = 1;
    const random = (): number => {
      seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
      return seed / 2 ** 32;
    };
    for (let i = 0; i < 3000; i++) {
      const window = 1 + Math.floor(random() * 100);
      const there = view(range(0, 20).filter(() => random() < 0.8));
      const holder = new WindowHolder(window, 16);
      const most = Math.floor(random() * 21);
      const works = (border: number): boolean =>
        range(0, border * 16).every((p) => p <= border * 16 - window || there.has(Math.floor(p / 16)));
      let best = most;
      while (!works(best)) best--;
      expect(holder.longest(there, most)).toBe(best);
    }
  });
});

/** The border that holders agree on, each over blocks of its own. */
const agree = (groups: readonly (readonly [LayerHolder, ChainView])[], most: number): number =>
  agreedBorder(groups.length, most, (group, least) => groups[group]![0].longest(groups[group]![1], least));

describe('groups', () => {
  it('restore where all of them agree', () => {
    const [full, wide, narrow] = [holderOf(null, 16), holderOf(64, 16), holderOf(32, 16)];
    const all = view(range(0, 12));
    expect(
      agree(
        [
          [full, all],
          [wide, view(range(8, 12))],
        ],
        20,
      ),
    ).toBe(12);
    expect(
      agree(
        [
          [full, view(range(0, 10))],
          [wide, view(range(8, 12))],
        ],
        20,
      ),
    ).toBe(0);
    expect(
      agree(
        [
          [wide, view([...range(0, 6), ...range(9, 12)])],
          [narrow, view([...range(0, 6), ...range(9, 12)])],
        ],
        20,
      ),
    ).toBe(6);
    expect([full.keepsAll, wide.keepsAll, narrow.firstHeld(160)]).toEqual([true, false, 8]);
  });

  it('take in recurrent state: snapshots, known by the key of the block before the border', () => {
    const own = new ChainKeys(chainRoot('m'), 16);
    own.extend(tokensOf(range(0, 160)), 10);
    const snapshots = new Set([own.hex(3), own.hex(7)]);
    const recurrent: LayerHolder = {
      keepsAll: false,
      bordersOnly: true,
      version: 0,
      longest({ keys }, most) {
        let border = most;
        while (border > 0 && !snapshots.has(keys.hex(border - 1))) border--;
        return border;
      },
      // It reads no positions.
      firstHeld: (tokens) => Math.floor(tokens / 16),
    };
    const there = (blocks: Iterable<number>): ChainView => ({ ...view(blocks), keys: own });
    expect(agree([[recurrent, there([])]], 10)).toBe(8);
    expect(
      agree(
        [
          [recurrent, there(range(0, 10))],
          [new FullHolder(), there(range(0, 10))],
        ],
        10,
      ),
    ).toBe(8);
    expect(
      agree(
        [
          [recurrent, there(range(0, 6))],
          [new FullHolder(), there(range(0, 6))],
        ],
        10,
      ),
    ).toBe(4);
    expect(
      agree(
        [
          [new FullHolder(), there(range(0, 3))],
          [recurrent, there(range(0, 3))],
        ],
        10,
      ),
    ).toBe(0);
    expect(
      agree(
        [
          [recurrent, there([2, 3, 9])],
          [new WindowHolder(17, 16), there([2, 3, 9])],
        ],
        10,
      ),
    ).toBe(4);
  });
});
