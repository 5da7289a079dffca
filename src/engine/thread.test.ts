import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import type { KvantError } from '../errors.js';
import { endOf, takeThread } from './thread.js';
import { workerTransport } from './transport.js';

const script = (text: string): URL => new URL(`data:text/javascript,${encodeURIComponent(text)}`);

describe('a thread that ends before anybody listens to it', () => {
  it.each([
    ['throws', "throw new Error('no room')", 'no room'],
    ['exits', 'process.exit(3)', 'exit code 3'],
  ])('%s: whoever takes it over is told', async (_, text, what) => {
    const worker = await takeThread(script(text));
    expect(endOf(worker)).toBeNull();
    await new Promise((resolve) => worker.once('exit', resolve));
    expect(endOf(worker)!.what).toBe(what);
    const error = await new Promise<KvantError>((resolve) => {
      workerTransport({ onMessage: () => {}, onCrash: resolve }, worker);
    });
    expect(error).toMatchObject({ code: 'engine-crashed', message: expect.stringContaining(what) });
  });

  it.each([
    ['its script', new URL('file:///nowhere/engine/worker.js')],
    ['a file that its script imports', script("import 'file:///nowhere/engine/host.js';")],
  ])('%s is not there: that is said, with what to do', async (_, missing) => {
    const worker = await takeThread(missing);
    const error = await new Promise<KvantError>((resolve) => {
      workerTransport({ onMessage: () => {}, onCrash: resolve }, worker);
    });
    expect(error).toMatchObject({
      code: 'package-incomplete',
      message: expect.stringContaining('/nowhere/engine/'),
      fix: expect.stringContaining('mark kvant as external'),
    });
  });

  it('says so once where it is listened to', async () => {
    const worker = await takeThread(script("throw new Error('later')"));
    let told = 0;
    workerTransport({ onMessage: () => {}, onCrash: () => told++ }, worker);
    await once(worker, 'exit').catch(() => {});
    await new Promise((resolve) => setImmediate(resolve));
    expect(told).toBe(1);
  });
});
