import { describe, expect, it } from 'vitest';
import {
  type Decision,
  type DecisionCandidate,
  entryName,
  type TuningEntries,
  type TuningEntry,
} from './decision.js';
import { MARGIN, median, type TuneOptions, tune } from './tune.js';

interface Fake extends DecisionCandidate {
  readonly us: number;
  readonly agrees?: 'same' | 'close' | 'differs';
  readonly compiles?: boolean;
  readonly text?: string;
  /** Added to every other sample. */
  readonly swing?: number;
}

/** A clock that moves as work is done, and contests on it. */
class World {
  now = 0;
  open = 0;
  compileMs = 0;
  readonly log: string[] = [];
  readonly adopted = new Map<string, string>();

  decision(key: string, candidates: readonly Fake[], opens: () => void = () => {}): Decision {
    return {
      key,
      rows: 1,
      candidates,
      bytes: 1,
      operations: 1,
      textOf: (i) => candidates[i]!.text ?? candidates[i]!.id,
      adopt: (i) => this.adopted.set(key, candidates[i]!.id),
      open: async () => {
        opens();
        this.open++;
        this.log.push(`open ${key}`);
        return {
          prepare: async (list) => {
            this.now += this.compileMs;
            return list.filter((i) => candidates[i]!.compiles !== false);
          },
          time: async (list, samples) => {
            this.log.push(`time ${list.length}`);
            const rows = list.map((i) =>
              Array.from(
                { length: samples },
                (_, s) => candidates[i]!.us + (s % 2) * (candidates[i]!.swing ?? 0),
              ),
            );
            this.now += rows.flat().reduce((sum, us) => sum + us, 0) / 1000;
            return rows;
          },
          compare: async (i) => {
            this.log.push(`compare ${candidates[i]!.id}`);
            return candidates[i]!.agrees ?? (candidates[i]!.neutral ? 'same' : 'close');
          },
          close: () => {
            this.open--;
          },
        };
      },
    };
  }

  async run(decisions: readonly Decision[], more: Partial<TuneOptions> = {}) {
    const learned: Record<string, TuningEntry> = {};
    const onLearned = (name: string, entry: TuningEntry) => {
      learned[name] = entry;
    };
    const base = { mode: 'full', budgetMs: 1e9, known: {}, now: () => this.now, onLearned } as const;
    return { ...(await tune(decisions, { ...base, ...more })), learned };
  }
}

const rule = { id: 'rule', neutral: true, us: 100 };

describe('tune', () => {
  it('takes the fastest, and where bits are to stay the fastest that keeps them', async () => {
    const candidates = [
      rule,
      { id: 'same', neutral: true, us: 90 },
      { id: 'other', neutral: false, us: 70 },
      { id: 'slow', neutral: true, us: 130 },
    ];
    for (const [mode, choice, us] of [
      ['full', 'other', 70],
      ['safe', 'same', 90],
    ] as const) {
      const world = new World();
      const { decisions, learned } = await world.run([world.decision('k', candidates)], { mode });
      expect(decisions[0]).toMatchObject({ by: 'measured', rule: 'rule', choice, us, ruleUs: 100 });
      expect(world.adopted.get('k')).toBe(choice);
      // What was measured for all orders is known for one as well.
      expect(learned[entryName('safe', 'k')]).toMatchObject({ choice: 'same', us: 90 });
      expect(learned[entryName('full', 'k')]?.choice).toBe(mode === 'full' ? 'other' : undefined);
      expect(world.open).toBe(0);
    }
  });

  it('stays with the rule for a gain within the margin, or one that is not there every time', async () => {
    for (const challenger of [
      { id: 'near', neutral: true, us: 100 * (1 - MARGIN) + 0.1 },
      { id: 'moody', neutral: true, us: 90, swing: 100 },
    ]) {
      const world = new World();
      const { decisions, learned } = await world.run([world.decision('k', [rule, challenger])]);
      expect(decisions[0]).toMatchObject({ choice: 'rule', us: 100 });
      expect(world.adopted.size).toBe(0);
      // That the rule is best is worth knowing too.
      expect(learned[entryName('full', 'k')]).toMatchObject({ rule: 'rule', choice: 'rule' });
    }
  });

  it('drops what gives other results on the device, whatever it promised', async () => {
    const world = new World();
    const candidates = [
      rule,
      { id: 'wrong', neutral: false, us: 10, agrees: 'differs' },
      { id: 'liar', neutral: true, us: 20, agrees: 'close' },
      { id: 'right', neutral: true, us: 80 },
    ] as const;
    const safe = await world.run([world.decision('k', candidates)], { mode: 'safe' });
    expect(safe.decisions[0]!.choice).toBe('right');
    const full = await world.run([world.decision('k', candidates)]);
    expect(full.decisions[0]!.choice).toBe('liar');
  });

  it('does without what does not compile, and goes on where nothing can be measured', async () => {
    const world = new World();
    const broken = { id: 'broken', neutral: true, us: 1, compiles: false };
    const fine = { id: 'fine', neutral: true, us: 50 };
    const { decisions, learned } = await world.run([
      world.decision('full memory', [rule, fine], () => {
        throw new Error('no room');
      }),
      world.decision('no rule', [{ ...rule, compiles: false }, fine]),
      world.decision('k', [rule, broken, fine]),
    ]);
    expect(decisions.map((d) => [d.by, d.choice])).toEqual([
      ['failed', 'rule'],
      ['failed', 'rule'],
      ['measured', 'fine'],
    ]);
    expect(decisions[0]!.why).toBe('no room');
    expect(decisions[2]!.times.map((t) => t.us)).toEqual([100, Number.NaN, 50]);
    expect(Object.keys(learned)).toEqual(['safe k', 'full k']);
    expect(world.open).toBe(0);
  });

  it('begins nothing once its time is up, and leaves that for the next time', async () => {
    const world = new World();
    const slow = [
      { ...rule, us: 100_000 },
      { id: 'fast', neutral: true, us: 50_000 },
    ];
    const keys = ['a', 'b', 'c', 'd'];
    const all = () => keys.map((key) => world.decision(key, slow));
    // Warming takes 400 ms, a decision 3 · 150 and 9 · 150 ms.
    const first = await world.run(all(), { budgetMs: 2500 });
    expect(first.decisions.map((d) => d.by)).toEqual(['measured', 'measured', 'skipped', 'skipped']);
    expect(world.now).toBeLessThan(4100);
    world.log.length = 0;
    const second = await world.run(all(), { budgetMs: 1e6, known: first.learned });
    expect(second.decisions.map((d) => d.by)).toEqual(['cache', 'cache', 'measured', 'measured']);
    expect(world.log.filter((line) => line.startsWith('open'))).toEqual(['open c', 'open d']);
    expect([...world.adopted.values()]).toEqual(['fast', 'fast', 'fast', 'fast']);
  });

  it('warms the GPU first, and again where it idled while kernels were compiled', async () => {
    const two = [
      { ...rule, us: 100_000 },
      { id: 'slow', neutral: true, us: 200_000 },
    ];
    for (const [compileMs, warmings] of [
      [0, 1],
      [1000, 3],
    ] as const) {
      const world = new World();
      world.compileMs = compileMs;
      await world.run(['a', 'b', 'c'].map((key) => world.decision(key, two)));
      // Of 350 ms, in works of 100 ms by the rules' choice alone.
      expect(world.log.filter((line) => line === 'time 1')).toHaveLength(4 * warmings);
      expect(world.log[1]).toBe('time 1');
    }
  });

  it('knows again only the same kernels, letter by letter', async () => {
    const candidates: Fake[] = [rule, { id: 'fast', neutral: false, us: 50 }];
    const first = new World();
    const { learned } = await first.run([first.decision('k', candidates)]);
    const by = async (list: readonly Fake[], known: TuningEntries, more: Partial<TuneOptions> = {}) => {
      const world = new World();
      return (await world.run([world.decision('k', list)], { known, ...more })).decisions[0]!;
    };
    expect(await by(candidates, learned)).toMatchObject({ by: 'cache', choice: 'fast', us: 50, ruleUs: 100 });
    expect((await by(candidates, learned, { again: true })).by).toBe('measured');
    // Kernels whose text has changed, another rule, a choice that is none any more, one that safe may not take.
    const [a, b] = candidates as [Fake, Fake];
    expect((await by([{ ...a, text: 'new' }, b], learned)).by).toBe('measured');
    expect((await by([a, { ...b, text: 'new' }], learned)).by).toBe('measured');
    expect((await by([b, a], learned)).by).toBe('measured');
    expect((await by([a, { ...b, id: 'else' }], learned)).by).toBe('measured');
    const entry = learned[entryName('full', 'k')]!;
    const safe = await by(candidates, { [entryName('safe', 'k')]: entry }, { mode: 'safe' });
    expect(safe).toMatchObject({ by: 'measured', choice: 'rule' });
  });

  it('ends when it is told to', async () => {
    const world = new World();
    const stop = new AbortController();
    const decisions = ['a', 'b', 'c'].map((key) => world.decision(key, [rule, { ...rule, id: 'x' }]));
    const onProgress = (done: number) => {
      if (done === 1) stop.abort();
    };
    await expect(world.run(decisions, { signal: stop.signal, onProgress })).rejects.toThrow();
    expect(world.log.filter((line) => line.startsWith('open'))).toEqual(['open a', 'open b']);
    expect(world.open).toBe(0);
  });
});

describe('median', () => {
  it('is the middle, or between the two', () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 2, 3])).toBe(2.5);
  });
});
