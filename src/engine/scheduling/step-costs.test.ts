import { describe, expect, it } from 'vitest';
import { uniform } from './arrivals.js';
import { FadingLine, StepCostModel } from './step-costs.js';

/** A step's time by the formula that the model has to find. */
const time = (rows: number, tokens: number, depth: number): number =>
  2 + 0.1 * rows + (tokens > 0 ? 1.5 + 0.02 * tokens + 0.004 * depth : 0);

function settled(): StepCostModel {
  const model = new StepCostModel();
  for (let i = 0; i < 100; i++) model.add(1 + (i % 8), 0, 0, time(1 + (i % 8), 0, 0));
  return model;
}

describe('StepCostModel', () => {
  it('finds the costs of rows, chunks, tokens and the tokens before them', () => {
    const model = settled();
    const random = uniform(4);
    for (let i = 0; i < 400; i++) {
      const tokens = 16 + Math.floor(500 * random());
      const depth = (tokens * 8000 * random()) / 1000;
      const rows = Math.floor(9 * random());
      model.add(rows, tokens, depth, time(rows, tokens, depth));
    }
    expect(model.fixed).toBeCloseTo(2, 6);
    expect(model.row).toBeCloseTo(0.1, 6);
    expect(model.chunk).toBeCloseTo(1.5, 2);
    expect(model.token).toBeCloseTo(0.02, 4);
    expect(model.depth).toBeCloseTo(0.004, 4);
  });

  it('a prompt computed alone tells what smaller chunks of it, and deeper ones, will take', () => {
    const model = settled();
    // Prompts of several lengths, in chunks of the budget and what is left.
    for (const prompt of [300, 9000, 700, 20_000, 512])
      for (let at = 0; at < prompt; at += 2048) {
        const tokens = Math.min(2048, prompt - at);
        const depth = (tokens * (at + tokens / 2)) / 1000;
        model.add(0, tokens, depth, time(0, tokens, depth));
      }
    for (const [tokens, position] of [
      [64, 1000],
      [512, 0],
      [512, 30_000],
      [128, 30_000],
    ] as const) {
      const depth = (tokens * (position + tokens / 2)) / 1000;
      const foretold = model.chunk + model.token * tokens + model.depth * depth;
      const took = time(0, tokens, depth) - 2;
      expect(Math.abs(foretold / took - 1)).toBeLessThan(0.15);
    }
  });

  it('keeps tokens dear where all chunks are alike', () => {
    const model = settled();
    for (let i = 0; i < 200; i++) model.add(4, 64, 64 * 30, time(4, 64, 64 * 30));
    const foretold = model.chunk + model.token * 64 + model.depth * 64 * 30;
    expect(foretold / (time(4, 64, 64 * 30) - time(4, 0, 0))).toBeCloseTo(1, 1);
    expect(model.token).toBeGreaterThan(0);
  });

  it('one slow step changes little, a lasting change is followed', () => {
    const model = new StepCostModel();
    for (let i = 0; i < 50; i++) model.add(8, 0, 0, 3);
    model.add(8, 0, 0, 400);
    expect(model.fixed + 8 * model.row).toBeLessThan(3.5);
    for (let i = 0; i < 200; i++) model.add(8, 0, 0, 30);
    expect(model.fixed + 8 * model.row).toBeCloseTo(30, 0);
    for (let i = 0; i < 100; i++) model.add(8, 256, 0, 30 + 10);
    model.add(8, 256, 0, 1000);
    expect(model.chunk + 256 * model.token).toBeLessThan(14);
    for (let i = 0; i < 100; i++) model.add(8, 256, 0, 30 + 20);
    expect(model.chunk + 256 * model.token).toBeCloseTo(20, 0);
  });

  it('knows nothing before the first step', () => {
    const model = new StepCostModel();
    expect(model).toMatchObject({ fixed: 0, row: 0, chunk: 0, token: 0, depth: 0 });
    model.add(0, 512, 131, Number.NaN);
    expect(model.token).toBe(0);
    model.add(0, 512, 131, 10);
    const foretold = model.chunk + 512 * model.token + 131 * model.depth;
    expect(foretold).toBeGreaterThan(9);
    expect(foretold).toBeLessThan(11);
  });
});

describe('FadingLine', () => {
  it('never falls and never starts below zero', () => {
    const falling = new FadingLine();
    for (let i = 1; i <= 20; i++) falling.add(i, 100 - i);
    expect(falling.slope).toBe(0);
    expect(falling.intercept).toBeGreaterThan(75);
    const steep = new FadingLine();
    for (let i = 1; i <= 20; i++) steep.add(i, i * i);
    expect(steep.intercept).toBe(0);
    expect(steep.slope).toBeGreaterThan(0);
  });
});
