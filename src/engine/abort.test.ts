import { getEventListeners } from 'node:events';
import { describe, expect, it } from 'vitest';
import { onAbort } from './abort.js';

describe('onAbort', () => {
  it('calls everybody who still waits, with one listener between them', () => {
    const controller = new AbortController();
    const { signal } = controller;
    const called: number[] = [];
    const releases = Array.from({ length: 20 }, (_, i) => onAbort(signal, () => called.push(i)));
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    for (const release of releases.slice(2)) release();
    releases[5]!();
    controller.abort();
    expect(called).toEqual([0, 1]);
    for (const release of releases) release();
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });

  it('leaves nothing behind when all have gone, and begins anew', () => {
    const controller = new AbortController();
    onAbort(controller.signal, () => expect.unreachable())();
    expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0);
    let called = 0;
    onAbort(controller.signal, () => called++);
    controller.abort();
    expect(called).toBe(1);
  });

  it('lets a call release itself and others while it runs', () => {
    const controller = new AbortController();
    const releases: (() => void)[] = [];
    let called = 0;
    const call = (): void => {
      called++;
      for (const release of releases) release();
    };
    releases.push(onAbort(controller.signal, call));
    releases.push(onAbort(controller.signal, () => called++));
    controller.abort();
    expect(called).toBe(1);
  });
});
