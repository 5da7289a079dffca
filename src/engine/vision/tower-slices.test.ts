/** Slices of towers between the steps of rows that decode. */
import { describe, expect, it } from 'vitest';
import type { Program, StepSlice } from '../../device/device.js';
import { StepInputs } from '../../device/step.js';
import { StepResult } from '../../device/step-result.js';
import { Turns } from './pace.js';
import { PartCosts } from './part-costs.js';
import { TowerSlices } from './tower-slices.js';

const inputs = (rows: number): StepInputs => {
  const step = new StepInputs(rows, 1, 1);
  step.tokenCount = rows;
  return step;
};

/** A device in name alone: it tells what is submitted. */
function scripted(trace: (StepSlice | 'step')[]): Program {
  const submit = async (_: StepInputs, slice?: StepSlice): Promise<StepResult> => {
    trace.push(slice!);
    return new StepResult(new Uint32Array(0), 0);
  };
  return { submit } as unknown as Program;
}

describe('slices of towers', () => {
  it('follow one another to the end, and each waits for a step of the rows that decode', async () => {
    const trace: (StepSlice | 'step')[] = [];
    const turns = new Turns();
    const slices = new TowerSlices();
    let done = false;
    const run = slices
      .run(scripted(trace), inputs(5000), { stepMs: 1e-9, targetMs: 0, turn: () => turns.wait() })
      .then(() => {
        done = true;
      });
    while (!done) {
      // However late the next step comes, there is one slice before it.
      for (let i = 0; i < 5; i++) await new Promise(setImmediate);
      if (done) break;
      trace.push('step');
      turns.give();
    }
    await run;
    const own = trace.filter((one): one is StepSlice => one !== 'step');
    expect(own[0]!.from).toBe(0);
    own.slice(1).forEach((slice, i) => {
      expect(slice.from).toBe(own[i]!.to);
    });
    expect(own.at(-1)).toMatchObject({ to: 64, of: 64 });
    expect(trace.length).toBe(2 * own.length - 1);
    for (let i = 1; i < trace.length; i += 2) expect(trace[i]).toBe('step');
  });

  it('are one where nobody decodes and the picture is of no great size', async () => {
    const trace: (StepSlice | 'step')[] = [];
    const idle = { stepMs: null, targetMs: 0, turn: () => new Promise<void>(() => {}) };
    await new TowerSlices().run(scripted(trace), inputs(4096), idle);
    expect(trace).toEqual([{ from: 0, to: 64, of: 64 }]);
    trace.length = 0;
    await new TowerSlices().run(scripted(trace), inputs(16_384), idle);
    expect(trace.length).toBeGreaterThan(1);
  });
});

/** Costs of launches that differ as those of large pictures do; the clock goes on by what a slice takes and by steps before it. */
function timed(of: number): { costs: number[]; now: () => number; slices: StepSlice[]; program: Program } {
  const clock = { ms: 0 };
  const slices: StepSlice[] = [];
  // Two of five parts are empty, one is far longer than the others.
  const costs = Array.from({ length: of }, (_, i) => [0, 5, 0.2, 0, 0.6][i % 5]!);
  const submit = async (_: StepInputs, slice?: StepSlice): Promise<StepResult> => {
    slices.push(slice!);
    clock.ms += costs.slice(slice!.from, slice!.to).reduce((sum, ms) => sum + ms, 0);
    return new StepResult(new Uint32Array(0), 0);
  };
  return { costs, now: () => clock.ms, slices, program: { submit } as unknown as Program };
}

describe('slices of pictures of many rows', () => {
  const idle = { stepMs: null, targetMs: 0, turn: async () => {} };
  const beside = { stepMs: 7, targetMs: 0, turn: async () => {} };
  const rows = 65_536;

  it('are no longer than a step, once parts are known, and few', async () => {
    const { costs, now, slices, program } = timed(1024);
    const tower = new TowerSlices(now);
    await tower.run(program, inputs(rows), idle);
    expect(slices.length).toBe(1024);
    for (let again = 0; again < 3; again++) {
      slices.length = 0;
      await tower.run(program, inputs(rows), beside);
      const took = slices.map(({ from, to }) => costs.slice(from, to).reduce((sum, ms) => sum + ms, 0));
      expect(Math.max(...took)).toBeLessThanOrEqual(7);
      // One long part, and what of the short ones fits beside it.
      expect(slices.length).toBeLessThanOrEqual(1024 / 5 + 2);
    }
  });

  it('are no longer than a quarter of what rows may wait, and cost the picture little', async () => {
    const { costs, now, slices, program } = timed(1024);
    const tower = new TowerSlices(now);
    await tower.run(program, inputs(rows), idle);
    const all = costs.reduce((sum, ms) => sum + ms, 0);
    const with6 = async (targetMs: number): Promise<{ longest: number; beside: number }> => {
      slices.length = 0;
      let turns = 0;
      const pace = { stepMs: 6, targetMs, turn: async () => void turns++ };
      await tower.run(program, inputs(rows), pace);
      const took = slices.map(({ from, to }) => costs.slice(from, to).reduce((sum, ms) => sum + ms, 0));
      expect(turns).toBe(slices.length);
      return { longest: Math.max(...took), beside: (all + turns * 6) / all };
    };
    const short = await with6(0);
    expect(short.longest).toBeLessThanOrEqual(6);
    expect(short.beside).toBeGreaterThan(2);
    const quarter = await with6(100);
    expect(quarter.longest).toBeLessThanOrEqual(25);
    expect(quarter.beside).toBeLessThan(1.4);
    // A step that is longer than that is what rows wait for as well.
    expect((await with6(12)).longest).toBe(short.longest);
  });

  it('are cut so for fewer rows too', async () => {
    for (const [targetMs, least, most] of [
      [0, 6, 64],
      [100, 2, 4],
    ] as const) {
      const { now, slices, program } = timed(64);
      const tower = new TowerSlices(now);
      await tower.run(program, inputs(4096), { ...idle });
      expect(slices).toHaveLength(1);
      slices.length = 0;
      await tower.run(program, inputs(4096), { ...beside, targetMs });
      expect(slices.length).toBeGreaterThanOrEqual(least);
      expect(slices.length).toBeLessThanOrEqual(most);
    }
  });

  it('are two parts while nothing is known of so many rows', async () => {
    const { slices, program, now } = timed(1024);
    const tower = new TowerSlices(now);
    await tower.run(program, inputs(rows), idle);
    slices.length = 0;
    await tower.run(program, inputs(rows - 4), beside);
    expect(slices).toEqual(Array.from({ length: 512 }, (_, i) => ({ from: 2 * i, to: 2 * i + 2, of: 1024 })));
  });

  it('learn what a part takes within the bounds of what was seen', () => {
    const costs = new PartCosts(4);
    costs.learn(100, 0, 2, 2, 6);
    costs.learn(100, 2, 4, 1, 1);
    // 2, 2, 0.5, 0.5
    expect(costs.end(100, 0, 4.5, 1)).toBe(3);
    // Between the bounds nothing moves; above them it is brought down, below them up.
    costs.learn(100, 0, 2, 1, 20);
    expect(costs.end(100, 0, 4.5, 1)).toBe(3);
    costs.learn(100, 0, 2, 8, 20);
    expect(costs.end(100, 0, 4.5, 1)).toBe(1);
    costs.learn(100, 0, 2, 0, 1);
    expect(costs.end(100, 0, 2, 1)).toBe(4);
    expect(costs.end(101, 1, 100, 2)).toBe(3);
  });
});
