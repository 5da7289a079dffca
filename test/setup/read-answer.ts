/** What a parser of tool calls makes of an answer, however it is cut. */
import { expect } from 'vitest';
import type { ToolFormat } from '../../src/text/formats/tool-format.js';

export type ReadCall = { readonly name: string; readonly arguments: string; readonly id?: string };
export type Answer = (string | ReadCall)[];

/** Neighbouring texts and the parts of each call joined. */
export function readAnswer(
  format: ToolFormat,
  pieces: readonly string[],
  tools: readonly unknown[] = [],
): Answer {
  const parser = format.parser(tools);
  const out: Answer = [];
  for (const found of [...pieces.map((piece) => parser.push(piece)), parser.end()])
    for (const piece of found) {
      const last = out.at(-1);
      if (piece.type === 'call') {
        const { name, arguments: given, id } = piece;
        out.push({ name, arguments: given, ...(id === undefined ? {} : { id }) });
      } else if (piece.text === '') throw new Error('an empty piece');
      else if (piece.type === 'arguments') {
        if (typeof last !== 'object') throw new Error('arguments without a call');
        out[out.length - 1] = { ...last, arguments: last.arguments + piece.text };
      } else if (typeof last === 'string') out[out.length - 1] = last + piece.text;
      else out.push(piece.text);
    }
  return out;
}

/** Reads the answer whole, in single characters, and cut in two and in three everywhere. */
export function expectAnswer(
  format: ToolFormat,
  text: string,
  expected: Answer,
  tools: readonly unknown[] = [],
): void {
  expect(readAnswer(format, [text], tools)).toEqual(expected);
  expect(readAnswer(format, text.split(''), tools)).toEqual(expected);
  for (let i = 0; i <= text.length; i++) {
    const first = text.slice(0, i);
    expect(readAnswer(format, [first, text.slice(i)], tools), `cut at ${i}`).toEqual(expected);
    // Of a long answer fewer: what a cut does to it depends on what is near.
    for (let j = i; j <= text.length; j += text.length > 120 ? 41 : 7)
      expect(readAnswer(format, [first, text.slice(i, j), '', text.slice(j)], tools)).toEqual(expected);
  }
}
