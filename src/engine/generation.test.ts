import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { GenerationStream } from './generation.js';
import type { WireEvent } from './messages.js';
import type { Delta } from './types.js';

function start(choices = 1): { stream: GenerationStream; wakes: () => number } {
  const stream = new GenerationStream({
    requestId: 'r',
    promptTokenIds: [1, 2],
    seed: 0,
    choices,
    receivedAt: 0,
    signal: undefined,
    onCancel: () => stream.end('cancelled', null),
  });
  stream.accept();
  let wakes = 0;
  stream.watch(() => wakes++);
  return { stream, wakes: () => wakes };
}

const end = (choice: number): WireEvent => ({
  request: 0,
  choice,
  ids: [9],
  text: '.',
  logprobs: null,
  finish: 'length',
  error: null,
  times: null,
  cached: 0,
});

describe('a reader that takes without waiting', () => {
  it('is woken once for what came, and gets it in one piece', async () => {
    const { stream, wakes } = start();
    expect(stream.take()).toBeNull();
    stream.receiveToken(0, 5, 'a');
    stream.receiveToken(0, 6, 'b');
    expect(wakes()).toBe(0);
    stream.tell();
    stream.tell();
    expect(wakes()).toBe(1);
    expect(stream.take()).toEqual({ choice: 0, text: 'ab', tokenIds: [5, 6], finishReason: null });
    expect(stream.take()).toBeNull();
    stream.receiveToken(0, 7, '');
    stream.receive(end(0));
    stream.tell();
    expect(wakes()).toBe(2);
    expect(stream.take()).toEqual({ choice: 0, text: '.', tokenIds: [7, 9], finishReason: 'length' });
    expect(stream.take()).toBeNull();
    // What comes after the end is nobody's.
    stream.receiveToken(0, 8, 'x');
    expect(stream.take()).toBeNull();
    expect((await stream.result).tokenIds).toEqual([5, 6, 7, 9]);
  });

  it('gets the choices one after another', () => {
    const { stream } = start(3);
    stream.receiveToken(2, 5, 'c');
    stream.receiveToken(0, 6, 'a');
    const deltas = [stream.take(), stream.take(), stream.take()];
    expect(deltas.map((delta) => delta?.choice)).toEqual([0, 2, undefined]);
  });

  it('hears of a cancellation and of a refusal', () => {
    const { stream, wakes } = start();
    stream.cancel();
    expect(wakes()).toBe(1);
    expect(stream.take()?.finishReason).toBe('cancelled');
    const other = start();
    other.stream.refuse(new KvantError('no', 'No.', { kind: 'invalid-request' }));
    expect(other.wakes()).toBe(1);
    expect(() => other.stream.take()).toThrow('No.');
  });

  it('is woken no more when it has gone', () => {
    const { stream, wakes } = start();
    stream.watch(null);
    stream.receiveToken(0, 5, 'a');
    stream.tell();
    expect(wakes()).toBe(0);
  });

  it('and one that iterates get the same', async () => {
    const { stream } = start();
    const seen: Delta[] = [];
    const reading = (async () => {
      for await (const delta of stream) seen.push(delta);
    })();
    await Promise.resolve();
    stream.receiveToken(0, 5, 'a');
    stream.tell();
    await new Promise((resolve) => setImmediate(resolve));
    stream.receive(end(0));
    stream.tell();
    await reading;
    expect(seen).toEqual([
      { choice: 0, text: 'a', tokenIds: [5], finishReason: null },
      { choice: 0, text: '.', tokenIds: [9], finishReason: 'length' },
    ]);
  });
});
