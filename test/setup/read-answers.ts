/** Answers read by a format's parser, however they are cut. */
import { expect } from 'vitest';
import { addToolCalls, answerParsers, type ToolCall } from '../../src/text/answer-parser.js';
import type { ToolFormat } from '../../src/text/formats/tool-format.js';

function read(format: ToolFormat, pieces: readonly string[], request: object, prompt: string) {
  const parser = answerParsers(request, prompt, format)();
  const calls: ToolCall[] = [];
  let [text, reasoning] = ['', ''];
  for (const piece of [...pieces.map((one) => parser.push(one)), parser.end()]) {
    text += piece.text;
    reasoning += piece.reasoning;
    addToolCalls(calls, piece.toolCalls);
  }
  return { text, reasoning, calls: calls.map((call) => call.function) };
}

/**
 * Expects answers to be read as `expected` whole, in two parts cut anywhere, and a character at a time; of this request behind this prompt
 * where a case gives none.
 */
export function readsWith(format: ToolFormat, usual: object, usualPrompt: string) {
  return (answer: string, expected: object, request: object = usual, prompt = usualPrompt): void => {
    const whole = { text: '', reasoning: '', calls: [], ...expected };
    for (let i = 0; i <= answer.length; i++)
      expect(read(format, [answer.slice(0, i), answer.slice(i)], request, prompt), `cut at ${i}`).toEqual(
        whole,
      );
    expect(read(format, answer.split(''), request, prompt)).toEqual(whole);
  };
}
