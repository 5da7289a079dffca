import { describe, expect, it } from 'vitest';
import { timingsOf } from './timings.js';

describe('timingsOf', () => {
  it('takes the earliest start and first token, the latest end', () => {
    const timings = timingsOf(
      1000,
      [
        { times: { started: 1010, firstToken: 1060, finished: 1160 }, tokens: 6 },
        { times: { started: 1030, firstToken: 1080, finished: 1260 }, tokens: 11 },
      ],
      200,
    );
    expect(timings).toEqual({
      queueMs: 10,
      prefillMs: 50,
      ttftMs: 60,
      decodeMs: 200,
      totalMs: 260,
      prefillTokensPerSecond: 4000,
      decodeTokensPerSecond: 75,
    });
  });

  it('is 0 for what did not happen', () => {
    const timings = timingsOf(1000, [{ times: { started: 0, firstToken: 0, finished: 1005 }, tokens: 0 }], 9);
    expect(timings).toMatchObject({
      queueMs: 0,
      ttftMs: 0,
      decodeMs: 0,
      totalMs: 5,
      decodeTokensPerSecond: 0,
    });
  });
});
