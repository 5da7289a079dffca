import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { packEvents, unpackTokens } from './messages.js';
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
    const error = new KvantError('x', 'It broke.', { kind: 'device', fix: 'Mend it.' });
    const failed: ChoiceEvent = { ...token(4, 0, 0, ''), ids: [], finish: 'error', error };
    const packed = packEvents([token(1, 0, 7, 'é'), token(2, 0, 8, ''), last, failed]);
    expect(packed.tokens).toEqual([1, 0, 7, 'é', 2, 0, 8, '']);
    expect(packed.ranked).toEqual([]);
    expect(packed.events[0]).toEqual(last);
    expect(packed.events[1]).toMatchObject({ request: 4, finish: 'error', error: { code: 'x' } });
    // It can be posted.
    expect(structuredClone(packed)).toEqual(packed);
  });

  it('lays log-probabilities flat beside them, and gives every token its own back', () => {
    const top = [
      { id: 4, logprob: -0.25 },
      { id: 9, logprob: Number.NEGATIVE_INFINITY },
    ];
    const of = (request: number, id: number, alternatives: typeof top): ChoiceEvent => ({
      ...token(request, 1, id, `t${id}`),
      logprobs: [{ id, logprob: -id / 3, rank: id, top: alternatives }],
    });
    const last: ChoiceEvent = { ...of(5, 6, top), finish: 'stop' };
    const events = [of(1, 4, top), token(2, 1, 7, 'x'), of(3, 2, []), last, of(1, 5, top)];
    const packed = structuredClone(packEvents(events));
    expect(packed.events).toEqual([last]);
    expect(packed.ranked).toHaveLength(3 * 4 + 2 * 4);
    const got: unknown[] = [];
    unpackTokens(packed, (request, choice, id, text, logprobs) => {
      got.push({ request, choice, ids: [id], text, logprobs: logprobs === null ? null : [logprobs] });
    });
    const wanted = events.filter((event) => event !== last);
    expect(got).toEqual(
      wanted.map(({ request, choice, ids, text, logprobs }) => ({ request, choice, ids, text, logprobs })),
    );
  });
});
