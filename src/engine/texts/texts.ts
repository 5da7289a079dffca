/** Turns what requests say into tokens: at once what is quick, on threads of their own what would keep others waiting. */

import { ByteCache } from '../../grammar/byte-cache.js';
import type { ForcedRuns } from '../../grammar/forced-runs.js';
import type { GrammarTables } from '../../grammar/tables.js';
import type { SamplingParams } from '../../sampling/options.js';
import type { AnswerAsk } from '../../text/answer-grammar.js';
import { workerUrl } from '../../worker-url.js';
import type { ModelText } from '../model-text.js';
import type { RowGrammar } from '../row-grammar.js';
import type { RunsAsk, TokenTries } from './grammar-task.js';
import {
  type AskedPrompt,
  encodePrompt,
  type PreparedPrompt,
  type PromptAsk,
  type PromptLimits,
  preparePrompt,
} from './prompt-task.js';
import type { TextJob, TextPool } from './text-pool.js';
import { Watch } from './text-task.js';
import { weigh } from './weigh.js';

/** Texts of so many characters are worked on at once: a few milliseconds for the slowest kind there is. */
export const QUICK_TEXT = 4096;
/** Tokens that may be looked through at once, for texts that break a repetition. */
const QUICK_LOOK = 2 ** 15;

/** Bytes of grammars that are kept. */
const GRAMMAR_BYTES = 64 * 2 ** 20;
/** Of one, about. */
const GRAMMAR_BYTES_A_STATE = 64;

interface CompiledGrammar {
  readonly tables: GrammarTables;
  readonly runs: ForcedRuns;
}

/** Who waits for a text, and for how long. */
export interface Waiter {
  readonly share?: string | undefined;
  readonly signal: AbortSignal;
}

export class Texts {
  /** What prompts are held to. */
  readonly limits: PromptLimits;
  readonly #text: ModelText;
  readonly #threads: boolean;
  readonly #grammars = new ByteCache<string, CompiledGrammar>(GRAMMAR_BYTES);
  #tries: Promise<TokenTries> | null = null;
  #pool: Promise<TextPool> | null = null;

  /** `threads`: whether there may be any. */
  constructor(text: ModelText, limits: PromptLimits, threads: boolean) {
    this.#text = text;
    this.limits = limits;
    this.#threads = threads && text.origin !== null;
  }

  /** Whether texts can be worked on elsewhere. */
  get threads(): boolean {
    return this.#threads;
  }

  /** A promise for what takes long. Errors, thrown or of the promise: as `preparePrompt`, and those of `run`. */
  prepare(
    prompt: AskedPrompt,
    sampling: SamplingParams,
    waiter: Waiter,
  ): PreparedPrompt | Promise<PreparedPrompt> {
    const words = this.#threads ? this.#weighWords(sampling) : 0;
    const quick = !this.#threads || this.isQuick(prompt);
    if (quick && words <= QUICK_TEXT) return this.#now(prompt, sampling);
    // A thread gets a copy, of which the text of a quick prompt has no need.
    const encoded = quick ? encodePrompt(this.#text, prompt, this.limits, new Watch()) : null;
    const rest: AskedPrompt = encoded === null ? prompt : { kind: 'ids', ...encoded };
    const ask: PromptAsk = { prompt: rest, sampling, limits: this.limits };
    const size = words + promptSize(prompt);
    const module = workerUrl('./prompt-task.js', import.meta.url);
    const made = this.run<PreparedPrompt>({ module, task: 'prompt', argument: ask, size, ...waiter });
    if (encoded !== null) return made.then(({ rules }) => ({ ...encoded, rules }));
    return made.catch((error: unknown) => {
      // Messages of the caller's own making, with functions in them.
      if ((error as { code?: unknown }).code !== 'not-plain') throw error;
      return this.#now(prompt, sampling);
    });
  }

  /** What answers are held to. Errors of the promise: those of the task `grammar`, and those of `run`. */
  async grammar(asked: AnswerAsk, waiter: Waiter): Promise<RowGrammar> {
    const key = JSON.stringify(asked);
    const known = this.#grammars.get(key);
    const making = this.#tokenTries();
    if (known !== undefined) return { ...known, tries: await making };
    making.catch(() => {});
    const tables = await this.#compile(asked, key.length, waiter);
    const tries = await making;
    const runs = await this.#findRuns({ tables, trie: tries.all.trie }, key.length, waiter);
    this.#grammars.set(
      key,
      { tables, runs },
      2 * key.length + GRAMMAR_BYTES_A_STATE * tables.ruleOf.length + runs.ids.byteLength,
    );
    return { tables, runs, tries };
  }

  async #compile(argument: AnswerAsk, size: number, waiter: Waiter): Promise<GrammarTables> {
    const module = workerUrl('./grammar-task.js', import.meta.url);
    if (this.#threads) return this.run({ module, task: 'grammar', argument, size, ...waiter });
    const { grammar } = await import('./grammar-task.js');
    return grammar(this.#text, argument, new Watch()).value;
  }

  async #findRuns(argument: RunsAsk, size: number, waiter: Waiter): Promise<ForcedRuns> {
    const module = workerUrl('./grammar-task.js', import.meta.url);
    if (this.#threads) return this.run({ module, task: 'runs', argument, size, ...waiter });
    const { runs } = await import('./grammar-task.js');
    return runs(this.#text, argument, new Watch()).value;
  }

  /** Made once, for all requests. */
  #tokenTries(): Promise<TokenTries> {
    this.#tries ??= this.#makeTries();
    // Tried again where it failed.
    this.#tries.catch(() => {
      this.#tries = null;
    });
    return this.#tries;
  }

  async #makeTries(): Promise<TokenTries> {
    const module = workerUrl('./grammar-task.js', import.meta.url);
    if (this.#threads) return this.run({ module, task: 'tries', argument: null, size: 0 });
    const { tokenTries } = await import('./grammar-task.js');
    return tokenTries(this.#text.tokenTable);
  }

  /** Whether to make tokens of it keeps nobody waiting. */
  isQuick(prompt: AskedPrompt): boolean {
    return promptSize(prompt) <= QUICK_TEXT;
  }

  #now(prompt: AskedPrompt, sampling: SamplingParams): PreparedPrompt {
    return preparePrompt(this.#text, { prompt, sampling, limits: this.limits }, new Watch());
  }

  /** Runs a task of a module on a thread. Errors: see TextPool. */
  async run<R>(job: TextJob): Promise<R> {
    this.#pool ??= this.#open();
    return (await this.#pool).run<R>(job);
  }

  /** Ends the threads; what they are at is refused. */
  async close(): Promise<void> {
    await (await this.#pool)?.close();
  }

  async #open(): Promise<TextPool> {
    const { TextPool } = await import('./text-pool.js');
    return new TextPool({ origin: this.#text.origin! });
  }

  /** What there is to do about words and breakers, in characters. */
  #weighWords({ badWords, dry }: SamplingParams): number {
    // Words are spelled twice.
    const words = badWords.length === 0 ? 0 : 2 * weigh(badWords);
    const look = dry === null || this.#text.words === null ? 0 : this.#text.words.breakers.cost(dry.breakers);
    return words + (look > QUICK_LOOK ? QUICK_TEXT + 1 : 0);
  }
}

function promptSize(prompt: AskedPrompt): number {
  switch (prompt.kind) {
    case 'ids':
      return 0;
    case 'text':
    case 'input':
      return prompt.text.length;
    case 'pair':
      return prompt.text.length + prompt.second.length;
    case 'chat': {
      const { tools, templateOptions } = prompt.options;
      return weigh(prompt.messages) + weigh(tools) + weigh(templateOptions);
    }
  }
}
