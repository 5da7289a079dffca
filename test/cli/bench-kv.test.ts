import { describe, expect, it } from 'vitest';
import type { BenchKvReport } from '../../src/cli/bench/kv-report.js';
import { kvant } from './kvant.js';

const small = ['bench', 'kv', '--shapes', 'demo', '--vocab', '256', '--device', 'cpu', '--threads', '1'];

describe('kvant bench kv', () => {
  it('measures decoding, attention and prefill of every format in turns', { timeout: 120_000 }, async () => {
    const { code, stdout } = await kvant([
      ...small,
      ...['--formats', 'f16,f32', '--rows', '3', '--context', '100', '--steps', '4', '--rounds', '2'],
      ...['--prefill', '70', '--max-batch-tokens', '32', '--json'],
    ]);
    expect(code).toBe(0);
    const report = JSON.parse(stdout) as BenchKvReport;
    expect(report).toMatchObject({ model: 'demo', rows: 3, context: 100, chunk: 32, prefillTokens: 70 });
    for (const rate of report.readBandwidth) expect(rate).toBeGreaterThan(0);
    const [f16, f32] = report.formats;
    // 8 layers of K and V, 2 heads of 128.
    expect([f16!.bytesPerToken, f32!.bytesPerToken]).toEqual([8 * 2 * 2 * 256, 8 * 2 * 2 * 512]);
    for (const { decode, attention, prefill } of report.formats) {
      expect(decode.samplesMs).toHaveLength(2);
      expect(attention.samplesMs).toHaveLength(2);
      expect(prefill!.samplesSeconds).toHaveLength(2);
      for (const n of [decode.stepMs, attention.ms, prefill!.tokensPerSecond]) expect(n).toBeGreaterThan(0);
    }
    expect(Math.max(f16!.decode.ratio!, f32!.decode.ratio!)).toBe(1);
  });

  it('says what it needs before it loads anything', async () => {
    const error = async (...args: string[]): Promise<object> =>
      JSON.parse((await kvant([...args, '--json'])).stdout).error;
    expect(await error('bench', 'kv')).toMatchObject({ code: 'invalid-flags' });
    expect(await error(...small, '--formats', 'q4')).toMatchObject({ code: 'kv-format-unknown' });
    expect(await error(...small, '--formats', 'affine4:odd')).toMatchObject({ where: '--formats' });
    expect(await error(...small, '--kv-bits', '4')).toMatchObject({ where: 'kvBits' });
    expect(await error(...small, '--context', '64', '--prefill', '65')).toMatchObject({ where: '--context' });
  });
});
