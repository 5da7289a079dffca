import { describe, expect, it } from 'vitest';
import { StopMatcher } from '../text/stop-matcher.js';
import type { TokenTable } from '../text/token-bytes.js';
import { SequenceOutput } from './sequence-output.js';

/** Tokens by their bytes; the last one is special. */
function table(tokens: readonly (string | number[])[]): TokenTable {
  const pieces = tokens.map((token) =>
    typeof token === 'string' ? [...new TextEncoder().encode(token)] : token,
  );
  const offsets = new Uint32Array(pieces.length + 1);
  pieces.forEach((piece, id) => {
    offsets[id + 1] = offsets[id]! + piece.length;
  });
  const flags = new Uint8Array(pieces.length).fill(1);
  flags[pieces.length - 1] = 3;
  return {
    data: Uint8Array.from(pieces.flat()),
    offsets,
    flags,
    size: pieces.length,
    leadingCount: 1,
    leadingByte: 0x20,
  };
}

// The euro sign, cut in two, and a few words.
const TOKENS = [' Hello', ' world', [0xe2, 0x82], [0xac], '. User', ': next', '</s>'];
const EOS = 6;

function output(
  options: { stop?: string[]; ignoreEos?: boolean; continuation?: boolean; minTokens?: number } = {},
): SequenceOutput {
  const { ignoreEos = false, continuation = false, minTokens = 0 } = options;
  const stop = options.stop === undefined ? null : new StopMatcher(options.stop);
  const endIds = new Set(ignoreEos ? [] : [EOS]);
  return new SequenceOutput({ table: table(TOKENS), endIds, stop, minTokens, continuation });
}

describe('SequenceOutput', () => {
  it('gives whole characters, and the rest of one at the end', () => {
    const whole = output();
    expect([0, 2, 3].map((id) => whole.push(id))).toEqual(['Hello', '', '€']);
    expect(whole.end()).toBe('');
    const broken = output();
    expect([0, 2].map((id) => broken.push(id))).toEqual(['Hello', '']);
    expect(broken.end()).toBe('\ufffd');
  });

  it('drops a leading space, but not where a prompt goes on', () => {
    expect(output().push(0)).toBe('Hello');
    expect(output({ continuation: true }).push(0)).toBe(' Hello');
  });

  it('stops at an EOS id, without its text; or goes on, as told', () => {
    const stops = output();
    stops.push(0);
    expect(stops.stopped).toBe(false);
    expect(stops.push(EOS)).toBe('');
    expect(stops.stopped).toBe(true);
    const goesOn = output({ ignoreEos: true });
    goesOn.push(EOS);
    expect(goesOn.stopped).toBe(false);
  });

  it('takes a stop string for text until the sequence is long enough', () => {
    const stops = output({ stop: ['world'], minTokens: 3 });
    expect([0, 1].map((id) => stops.push(id))).toEqual(['Hello', ' world']);
    expect(stops.stopped).toBe(false);
    expect(stops.push(1)).toBe(' ');
    expect(stops.stopped).toBe(true);
  });

  it('holds back what may become a stop string, and shows nothing of one', () => {
    const stops = output({ stop: ['User:'] });
    expect([0, 4, 5].map((id) => stops.push(id))).toEqual(['Hello', '. ', '']);
    expect(stops.stopped).toBe(true);
    expect(stops.end()).toBe('');
    const ends = output({ stop: ['User!'] });
    expect([4, EOS].map((id) => ends.push(id))).toEqual(['. ', '']);
    expect(ends.end()).toBe('User');
  });

  it('finds a stop string that the last half character completes', () => {
    const stops = output({ stop: ['\ufffd'] });
    expect(stops.push(2)).toBe('');
    expect(stops.end()).toBe('');
  });
});
