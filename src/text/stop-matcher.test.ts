import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { StopMatcher } from './stop-matcher.js';

/** Reads the whole text at once: the first position where a stop string is complete, the longest one there. */
function reference(text: string, stops: readonly string[]): { text: string; stop: string | undefined } {
  for (let end = 1; end <= text.length; end++) {
    const ending = stops.filter((stop) => text.slice(0, end).endsWith(stop));
    if (ending.length === 0) continue;
    const stop = ending.reduce((a, b) => (b.length > a.length ? b : a));
    return { text: text.slice(0, end - stop.length), stop };
  }
  return { text, stop: undefined };
}

/** The shortest hold-back that never leaks: the longest suffix of the text that begins a stop string. */
function referenceHeld(text: string, stops: readonly string[]): number {
  for (let length = text.length; length > 0; length--) {
    const suffix = text.slice(text.length - length);
    if (stops.some((stop) => stop.length > length && stop.startsWith(suffix))) return length;
  }
  return 0;
}

function words(alphabet: string, longest: number): string[] {
  const all = [''];
  for (let i = 0; i < all.length; i++) {
    const word = all[i]!;
    if (word.length < longest) for (const letter of alphabet) all.push(word + letter);
  }
  return all;
}

function run(
  pieces: readonly string[],
  stops: readonly string[],
): { text: string; stop: string | undefined } {
  const matcher = new StopMatcher(stops);
  let text = '';
  let stop: string | undefined;
  for (const piece of pieces) {
    const out = matcher.push(piece);
    text += out.text;
    stop ??= out.match?.stop;
  }
  return { text: text + matcher.flush(), stop };
}

describe('StopMatcher', () => {
  it('agrees with a search of the whole text, for all texts and pairs of stops over a small alphabet', () => {
    const stops = words('ab', 3).filter((word) => word.length > 0);
    const texts = words('abc', 6).filter((word) => word.length === 6);
    let checked = 0;
    for (const first of stops) {
      for (const second of stops) {
        const list = [first, second];
        for (const text of texts) {
          const expected = reference(text, list);
          const matcher = new StopMatcher(list);
          let out = '';
          let found: string | undefined;
          for (let i = 0; i < text.length; i++) {
            const step = matcher.push(text[i]!);
            out += step.text;
            found ??= step.match?.stop;
            const read = text.slice(0, i + 1);
            if (reference(read, list).stop === undefined) {
              const held = referenceHeld(read, list);
              if (out !== read.slice(0, read.length - held)) {
                throw new Error(`held back wrongly: ${JSON.stringify({ list, read, out, held })}`);
              }
            }
          }
          out += matcher.flush();
          if (out !== expected.text || found !== expected.stop) {
            throw new Error(JSON.stringify({ list, text, out, found, expected }));
          }
          checked++;
        }
      }
    }
    expect(checked).toBe(14 * 14 * 729);
  });

  it('does not depend on where the text was cut', () => {
    const lists = [['aba', 'bb'], ['abab', 'ba', 'aab'], ['aaa', 'b'], ['abba', 'bb'], ['bab']];
    for (const text of words('ab', 8).filter((word) => word.length === 8)) {
      for (const list of lists) {
        const expected = reference(text, list);
        for (let cuts = 0; cuts < 1 << (text.length - 1); cuts += 3) {
          const pieces: string[] = [''];
          for (let i = 0; i < text.length; i++) {
            pieces[pieces.length - 1] += text[i]!;
            if ((cuts >> i) & 1) pieces.push('');
          }
          const got = run(pieces, list);
          if (got.text !== expected.text || got.stop !== expected.stop) {
            throw new Error(JSON.stringify({ list, pieces, got, expected }));
          }
        }
      }
    }
  });

  it('reports which stop matched and gives the text before it', () => {
    const matcher = new StopMatcher(['END', '\n\nUser:']);
    expect(matcher.push('Hello\n')).toEqual({ text: 'Hello', match: undefined });
    expect(matcher.push('\nUs')).toEqual({ text: '', match: undefined });
    expect(matcher.heldLength).toBe(4);
    expect(matcher.push('er: hi')).toEqual({ text: '', match: { index: 1, stop: '\n\nUser:' } });
    expect(matcher.match?.index).toBe(1);
    expect(matcher.push('more')).toEqual({ text: '', match: undefined });
    expect(matcher.flush()).toBe('');
  });

  it('takes the first of equal stop strings, and the longest of those that end together', () => {
    expect(new StopMatcher(['x', 'x']).push('ax').match?.index).toBe(0);
    expect(new StopMatcher(['c', 'bc', 'abc']).push('zabc')).toEqual({
      text: 'z',
      match: { index: 2, stop: 'abc' },
    });
  });

  it('finds stop strings of several-byte characters across pieces', () => {
    expect(run(['naïve ca', 'fé', '\u{1F600}\u{1F601}', ' end'], ['é\u{1F600}\u{1F601}'])).toEqual({
      text: 'naïve caf',
      stop: 'é\u{1F600}\u{1F601}',
    });
    // The two faces share their first UTF-16 unit.
    expect(run(['a\u{1F600}', 'b'], ['\u{1F601}'])).toEqual({ text: 'a\u{1F600}b', stop: undefined });
    const matcher = new StopMatcher(['終わり']);
    expect(matcher.push('これで終').text).toBe('これで');
    expect(matcher.push('わる').text).toBe('終わる');
  });

  it('gives the held text out at the end', () => {
    const matcher = new StopMatcher(['<stop>']);
    expect(matcher.push('a <sto').text).toBe('a ');
    expect(matcher.flush()).toBe('<sto');
    expect(matcher.push('p>').text).toBe('p>');
  });

  it('passes everything through without stop strings', () => {
    const matcher = new StopMatcher([]);
    expect(matcher.push('abc')).toEqual({ text: 'abc', match: undefined });
    expect(matcher.flush()).toBe('');
  });

  it('refuses empty and ill-formed stop strings', () => {
    for (const [stops, where] of [
      [['a', ''], 'stop[1]'],
      [['\ud83d'], 'stop[0]'],
    ] as const) {
      let error: unknown;
      try {
        new StopMatcher(stops);
      } catch (caught) {
        error = caught;
      }
      expect(error).toBeInstanceOf(KvantError);
      expect(error).toMatchObject({ code: 'invalid-stop', where, status: 400 });
    }
  });

  it('shares its automaton with matchers of other texts, and nothing else', () => {
    const one = new StopMatcher(['stop', 'sto?']);
    expect(one.push('a sto').text).toBe('a ');
    const other = new StopMatcher(one);
    expect(other.push('p stops')).toEqual({ text: 'p ', match: { index: 0, stop: 'stop' } });
    expect(one.push('?')).toEqual({ text: '', match: { index: 1, stop: 'sto?' } });
  });
});
