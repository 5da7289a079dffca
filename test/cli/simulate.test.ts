import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { kvant } from './kvant.js';

describe('kvant simulate', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-simulate-'));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true });
  });

  it('plays a trace: a table, numbers, and a plot', async () => {
    const trace = join(folder, 'trace.jsonl');
    const plot = join(folder, 'plot.svg');
    const lines = Array.from({ length: 40 }, (_, i) =>
      JSON.stringify({
        at: i / 20,
        prompt: 30 * (i + 1),
        generate: 20,
        priority: i % 2,
        key: i % 3 ? 'a' : 'b',
      }),
    );
    await writeFile(trace, `${lines.join('\n')}\n\n`);
    const { code, stdout } = await kvant(['simulate', trace, '--max-rows', '4', '--plot', plot]);
    expect(code).toBe(0);
    for (const part of ['40 requests', 'priority 1', 'key a', 'prompt below 1024', 'between two tokens'])
      expect(stdout).toContain(part);
    const svg = await readFile(plot, 'utf8');
    expect(svg.startsWith('<svg')).toBe(true);
    expect(svg).toContain('first token, p99');
    const numbers = JSON.parse((await kvant(['simulate', trace, '--max-rows', '4', '--json'])).stdout);
    expect(numbers).toMatchObject({ requests: 40, preemptions: 0 });
    expect(numbers.groups[0]).toMatchObject({ name: 'all', done: 40, refused: 0, late: 0 });
    expect(numbers.groups[0].ttftMs.max).toBeLessThan(numbers.ttftBoundMs);
  });

  it('makes arrivals up, the same ones for the same seed', async () => {
    const args = [
      'simulate',
      '--requests',
      '300',
      '--load',
      '3',
      '--priorities=-1,4',
      '--max-queue',
      '10',
      '--json',
    ];
    const [one, again, other] = await Promise.all([
      kvant(args),
      kvant(args),
      kvant([...args, '--seed', '2', '--machine', 'cpu']),
    ]);
    expect(one.stdout).toBe(again.stdout);
    expect(one.stdout).not.toBe(other.stdout);
    const { groups, served, capacity } = JSON.parse(one.stdout);
    expect(groups[0].refused).toBeGreaterThan(50);
    expect(groups[0].done + groups[0].refused).toBe(300);
    // The first and the last of so few find the machine half empty.
    expect(served / capacity).toBeGreaterThan(0.75);
    // −1 before 4, as numbers go.
    expect(groups.slice(1, 3).map(({ name }: { name: string }) => name)).toEqual([
      'priority -1',
      'priority 4',
    ]);
  });

  it('says what is wrong with a trace or a flag', async () => {
    const bad = join(folder, 'bad.jsonl');
    await writeFile(bad, '{"at": 0, "prompt": 3, "generate": 1}\n{"at": 1, "prompt": 0, "generate": 1}\n');
    const { code, stderr } = await kvant(['simulate', bad]);
    expect(code).not.toBe(0);
    expect(stderr).toContain('Line 2');
    expect((await kvant(['simulate', join(folder, 'none.jsonl')])).stderr).toContain('cannot be read');
    expect((await kvant(['simulate', '--costs', '1,2'])).stderr).toContain('Four or five numbers');
    expect((await kvant(['simulate', '--kv-tokens', '64'])).stderr).toContain('--kv-tokens');
  });
});
