import { describe, expect, it } from 'vitest';
import { TextQueue } from './text-queue.js';

interface Job {
  readonly name: string;
  readonly size: number;
  readonly share: string;
}
const job = (name: string, size: number, share = ''): Job => ({ name, size, share });
const drain = (queue: TextQueue<Job>): string => {
  let names = '';
  for (let next = queue.take(); next !== undefined; next = queue.take()) names += next.name;
  return names;
};

describe('TextQueue', () => {
  it('takes equal ones in the order in which they came', () => {
    const queue = new TextQueue<Job>();
    for (const name of 'abc') queue.add(job(name, 1000), 0);
    expect([queue.length, queue.size]).toEqual([3, 3000]);
    expect(drain(queue)).toBe('abc');
    expect([queue.length, queue.size]).toEqual([0, 0]);
  });

  it('takes a short one before long ones that came a little earlier, not before those that waited', () => {
    const queue = new TextQueue<Job>();
    queue.add(job('A', 900_000), 0);
    queue.add(job('B', 900_000), 1);
    queue.add(job('c', 10_000), 100);
    expect(drain(queue)).toBe('cAB');
    queue.add(job('A', 900_000), 0);
    queue.add(job('c', 10_000), 60_000);
    expect(drain(queue)).toBe('Ac');
  });

  it('shares evenly between senders, by what their texts take', () => {
    const queue = new TextQueue<Job>();
    for (let i = 0; i < 24; i++) queue.add(job('A', 1000, 'one'), 0);
    for (let i = 0; i < 2; i++) queue.add(job('b', 1000, 'two'), 50);
    queue.add(job('C', 3000, 'three'), 90);
    expect(drain(queue).slice(0, 7)).toMatch(/^AbC(Ab|bA)AA/);
  });

  it('counts what was had only among those who waited at the same time', () => {
    const queue = new TextQueue<Job>();
    for (let i = 0; i < 3; i++) queue.add(job('A', 1000, 'one'), i);
    queue.take();
    queue.take();
    // Who comes now does not get all turns until it has had as much.
    for (let i = 0; i < 3; i++) queue.add(job('b', 1000, 'two'), 10);
    queue.add(job('A', 1000, 'one'), 11);
    expect(drain(queue)).toMatch(/^(Ab|bA)(Ab|bA)b$/);
  });

  it('lets go of one that is not wanted any more', () => {
    const queue = new TextQueue<Job>();
    const [a, b] = [job('a', 10), job('b', 20)];
    queue.add(a, 0);
    queue.add(b, 0);
    expect([queue.remove(a), queue.remove(a), queue.length, queue.size]).toEqual([true, false, 1, 20]);
    expect(drain(queue)).toBe('b');
    expect(queue.remove(b)).toBe(false);
  });
});
