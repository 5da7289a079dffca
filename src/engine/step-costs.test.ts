import { describe, expect, it } from 'vitest';
import { FadingLine, StepCostModel } from './step-costs.js';

/** A step's time by the formula that the model has to find. */
const time = (rows: number, tokens: number): number =>
  2 + 0.1 * rows + (tokens > 0 ? 1.5 + 0.02 * tokens : 0);

describe('StepCostModel', () => {
  it('finds the costs of rows and tokens', () => {
    const model = new StepCostModel();
    for (let i = 0; i < 200; i++) model.add(1 + (i % 8), 0, time(1 + (i % 8), 0));
    for (let i = 0; i < 200; i++) model.add(i % 4, 32 + 16 * (i % 8), time(i % 4, 32 + 16 * (i % 8)));
    expect(model.fixed).toBeCloseTo(2, 6);
    expect(model.row).toBeCloseTo(0.1, 6);
    expect(model.chunk).toBeCloseTo(1.5, 6);
    expect(model.token).toBeCloseTo(0.02, 6);
  });

  it('follows prompts that grow dearer', () => {
    const model = new StepCostModel();
    for (let i = 0; i < 50; i++) model.add(4, 0, time(4, 0));
    let ms = 0;
    for (let i = 0; i < 400; i++) {
      ms = 256 * 0.01 * (1 + i / 100);
      model.add(4, 256, time(4, 0) + ms);
    }
    const foretold = model.chunk + 256 * model.token;
    expect(Math.abs(foretold - ms) / ms).toBeLessThan(0.1);
  });

  it('one slow step changes little, a lasting change is followed', () => {
    const model = new StepCostModel();
    for (let i = 0; i < 50; i++) model.add(8, 0, 3);
    model.add(8, 0, 400);
    expect(model.fixed + 8 * model.row).toBeLessThan(3.5);
    for (let i = 0; i < 200; i++) model.add(8, 0, 30);
    expect(model.fixed + 8 * model.row).toBeCloseTo(30, 0);
  });

  it('knows nothing before the first step, and takes chunks of one size for a proportion', () => {
    const model = new StepCostModel();
    expect(model).toMatchObject({ fixed: 0, row: 0, chunk: 0, token: 0 });
    model.add(0, 512, 10.24);
    expect(model.token).toBeCloseTo(0.02, 9);
    model.add(0, 512, Number.NaN);
    expect(model.token).toBeCloseTo(0.02, 9);
  });
});

describe('FadingLine', () => {
  it('keeps a part for the slope where old points say that there is none', () => {
    const line = new FadingLine(0.25);
    for (let i = 0; i < 30; i++) line.add(100 - i, 5 + i);
    const mean = line.at(85);
    expect(line.slope).toBeGreaterThan(0.2 * (mean / 85));
    expect(line.intercept).toBeGreaterThan(0);
    const equal = new FadingLine(0.25);
    for (let i = 0; i < 30; i++) equal.add(64, 8);
    expect([equal.slope, equal.intercept]).toEqual([0.125, 0]);
  });

  it('never falls and never starts below zero', () => {
    const falling = new FadingLine(0);
    for (let i = 1; i <= 20; i++) falling.add(i, 100 - i);
    expect(falling.slope).toBe(0);
    expect(falling.intercept).toBeGreaterThan(75);
    const steep = new FadingLine(0);
    for (let i = 1; i <= 20; i++) steep.add(i, i * i);
    expect(steep.intercept).toBe(0);
    expect(steep.slope).toBeGreaterThan(0);
  });
});
