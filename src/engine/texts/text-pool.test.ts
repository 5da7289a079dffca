import { afterEach, describe, expect, it } from 'vitest';
import { KvantError } from '../../errors.js';
import { SHORT_TEXT, type TextJob, TextPool, type TextPoolOptions } from './text-pool.js';

const MODULE = new URL('../../../test/engine/text-tasks.mjs', import.meta.url);
const MODEL = new URL('../../../models/demo-text', import.meta.url).pathname;
const LONG = SHORT_TEXT + 1;

describe('TextPool', () => {
  const pools: TextPool[] = [];
  afterEach(async () => {
    await Promise.all(pools.splice(0).map((pool) => pool.close()));
  });
  const open = (options: Partial<TextPoolOptions> = {}): TextPool => {
    const pool = new TextPool({ origin: { kind: 'folder', path: MODEL }, ...options });
    pools.push(pool);
    return pool;
  };
  const job = (task: string, argument: unknown = null, more: Partial<TextJob> = {}): TextJob => ({
    module: MODULE,
    task,
    argument,
    size: 100,
    ...more,
  });
  const refused = async (promise: Promise<unknown>): Promise<KvantError> => {
    const error: unknown = await promise.then(
      () => new Error('was not refused'),
      (reason: unknown) => reason,
    );
    if (error instanceof KvantError) return error;
    throw error;
  };

  it('runs tasks over the model’s text side', async () => {
    const pool = open();
    const [one, two] = await Promise.all([
      pool.run(job('echo', { a: [1, 'x'] })),
      pool.run(job('echo', 2, { size: LONG })),
    ]);
    expect(one).toEqual({ argument: { a: [1, 'x'] }, ids: expect.any(Array) });
    expect(two).toEqual({ ...(one as object), argument: 2 });
    const bytes = await pool.run<Uint8Array>(job('buffer', 3));
    expect([...bytes]).toEqual([7, 7, 7]);
    const sent = new Uint8Array([1, 2]);
    const { argument } = await pool.run<{ argument: Uint8Array }>(
      job('echo', sent, { transfer: [sent.buffer] }),
    );
    expect([[...argument], sent.byteLength]).toEqual([[1, 2], 0]);
  });

  it('stops what passes its budget, whether it asks or not, and goes on with the next', async () => {
    const pool = open({ budgetMs: () => 100 });
    const runs = ['patient', 'deaf', 'patient'].map((task) => refused(pool.run(job(task))));
    const last = pool.run(job('echo'));
    for (const run of runs)
      expect(await run).toMatchObject({ code: 'prompt-too-costly', kind: 'invalid-request' });
    expect(await last).toMatchObject({ argument: null });
  });

  it('ends what takes all memory, not the process', async () => {
    const pool = open({ budgetMs: () => 60_000, heapMb: 64 });
    expect(await refused(pool.run(job('greedy')))).toMatchObject({ code: 'prompt-too-costly' });
    expect(await pool.run(job('echo'))).toMatchObject({ argument: null });
  });

  it('tells what failed, and goes on', async () => {
    const pool = open();
    expect(await refused(pool.run(job('fail')))).toMatchObject({ code: 'internal', message: 'it is a bug' });
    expect(await refused(pool.run(job('exit')))).toMatchObject({ code: 'tokenizer-crashed' });
    expect(await refused(pool.run(job('echo', () => {})))).toMatchObject({ code: 'not-plain' });
    expect(await pool.run(job('echo'))).toMatchObject({ argument: null });
    // What is too deep is lost on the way, there or back, and that is told.
    for (const levels of [2_000, 4_000, 8_000, 16_000, 100_000])
      for (const deep of [job('echo', listsWithinLists(levels)), job('deep', levels)]) {
        const error = await refused(pool.run(deep).then(() => Promise.reject(fits)));
        if (error !== fits || levels === 100_000) expect(error).toMatchObject({ code: 'not-plain' });
      }
    expect(await pool.run(job('echo'))).toMatchObject({ argument: null });
    const missing = open({ origin: { kind: 'folder', path: '/nowhere' } });
    expect(await refused(missing.run(job('echo')))).toMatchObject({ code: 'tokenizer-missing' });
  });

  it('has a way past long texts for short ones', async () => {
    const pool = open();
    const long = pool.run(job('patient', null, { size: LONG }));
    long.catch(() => {});
    expect(await pool.run(job('echo', 'short'))).toMatchObject({ argument: 'short' });
    await pool.close();
    expect(await refused(long)).toMatchObject({ code: 'engine-closed' });
    expect(await refused(pool.run(job('echo')))).toMatchObject({ code: 'engine-closed' });
  });

  it('lets go of what is not wanted any more, waiting or under way', async () => {
    const pool = open();
    const controllers = [new AbortController(), new AbortController()];
    const [running, waiting] = controllers.map(({ signal }) => pool.run(job('patient', null, { signal })));
    const last = pool.run(job('echo'));
    for (const controller of controllers) controller.abort(new Error('gone'));
    await expect(waiting).rejects.toThrow('gone');
    await expect(running).rejects.toThrow('gone');
    expect(await last).toMatchObject({ argument: null });
    await expect(pool.run(job('echo', null, { signal: controllers[0]!.signal }))).rejects.toThrow('gone');
  });

  it('refuses what would wait behind too much, and says when to come again', async () => {
    const pool = open({ maxWaiting: 1000 });
    const controller = new AbortController();
    const held = pool.run(job('patient', null, { signal: controller.signal }));
    held.catch(() => {});
    // However large it is, one may wait.
    const first = pool.run(job('echo', 1, { size: 5000 }));
    const error = await refused(pool.run(job('echo', 2, { size: 10 })));
    expect(error).toMatchObject({ code: 'overloaded-texts', kind: 'overloaded' });
    expect(error.retryAfter).toBeGreaterThan(0);
    controller.abort();
    expect(await first).toMatchObject({ argument: 1 });
    expect(await pool.run(job('echo', 3))).toMatchObject({ argument: 3 });
  });

  it('ends a thread that has nothing to do, and starts another', async () => {
    const pool = open({ idleMs: 1 });
    for (let i = 0; i < 3; i++) {
      expect(await pool.run(job('echo', i))).toMatchObject({ argument: i });
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
  });
});

const listsWithinLists = (levels: number): unknown =>
  Array.from({ length: levels }).reduce<unknown>((inner) => [inner], null);

const fits = new KvantError('internal', 'It was not too deep.');
