/** What a whole answer is held to: thoughts, then calls or what is said, in the form and the frame that are asked for. */

import { type GrammarAsk, grammarOf } from '../grammar/ask.js';
import {
  type Expression,
  type Grammar,
  optional,
  repeat,
  rule,
  sequence,
  set,
  text,
} from '../grammar/expression.js';
import type { Budget } from '../grammar/limits.js';
import { NO_TOKENS, type TokenNames } from '../grammar/token-names.js';
import { freeText } from '../grammar/triggered.js';
import { toolFormatNamed } from './formats/formats.js';
import type { AnswerFrame } from './formats/tool-format.js';
import { markOf, type TokenClues, type ToolsAsk, toolGrammar } from './formats/tool-grammar.js';
import { type Thoughts, tokensOf } from './thought-marks.js';

/** Plain data: it crosses threads. */
export interface AnswerAsk {
  /** The form of an answer; null where it is free, or there has to be a call. */
  readonly ask: GrammarAsk | null;
  /** What its calls are held to; null where there are none, or they are free. */
  readonly tools: ToolsAsk | null;
  readonly thoughts: Thoughts | null;
  /** Name of the format that frames answers; null where none does, or the prompt has begun what is said. */
  readonly frame: string | null;
}

/** The names of no other rules. */
const [WITH_THOUGHTS, FRAMED] = ['thoughts and answer', 'framed answer'];

/** Errors: those of `grammarOf` and `toolGrammar`. */
export function answerGrammar(
  asked: AnswerAsk,
  clues: TokenClues,
  budget: Budget,
  names: TokenNames = NO_TOKENS,
): Grammar {
  const grammar = unthought(asked, clues, budget, names);
  return asked.thoughts === null ? grammar : withThoughts(grammar, asked.thoughts, clues, budget);
}

function unthought(
  { ask, tools, frame }: AnswerAsk,
  clues: TokenClues,
  budget: Budget,
  names: TokenNames,
): Grammar {
  const framing = frame === null ? null : toolFormatNamed(frame).frame!;
  if (tools !== null)
    return toolGrammar(toolFormatNamed(tools.format), tools, ask, clues, budget, {
      names,
      framed: framing !== null,
    });
  const form = ask === null ? null : grammarOf(ask, budget, names);
  return framing === null ? form! : inFrame(framing, form, clues, budget);
}

function inFrame(frame: AnswerFrame, form: Grammar | null, clues: TokenClues, budget: Budget): Grammar {
  const answer = frame.answer({
    mark: (mark) => markOf(mark, clues),
    calls: null,
    said: form === null ? null : rule(form.root),
    free: form === null,
    budget,
  });
  return { rules: new Map([...(form?.rules ?? []), [FRAMED, answer]]), root: FRAMED };
}

/** Thoughts are free, but for their end. */
function withThoughts(
  { rules, root }: Grammar,
  { state, marks }: Thoughts,
  clues: TokenClues,
  budget: Budget,
): Grammar {
  const spelled = (source: string): Expression => spelledOut(source, tokensOf(marks), clues);
  const { open, close, behind } = marks;
  const next = behind === undefined ? repeat(set([10, 10], [32, 32]), 0, 2) : spelled(behind);
  const block = sequence(freeText([close], budget), spelled(close), next);
  const before = state === 'open' ? block : optional(sequence(spelled(open), block));
  const whole = sequence(before, rule(root));
  return { rules: new Map([...rules, [WITH_THOUGHTS, whole]]), root: WITH_THOUGHTS };
}

/** A text, the marks in it as tokens where the tokenizer has them. */
function spelledOut(source: string, marks: readonly string[], clues: TokenClues): Expression {
  const mark = marks.find((one) => source.includes(one) && clues.idOf(one) !== undefined);
  if (mark === undefined) return text(source);
  const at = source.indexOf(mark);
  const parts = [source.slice(0, at), source.slice(at + mark.length)].map((part) =>
    part === '' ? [] : [spelledOut(part, marks, clues)],
  );
  return sequence(...parts[0]!, markOf(mark, clues), ...parts[1]!);
}
