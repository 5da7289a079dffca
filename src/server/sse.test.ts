import { describe, expect, it } from 'vitest';
import { dataEvent, type EventSource, sseStream } from './sse.js';

/** A source that is told what to say. */
class Scripted implements EventSource {
  waiting = '';
  over = false;
  closed = 0;
  reads = 0;
  wake: () => void = () => {};

  read(): string | null {
    this.reads++;
    if (this.waiting === '' && this.over) return null;
    const text = this.waiting;
    this.waiting = '';
    return text;
  }

  watch(wake: () => void): void {
    this.wake = wake;
  }

  close(): void {
    this.closed++;
  }

  say(text: string): void {
    this.waiting += text;
    this.wake();
  }
}

function start(keepAliveMs = 10_000) {
  const source = new Scripted();
  let ends = 0;
  const stream = sseStream(source, { keepAliveMs, onEnd: () => ends++ });
  const reader = stream.getReader();
  const read = async (): Promise<string | null> => {
    const { value, done } = await reader.read();
    return done ? null : new TextDecoder().decode(value);
  };
  return { source, reader, read, ends: () => ends };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('a stream of events', () => {
  it('gives each event to the reader that waits, and ends with the source', async () => {
    const { source, read, ends } = start();
    for (const text of ['one', 'zwei ü', '三']) {
      const got = read();
      await turn();
      source.say(dataEvent(text));
      expect(await got).toBe(`data: ${text}\n\n`);
    }
    source.over = true;
    expect(await read()).toBeNull();
    expect([source.closed, ends()]).toEqual([1, 1]);
  });

  it('takes nothing before it is asked, and then all there is at once', async () => {
    const { source, read, reader } = start();
    await turn();
    source.say('a');
    source.say('b');
    await turn();
    expect(source.reads).toBe(0);
    expect(await read()).toBe('ab');
    // The reader has it and asks for no more: what comes now waits.
    source.say('c');
    source.say('d');
    await turn();
    expect(source.waiting).toBe('cd');
    expect(await read()).toBe('cd');
    await reader.cancel();
  });

  it('tells once that the reader went away, and wakes do no harm then', async () => {
    const { source, reader, read, ends } = start();
    void read().catch(() => {});
    await reader.cancel();
    source.say('late');
    await turn();
    expect([source.closed, ends(), source.waiting]).toEqual([1, 1, 'late']);
  });

  it('comments into silence, as often as it lasts, and only to a reader that waits', async () => {
    const { source, read, reader } = start(5);
    expect(await read()).toBe(': keep-alive\n\n');
    expect(await read()).toBe(': keep-alive\n\n');
    // Nobody asks: nothing is piled up.
    await new Promise((resolve) => setTimeout(resolve, 40));
    source.say('x');
    const next = await read();
    expect(next === 'x' || next === ': keep-alive\n\n').toBe(true);
    await reader.cancel();
  });
});
