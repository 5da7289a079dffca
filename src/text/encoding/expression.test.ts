import { describe, expect, it } from 'vitest';
import { compilePattern, replaceAll, splitInto } from './expression.js';

function isolated(source: string, text: string): string[] {
  const pieces: string[] = [];
  splitInto(pieces, text, compilePattern({ Regex: source }), 'Isolated');
  return pieces;
}

/** Expected pieces are what the Rust library's `Split(Regex(…), "isolated")` gives. */
describe('compilePattern', () => {
  it.each([
    // What is possessive or atomic gives nothing back.
    ['a++b|a', 'aab a', ['aab', ' ', 'a']],
    ['a++ab', 'aaab', ['aaab']],
    ['(?:a|ab)*+c', 'aabc', ['aab', 'c']],
    ['(?>a|ab)c', 'abc', ['abc']],
    ['\\s++$|\\s', ' \n x', [' ', '\n', ' ', 'x']],
    // Several times over, not possessive.
    ['\\p{N}{1,2}+', 'a12345', ['a', '12345']],
    // Case by Unicode, in groups and for all.
    ["(?i:'s|k)", "it'ſ K", ['it', "'ſ", ' ', 'K']],
    ['(?i)é|[sdt]', 'É ſ', ['É', ' ', 'ſ']],
    ['(?i:[^s])+', 'ſab', ['ſ', 'ab']],
    ['(?i:a(b)c)d', 'ABCd ABCD', ['ABCd', ' ABCD']],
    // Classes: words, lines, in one another.
    ['\\d+|\\h', 'x٣٤f', ['x', '٣٤', 'f']],
    ['[\\p{L}&&[^a-c]]+', 'abxyc', ['ab', 'xy', 'c']],
    ['[[:digit:]_]+', 'a_1٣b', ['a', '_1٣', 'b']],
    ['^.|.$', 'ab\ncd', ['a', 'b', '\n', 'c', 'd']],
    ['\\R', 'a\r\nb\nc', ['a', '\r\n', 'b', '\n', 'c']],
    ['\\s', 'a\u0085b\ufeffc', ['a', '\u0085', 'b\ufeffc']],
  ])('%s cuts %j', (source, text, pieces) => {
    expect(isolated(source, text)).toEqual(pieces);
  });

  it('takes a text as it is', () => {
    const pattern = compilePattern({ String: 'a.b*[c]-{2}' });
    expect(replaceAll(pattern, 'xa.b*[c]-{2}y', '$&')).toBe('x$&y');
  });

  it('refuses what it cannot run', () => {
    for (const pattern of [
      { Regex: '(' },
      { Regex: 'a)' },
      { Regex: '[' },
      { Regex: '\\X' },
      {},
      null,
      'a',
    ]) {
      expect(() => compilePattern(pattern)).toThrow();
    }
  });
});
