import { stripVTControlCharacters } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { formatBytes, ProgressBar } from './progress.js';

function terminal(isTTY: boolean, columns = 80): { out: NodeJS.WriteStream; written: string[] } {
  const written: string[] = [];
  const write = (text: string): boolean => written.push(stripVTControlCharacters(text)) > 0;
  return { out: { isTTY, columns, write } as unknown as NodeJS.WriteStream, written };
}

describe('the progress bar', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['performance', 'setInterval', 'clearInterval'] });
    // Times since the start of the process are never zero.
    vi.advanceTimersByTime(1000);
  });
  afterEach(() => {
    vi.useRealTimers();
  });
  const loading = { label: 'Loading', done: 512, total: 2048, unit: 'bytes', item: 'layer.1' };

  it('says nothing about what is over in a moment', () => {
    for (const tty of [true, false]) {
      const { out, written } = terminal(tty);
      const bar = new ProgressBar(out);
      bar.update(loading);
      vi.advanceTimersByTime(200);
      bar.done();
      vi.advanceTimersByTime(5000);
      expect(written).toEqual([]);
    }
  });

  it('draws one line on a terminal, now and then, and clears it', () => {
    const { out, written } = terminal(true, 120);
    const bar = new ProgressBar(out);
    bar.update(loading);
    vi.advanceTimersByTime(2000);
    expect(written.every((line) => /^\rLoading {4}█{6}░{18} {2}25 % 512 B of 2\.0 KiB/.test(line))).toBe(
      true,
    );
    expect(written.length).toBeGreaterThan(2);
    expect(written.at(-1)).toMatch(/256 B\/s, 6 s left {2}layer\.1$/);
    const before = written.length;
    for (let i = 0; i < 100; i++) bar.update({ ...loading, done: 600 + i });
    expect(written.length).toBe(before);
    bar.done();
    expect(written.at(-1)).toBe('\r');
    bar.done();
    vi.advanceTimersByTime(2000);
    expect(written.length).toBe(before + 1);
  });

  it('makes room for a line of a log, and goes on below it', () => {
    const { out, written } = terminal(true);
    const bar = new ProgressBar(out);
    bar.clear();
    expect(written).toEqual([]);
    bar.update(loading);
    vi.advanceTimersByTime(600);
    const before = written.length;
    bar.clear();
    bar.clear();
    expect(written.slice(before)).toEqual(['\r']);
    vi.advanceTimersByTime(600);
    expect(written.at(-1)).toContain('Loading');
    bar.done();
    expect(written.at(-1)).toBe('\r');
  });

  it('counts what is done of all, and nothing before the first', () => {
    const { out, written } = terminal(true);
    const bar = new ProgressBar(out);
    const preparing = { label: 'Preparing', done: 0, total: 12, unit: 'plans' };
    bar.update(preparing);
    vi.advanceTimersByTime(600);
    bar.update({ ...preparing, total: 0 });
    vi.advanceTimersByTime(600);
    expect(written.length).toBeGreaterThan(1);
    for (const line of written) expect(line).not.toMatch(/\b0 (of|plans)|plans/);
    bar.update({ ...preparing, done: 8 });
    vi.advanceTimersByTime(600);
    expect(written.at(-1)).toContain('66 % 8 of 12 plans');
    bar.update({ ...preparing, done: 8, total: 0 });
    vi.advanceTimersByTime(600);
    expect(written.at(-1)).toMatch(/Preparing {2}8 plans/);
    bar.done();
  });

  it('never breaks the line of a terminal', () => {
    const { out, written } = terminal(true, 40);
    const bar = new ProgressBar(out);
    bar.update({ ...loading, item: 'x'.repeat(200) });
    vi.advanceTimersByTime(600);
    expect(written.length).toBeGreaterThan(0);
    for (const line of written) expect(line.replace('\r', '').length).toBeLessThan(40);
    bar.done();
  });

  it('writes one line for each phase elsewhere, without control characters', () => {
    const { out, written } = terminal(false);
    const bar = new ProgressBar(out);
    bar.update(loading);
    vi.advanceTimersByTime(5000);
    bar.update({ label: 'Preparing', done: 0, total: 0, unit: 'plans' });
    vi.advanceTimersByTime(5000);
    bar.done();
    expect(written).toEqual(['Loading …\n', 'Preparing …\n']);
  });

  it('writes sizes as people do', () => {
    expect([0, 1023, 1024, 15 * 1024, 1.5 * 2 ** 30, 2 ** 60].map(formatBytes)).toEqual([
      '0 B',
      '1023 B',
      '1.0 KiB',
      '15 KiB',
      '1.5 GiB',
      '1048576 TiB',
    ]);
  });
});
