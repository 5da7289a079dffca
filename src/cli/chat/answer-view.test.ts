import { describe, expect, it } from 'vitest';
import type { GenerationResult } from '../../engine/types.js';
import { AnswerView, rateLine } from './answer-view.js';
import { Styles } from './styles.js';

const coloured = new Styles({ isTTY: true, hasColors: () => true }, {});
const plain = new Styles({ isTTY: true, hasColors: () => true }, { NO_COLOR: '1' });

type Piece = { reasoning?: string; text: string };

function printed(styles: Styles, terminal: boolean, pieces: readonly Piece[]): string {
  let all = '';
  const view = new AnswerView((text) => (all += text), styles, terminal);
  for (const piece of pieces) view.show(piece);
  view.end();
  return all;
}

describe('an answer in the terminal', () => {
  const pieces = [
    { reasoning: 'Hm', text: '' },
    { reasoning: ', yes', text: '' },
    { text: 'To' },
    { text: 'kyo' },
  ];

  it('thoughts are dim, and apart from what is said', () => {
    expect(printed(coloured, true, pieces)).toBe('\x1b[2mHm\x1b[22m\x1b[2m, yes\x1b[22m\n\nTokyo\n');
    expect(printed(coloured, true, [{ reasoning: 'a\n', text: 'b' }])).toBe('\x1b[2ma\n\x1b[22m\nb\n');
  });

  it('without colours words tell them apart', () => {
    expect(printed(plain, true, pieces)).toBe('Thinking …\nHm, yes\n… done thinking.\n\nTokyo\n');
    // Stopped while it thought.
    expect(printed(plain, false, [{ reasoning: 'Hm', text: '' }])).toBe(
      'Thinking …\nHm\n… done thinking.\n\n',
    );
  });

  it('ends with a line of its own, and with none where nothing was said', () => {
    expect(printed(plain, false, [{ text: 'a\n' }])).toBe('a\n');
    expect(printed(plain, false, [{ text: '' }])).toBe('');
  });

  it('what a model writes cannot drive the terminal; a pipe gets it as it is', () => {
    const text = 'a\x1b[2Jb\x07\r\n\tc\x9b1m 👩‍👩‍👧';
    expect(printed(coloured, true, [{ text }])).toBe('a\\u001b[2Jb\\u0007\n\tc\\u009b1m 👩‍👩‍👧\n');
    expect(printed(plain, false, [{ text }])).toBe(`${text}\n`);
  });

  it('rates say how much, how fast, and why it ended', () => {
    const result = {
      usage: { completionTokens: 12 },
      timings: { ttftMs: 80.4, decodeTokensPerSecond: 45.23 },
      finishReason: 'stop',
    } as GenerationResult;
    expect(rateLine(result)).toBe('12 tokens, first after 80 ms, 45.2 tok/s');
    expect(rateLine({ ...result, finishReason: 'cancelled' })).toMatch(/, stopped$/);
    expect(rateLine({ ...result, finishReason: 'length' })).toMatch(/, cut at the limit of tokens$/);
  });
});

describe('colours', () => {
  it.each([
    [{ isTTY: true }, {}, true],
    [{ isTTY: true }, { NO_COLOR: '' }, true],
    [{ isTTY: true }, { NO_COLOR: '0' }, false],
    [{ isTTY: true }, { TERM: 'dumb' }, false],
    [{ isTTY: true, hasColors: () => false }, {}, false],
    [{ isTTY: false }, {}, false],
    [{}, {}, false],
  ])('%j %j: %s', (target, env, on) => {
    const styles = new Styles(target, env);
    expect(styles.on).toBe(on);
    expect(styles.red('x')).toBe(on ? '\x1b[31mx\x1b[39m' : 'x');
  });
});
