import { Writable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { createLogger } from './log.js';
import { LogSink, neverBlock, written } from './log-sink.js';

/** A reader that takes what it is told to take. */
class Reader extends Writable {
  readonly isTTY: boolean;
  text = '';
  #open = false;
  #taken: (() => void) | null = null;

  constructor(isTTY = false) {
    super({ decodeStrings: false });
    this.isTTY = isTTY;
  }

  override _write(chunk: string, _: unknown, done: () => void): void {
    const take = (): void => {
      this.text += chunk;
      this.#taken = null;
      done();
    };
    if (this.#open) take();
    else this.#taken = take;
  }

  /** Takes all there is, and what comes. */
  async open(): Promise<void> {
    this.#open = true;
    this.#taken?.();
    await written([this], 1000);
  }

  shut(): void {
    this.#open = false;
  }
}

describe('LogSink', () => {
  it('never waits, drops what passes the bound, and says how much once there is room', async () => {
    const reader = new Reader();
    const sink = new LogSink(reader, (count) => `${count} missing\n`, 100);
    for (let i = 0; i < 50; i++) sink.write(`line ${String(i).padStart(4, '0')}\n`);
    expect([reader.text, reader.writableLength, sink.dropped]).toEqual(['', 100, 40]);
    await reader.open();
    sink.write('after\n');
    await written([reader], 1000);
    expect(sink.dropped).toBe(0);
    const lines = reader.text.trim().split('\n');
    expect(lines.slice(9)).toEqual(['line 0009', '40 missing', 'after']);
  });

  it('tells of a second gap by itself', async () => {
    const reader = new Reader();
    const sink = new LogSink(reader, (count) => `${count} missing\n`, 20);
    for (let round = 0; round < 2; round++) {
      reader.shut();
      for (let i = 0; i < 4; i++) sink.write('0123456789');
      await reader.open();
      sink.write('');
      await written([reader], 1000);
    }
    expect(reader.text).toBe('01234567890123456789' + '2 missing\n' + '01234567890123456789' + '2 missing\n');
  });

  it('gives up on a reader that takes nothing', async () => {
    const reader = new Reader();
    expect(await written([reader], 1)).toBe(true);
    reader.write('x');
    expect(await written([reader], 20)).toBe(false);
  });

  it('asks terminals alone not to block', () => {
    for (const isTTY of [true, false]) {
      const asked: boolean[] = [];
      const handle = { setBlocking: (on: boolean) => asked.push(on) };
      neverBlock({ isTTY, _handle: handle } as unknown as NodeJS.WriteStream);
      expect(asked).toEqual(isTTY ? [false] : []);
    }
  });
});

describe('createLogger', () => {
  const HOSTILE = 'a\u001b]0;owned\u0007\u009b2J\u202eb\nc 12:00:00 ERROR forged\ud800';
  const logged = async (isTTY: boolean, write: (log: ReturnType<typeof createLogger>) => void) => {
    const reader = new Reader(isTTY);
    write(createLogger('info', reader));
    await reader.open();
    return reader.text;
  };

  it.each([true, false])('prints nothing that a terminal obeys (terminal: %s)', async (isTTY) => {
    const text = await logged(isTTY, (log) =>
      log.info({ path: HOSTILE, deep: { [HOSTILE]: [HOSTILE] } }, HOSTILE),
    );
    expect(text).toMatch(/^[\x20-\x7e]+\n$/);
    if (!isTTY)
      expect(JSON.parse(text)).toMatchObject({ msg: HOSTILE, path: HOSTILE, deep: { [HOSTILE]: [HOSTILE] } });
  });

  it.each([true, false])('cuts what is huge (terminal: %s)', async (isTTY) => {
    const huge = 'x'.repeat(900_000);
    const text = await logged(isTTY, (log) => {
      log.info({ path: huge }, huge);
      log.info({ ids: Array.from({ length: 100_000 }, (_, i) => i) }, 'many');
    });
    expect(text.length).toBeLessThan(10_000);
    expect(text).toContain('(900000 characters)');
    expect(text).toContain('many');
  });

  it('says in its own form how many lines are missing', async () => {
    const reader = new Reader();
    const log = createLogger('info', reader, 1000);
    for (let i = 0; i < 100; i++) log.info({ i }, 'entry');
    await reader.open();
    log.info('after');
    await written([reader], 1000);
    const lines = reader.text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    const told = lines.at(-2)!;
    expect(told).toMatchObject({ level: 40, dropped: 100 - (lines.length - 2) });
    expect(lines.at(-1)).toMatchObject({ msg: 'after' });
  });
});
