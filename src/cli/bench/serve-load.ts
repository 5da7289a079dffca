/** The requests of a serving benchmark: lengths drawn on a logarithmic scale, the same for the same seed. */
import { uniform } from '../../engine/scheduling/arrivals.js';

export interface LoadSpec {
  readonly requests: number;
  /** Tokens of a prompt, from and to. */
  readonly prompt: readonly [number, number];
  /** Tokens of an answer, from and to. */
  readonly generate: readonly [number, number];
  readonly seed: number;
}

export interface LoadRequest {
  readonly text: string;
  readonly maxTokens: number;
}

/** What a benchmark needs of a tokenizer. */
interface Text {
  tokenize(text: string, options: { readonly addSpecialTokens: boolean }): readonly number[];
  detokenize(ids: readonly number[]): string;
}

const WORDS =
  'river stone market letter winter garden harbour engine silver window mountain paper candle forest bridge morning'.split(
    ' ',
  );

/** Prompts are about as many tokens as drawn: text that is cut between two tokens may be cut elsewhere when it is read again. */
export function drawLoad({ requests, prompt, generate, seed }: LoadSpec, text: Text): LoadRequest[] {
  const random = uniform(seed);
  const length = ([from, to]: readonly [number, number]): number =>
    Math.round(from * (to / from) ** random());
  return Array.from({ length: requests }, () => {
    const tokens = length(prompt);
    // A word is a token or more.
    const words = Array.from({ length: tokens }, () => WORDS[Math.floor(random() * WORDS.length)]!);
    const ids = text.tokenize(words.join(' '), { addSpecialTokens: false });
    return { text: text.detokenize(ids.slice(0, tokens)), maxTokens: length(generate) };
  });
}
