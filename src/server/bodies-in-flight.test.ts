import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { BodiesInFlight, SMALL_BODY } from './bodies-in-flight.js';

const MB = 1_000_000;

function refused(run: () => unknown): KvantError {
  try {
    run();
  } catch (error) {
    if (error instanceof KvantError) return error;
    throw error;
  }
  throw new Error('was taken');
}

describe('BodiesInFlight', () => {
  it('has room for so many bytes, and again when they are gone', () => {
    const bodies = new BodiesInFlight(10 * MB);
    const held = Array.from({ length: 10 }, (_, i) => bodies.open(MB, `sender ${i}`));
    expect(bodies.held).toBe(10 * MB);
    const error = refused(() => bodies.open(MB, 'another'));
    expect(error).toMatchObject({ code: 'bodies-in-flight', kind: 'overloaded' });
    expect(error.retryAfter).toBeGreaterThan(0);
    held[0]!.release();
    held[0]!.release();
    expect(bodies.held).toBe(9 * MB);
    held.push(bodies.open(MB, 'another'));
    for (const body of held) body.release();
    expect(bodies.held).toBe(0);
  });

  it('keeps room for small ones, whatever large ones there are', () => {
    const bodies = new BodiesInFlight(4 * MB);
    for (let i = 0; i < 4; i++) bodies.open(MB, `${i}`);
    refused(() => bodies.open(SMALL_BODY + 1, 'a'));
    const small = Array.from({ length: 15 }, () => bodies.open(SMALL_BODY, 'a'));
    refused(() => bodies.open(SMALL_BODY, 'b'));
    bodies.open(10, 'b');
    for (const body of small) body.release();
    expect(bodies.held).toBe(4 * MB + 10);
  });

  it('leaves half to other senders', () => {
    const bodies = new BodiesInFlight(10 * MB);
    for (let i = 0; i < 5; i++) bodies.open(MB, 'greedy');
    refused(() => bodies.open(MB, 'greedy'));
    for (let i = 0; i < 5; i++) bodies.open(MB, `${i}`).release();
    bodies.open(MB, 'modest');
  });

  it('takes one that is alone, however large it is', () => {
    const bodies = new BodiesInFlight(MB);
    const only = bodies.open(16 * MB, 'a');
    refused(() => bodies.open(MB, 'b'));
    bodies.open(1000, 'b');
    only.release();
    expect(bodies.held).toBe(1000);
    bodies.open(MB, 'a');
  });

  it('counts what comes where nobody says how much it is', () => {
    const bodies = new BodiesInFlight(4 * MB);
    const body = bodies.open(Number.NaN, 'a');
    expect(bodies.held).toBe(0);
    body.grow(1000);
    expect(bodies.held).toBe(1000);
    body.grow(MB);
    expect(bodies.held).toBeGreaterThanOrEqual(MB);
    const other = bodies.open(2 * MB, 'b');
    const held = bodies.held;
    refused(() => body.grow(3 * MB));
    expect(bodies.held).toBe(held);
    other.release();
    body.grow(3 * MB);
    body.release();
    body.grow(9 * MB);
    expect(bodies.held).toBe(0);
  });

  it('counts what a compressed body is inflated to', () => {
    const bodies = new BodiesInFlight(4 * MB);
    bodies.open(2 * MB, 'b');
    const body = bodies.open(2000, 'a');
    body.grow(MB);
    expect(bodies.held).toBeGreaterThanOrEqual(3 * MB);
    refused(() => body.grow(3 * MB));
    body.release();
    expect(bodies.held).toBe(2 * MB);
  });
});
