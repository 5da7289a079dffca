import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { packEvents } from './messages.js';
import type { ChoiceEvent } from './sequence.js';

const token = (request: number, choice: number, id: number, text: string): ChoiceEvent => ({
  request,
  choice,
  ids: [id],
  text,
  logprobs: null,
  finish: null,
  error: null,
  times: null,
  cached: null,
});

describe('packing events', () => {
  it('lays tokens alone one after another, and leaves the others whole', () => {
    const last: ChoiceEvent = { ...token(2, 1, 9, '.'), finish: 'length', cached: 3 };
    const ranked: ChoiceEvent = {
      ...token(3, 0, 4, 'x'),
      logprobs: [{ id: 4, logprob: -1, rank: 1, top: [] }],
    };
    const error = new KvantError('x', 'It broke.', { kind: 'device', fix: 'Mend it.' });
    const failed: ChoiceEvent = { ...token(4, 0, 0, ''), ids: [], finish: 'error', error };
    const packed = packEvents([token(1, 0, 7, 'é'), ranked, token(2, 0, 8, ''), last, failed]);
    expect(packed.tokens).toEqual([1, 0, 7, 'é', 2, 0, 8, '']);
    expect(packed.events.slice(0, 2)).toEqual([ranked, last]);
    expect(packed.events[2]).toMatchObject({ request: 4, finish: 'error', error: { code: 'x' } });
    // It can be posted.
    expect(structuredClone(packed)).toEqual(packed);
  });
});
