/** From what a request says to tokens: template, tokenizer, words. The same on the caller's thread and on one for texts. */

import { KvantError } from '../../errors.js';
import { checkDraws } from '../../sampling/draws-left.js';
import type { SamplingParams } from '../../sampling/options.js';
import { type TokenRules, tokenRules } from '../../sampling/token-rules.js';
import type { Unread } from '../../text/chat-template.js';
import { type ContextRaise, contextExceeded, picturesExceed } from '../core-errors.js';
import type { ModelText, RenderChatOptions } from '../model-text.js';
import type { EngineChatMessage } from '../types.js';
import type { TokenRun } from '../vision/pictures.js';
import {
  expandPictures,
  guardMessages,
  type PictureTokens,
  showPictures,
  writePictures,
} from './placeholders.js';
import type { TaskResult, TextTask, Watch } from './text-task.js';
import { UnspeltTokens, unspelt } from './unspelt-tokens.js';

/** What is to become of a request's text. */
export type AskedPrompt =
  | { readonly kind: 'ids'; readonly ids: Int32Array; readonly chatEnd: string | null }
  | { readonly kind: 'text'; readonly text: string; readonly addSpecialTokens: boolean }
  /** A text that is read and not gone on with: of at most so many tokens, or cut to them. */
  | { readonly kind: 'input'; readonly text: string; readonly most: number; readonly truncate: boolean }
  /** Two texts that are read as a pair: of at most so many tokens, or the second is cut. */
  | {
      readonly kind: 'pair';
      readonly text: string;
      readonly second: string;
      readonly most: number;
      readonly truncate: boolean;
    }
  | {
      readonly kind: 'chat';
      readonly messages: readonly EngineChatMessage[];
      readonly options: RenderChatOptions;
      /** Its pictures and its videos, of which messages have parts `{ type: 'image' }` and `{ type: 'video' }`. Default: none. */
      readonly pictures?: readonly PictureTokens[];
    };

export interface PromptAsk {
  readonly prompt: AskedPrompt;
  readonly sampling: SamplingParams;
  readonly limits: PromptLimits;
}

export interface PromptLimits {
  readonly vocabSize: number;
  readonly eosIds: readonly number[];
  readonly maxContext: number;
  readonly contextRaise: ContextRaise;
}

/** A prompt in tokens. */
export interface EncodedPrompt {
  readonly ids: Int32Array;
  /** Of a conversation the last characters, which may have begun a block of thoughts; null for a text that is gone on with. */
  readonly chatEnd: string | null;
  /** What the template makes nothing of. */
  readonly unread: readonly Unread[];
  /** Where the tokens of each picture and each video stand. */
  readonly runs?: readonly (readonly (readonly TokenRun[])[])[];
}

export interface PreparedPrompt extends EncodedPrompt {
  readonly rules: TokenRules;
}

/** Errors: those of words and biases, of the chat template and the tokenizer; `context-length-exceeded`. */
export function preparePrompt(
  text: ModelText,
  { prompt, sampling, limits }: PromptAsk,
  watch: Watch,
): PreparedPrompt {
  const rules = tokenRules(sampling, text.words);
  checkDraws(sampling, rules, limits.eosIds, limits.vocabSize);
  watch.check();
  return { ...encodePrompt(text, prompt, limits, watch), rules };
}

/** Errors: those of the chat template and the tokenizer; `context-length-exceeded`. */
export function encodePrompt(
  text: ModelText,
  prompt: AskedPrompt,
  limits: PromptLimits,
  watch: Watch,
): EncodedPrompt {
  if (prompt.kind === 'ids') return { ids: prompt.ids, chatEnd: prompt.chatEnd, unread: [] };
  if (prompt.kind === 'text')
    return { ids: encodeWithin(text, prompt.text, prompt, limits, watch), chatEnd: null, unread: [] };
  if (prompt.kind === 'input') return { ids: encodeInput(text, prompt, watch), chatEnd: null, unread: [] };
  if (prompt.kind === 'pair') return { ids: encodePair(text, prompt, watch), chatEnd: null, unread: [] };
  if (prompt.pictures !== undefined) return encodePictures(text, prompt, prompt.pictures, limits, watch);
  const rendered = text.render(prompt.messages, prompt.options);
  watch.check();
  const ids = encodeWithin(text, rendered, null, limits, watch);
  const unread = text.unread(prompt.messages, prompt.options).slice(0, MOST_UNREAD);
  return { ids, chatEnd: endOf(rendered), unread };
}

function encodePictures(
  text: ModelText,
  prompt: Extract<AskedPrompt, { readonly kind: 'chat' }>,
  stated: readonly PictureTokens[],
  limits: PromptLimits,
  watch: Watch,
): EncodedPrompt {
  const kinds = stated.map((kind) => (text.spellingOf(kind.token) === '' ? unspelt(kind) : kind));
  const marks = new UnspeltTokens();
  const spellingOf = (token: number): string => text.spellingOf(token) || marks.markOf(token);
  const typed = kinds.flatMap(({ token, placeholder }) => {
    const spelling = spellingOf(token);
    return [placeholder ?? spelling, spelling];
  });
  const { messages, cut } = guardMessages(prompt.messages, [...new Set(typed)]);
  const { asText = null } = kinds[0]!;
  const given = asText === null ? messages : writePictures(messages, asText);
  const rendered = text.render(given, prompt.options, true);
  watch.check();
  const shown = kinds.reduce((whole, kind) => showPictures(whole, kind, spellingOf), rendered);
  const pieces = cut === null ? [shown] : shown.split(cut);
  const parts = pieces.flatMap((piece) =>
    marks
      .cut(piece)
      .map((part) =>
        typeof part === 'number' ? Int32Array.of(part) : encodeWithin(text, part, null, limits, watch),
      ),
  );
  // Processors of models that see begin with the tokenizer's first token; templates of text begin as they like.
  const [first] = text.encode('', true);
  if (first !== undefined && parts[0]![0] !== first) parts.unshift(Int32Array.of(first));
  const joined = new Int32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  const { ids, runs } = expandPictures(joined, kinds);
  if (ids.length >= limits.maxContext) {
    const tokens = runs.flat(2).reduce((sum, run) => sum + run.tokens, 0);
    const seen = { count: runs.flat().length, tokens };
    throw picturesExceed(ids.length, seen, limits.maxContext, limits.contextRaise);
  }
  const unread = text.unread(prompt.messages, prompt.options).slice(0, MOST_UNREAD);
  return { ids, chatEnd: endOf(pieces.join('')), unread, runs };
}

/** The task. */
export const prompt: TextTask<PromptAsk, PreparedPrompt> = (text, ask, watch): TaskResult<PreparedPrompt> => {
  const value = preparePrompt(text, ask, watch);
  return { value, transfer: [value.ids.buffer as ArrayBuffer] };
};

/** Names are the clients'. */
const MOST_UNREAD = 64;
/** Longer than any mark that begins thoughts. */
const END = 64;

const endOf = (rendered: string): string => rendered.trimEnd().slice(-END);

/**
 * The ids of a text with the tokenizer's special ones around it. Where it is cut, these stay.
 * Errors: `input-too-long`, those of the tokenizer.
 */
function encodeInput(
  text: ModelText,
  { text: source, most, truncate }: Extract<AskedPrompt, { readonly kind: 'input' }>,
  watch: Watch,
): Int32Array {
  const least = truncate ? 0 : text.fewestTokens(source);
  if (least > most) throw inputTooLong(least, most, 'at least ');
  const ids = text.encode(source, true, (tokens) => {
    watch.check();
    if (!truncate && tokens > COUNTED * most) throw inputTooLong(tokens, most, 'at least ');
  });
  if (ids.length <= most) return ids;
  if (!truncate) throw inputTooLong(ids.length, most);
  const plain = text.encode(source, false, () => watch.check());
  const added = ids.length - plain.length;
  let before = 0;
  while (before < added && !plain.every((id, i) => id === ids[before + i])) before++;
  const kept = Math.max(0, most - added);
  const cut = [
    ...ids.subarray(0, before),
    ...plain.subarray(0, kept),
    ...ids.subarray(before + plain.length),
  ];
  return Int32Array.from(cut.slice(0, most));
}

/** Errors: `input-too-long`, `rerank-unsupported` for a tokenizer without pairs, those of the tokenizer. */
function encodePair(
  text: ModelText,
  { text: first, second, most, truncate }: Extract<AskedPrompt, { readonly kind: 'pair' }>,
  watch: Watch,
): Int32Array {
  const least = truncate ? 0 : text.fewestTokens(first + second);
  if (least > most) throw inputTooLong(least, most, 'at least ');
  const made = text.encodePair(first, second, most, (tokens) => {
    watch.check();
    if (!truncate && tokens > COUNTED * most) throw inputTooLong(tokens, most, 'at least ');
  });
  if (made === null)
    throw new KvantError('rerank-unsupported', 'The tokenizer does not say how two texts become a pair.', {
      kind: 'unsupported',
      where: 'post_processor',
      fix: 'Use a model whose tokenizer.json has a template for pairs.',
    });
  // The first text is never cut.
  if (made.ids.length > most || (!truncate && made.all > most)) throw inputTooLong(made.all, most);
  return made.ids;
}

export function inputTooLong(tokens: number, most: number, about: 'at least ' | '' = ''): KvantError {
  return new KvantError(
    'input-too-long',
    `The text has ${about}${tokens} tokens; the model takes at most ${most}.`,
    {
      kind: 'invalid-request',
      where: 'input',
      fix: 'Send shorter texts, or `truncate: true` to have them cut.',
    },
  );
}

/** Of a text that is longer by so much the tokens are not counted to the end. */
const COUNTED = 2;

/**
 * The ids of a text that fits the context. One that does not is refused as soon as that is known: by its length, where the tokenizer
 * tells how much text a token may stand for, else when it has far too many tokens.
 *
 * `raw`: null for a rendered conversation. Errors: `context-length-exceeded`, those of the tokenizer.
 */
function encodeWithin(
  text: ModelText,
  source: string,
  raw: { readonly addSpecialTokens: boolean } | null,
  { maxContext, contextRaise }: PromptLimits,
  watch: Watch,
): Int32Array {
  const least = text.fewestTokens(source);
  const exceeded = (tokens: number, about: 'at least ' | '' = ''): KvantError =>
    contextExceeded(tokens, maxContext, raw === null ? 'messages' : 'prompt', contextRaise, about);
  if (least >= maxContext) throw exceeded(least, 'at least ');
  const ids = text.encode(source, raw?.addSpecialTokens ?? false, (tokens) => {
    watch.check();
    if (tokens > COUNTED * maxContext) throw exceeded(tokens, 'at least ');
  });
  if (ids.length >= maxContext) throw exceeded(ids.length);
  return ids;
}
