import { describe, expect, it } from 'vitest';
import { JsonTracker } from './json-tracker.js';

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Where the text stops being the beginning of JSON, its length if it does not. */
function breaksAt(text: string): number {
  const tracker = new JsonTracker();
  for (let i = 0; i < text.length; i++) {
    tracker.push(text[i]!);
    if (tracker.broken) return i;
  }
  return text.length;
}

const VALID = [
  '{"a": [1, -0.5e+10, 0, 2E3, -7], "b\\n\\u00e9\\"": {"c": [], "d": {}}, "e": "\\\\"}',
  ' [ true , false,null,"", [[]], {"": 0} ]\n',
  '-12.50 ',
];

describe('JsonTracker', () => {
  it('takes every beginning of JSON', () => {
    for (const text of VALID) {
      expect(isJson(text)).toBe(true);
      expect(breaksAt(text)).toBe(text.length);
    }
  });

  it('breaks at the character after which no JSON can follow', () => {
    for (const text of VALID) {
      for (let i = 0; i <= text.length; i++) {
        for (const wrong of '{}[],:"\\x1-.eE+ tn\n') {
          const changed = text.slice(0, i) + wrong + text.slice(i);
          const at = breaksAt(changed);
          // What JSON.parse takes is never broken.
          if (isJson(changed)) expect(at, changed).toBe(changed.length);
          // And where it breaks, no end makes JSON of it that the tracker knows of.
          else if (at < changed.length) expect(isJson(changed.slice(0, at + 1)), changed).toBe(false);
        }
      }
    }
  });

  it.each([
    ["{'", 1],
    ['{"a": T', 6],
    ['{"a": 01', 7],
    ['{"a": -}', 7],
    ['{"a": 1.}', 8],
    ['{"a": .5', 6],
    ['{"a": 1e}', 8],
    ['{"a": "\n', 7],
    ['{"a": "\\x', 8],
    ['{"a": "\\u00g', 11],
    ['{"a": nul}', 9],
    ['{"a": 1,}', 8],
    ['[1,]', 3],
    ['{"a" 1', 5],
    ['{"a": 1]', 7],
    ['[1}', 2],
    ['{} x', 3],
    ['{"a": 1}}', 8],
    ['1,', 1],
    ['{1', 1],
    ['[:', 1],
  ])('%s breaks at %i', (text, at) => {
    expect(breaksAt(text)).toBe(at);
  });

  it('tells where it is', () => {
    const tracker = new JsonTracker();
    const seen: string[] = [];
    for (const char of '{"k": ["v"]}') {
      tracker.push(char);
      seen.push(
        `${tracker.depth}${tracker.inString ? 's' : ''}${tracker.isKey ? 'k' : ''}${tracker.beforeValue ? 'v' : ''}`,
      );
    }
    expect(seen).toEqual(['1', '1sk', '1sk', '1k', '1kv', '1kv', '2v', '2s', '2s', '2', '1', '0']);
  });
});
