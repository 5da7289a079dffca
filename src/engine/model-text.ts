/** The text side of a model: tokenizer, chat template, generation_config. It stays on the caller's thread. */

import { KvantError } from '../errors.js';
import type { Notice } from '../notice.js';
import { BreakerFinder, type Speller } from '../sampling/dry-breakers.js';
import type { SamplingOptions } from '../sampling/options.js';
import { ChatTemplate, PUT_ONE, type RenderOptions, type Unread } from '../text/chat-template.js';
import { toolFormatNamed, toolFormatOf } from '../text/formats/formats.js';
import type { ToolFormat } from '../text/formats/tool-format.js';
import type { TokenClues } from '../text/formats/tool-grammar.js';
import type { GenerationDefaults } from '../text/generation-config.js';
import { effortVariables } from '../text/reasoning-effort.js';
import { openedIn, THOUGHT_MARKS, type Thoughts, tokensOf } from '../text/thought-marks.js';
import { TOKEN_SPECIAL, type TokenTable, tokenBytes } from '../text/token-bytes.js';
import type { Tokenizer } from '../text/tokenizer.js';
import { type TextFiles, textFiles } from './text-files.js';
import type { TextOrigin, TextPlace } from './texts/text-origin.js';
import type { ThinkingBudget } from './thinking-budget.js';
import type { ChatRequest, EngineChatMessage } from './types.js';

/** What chat templating takes beside the messages. */
export type RenderChatOptions = Pick<
  ChatRequest,
  'tools' | 'templateOptions' | 'reasoningEffort' | 'addGenerationPrompt'
>;

interface Parts {
  readonly tokenizer: Tokenizer;
  /** An error where the model has one that does not compile: raw prompts work without it. */
  readonly template: ChatTemplate | KvantError | undefined;
  readonly eosIds: readonly number[];
}

export class ModelText {
  /** What a request takes that says nothing. */
  readonly defaults: SamplingOptions;
  /** Keys of generation_config.json that nothing is made of. */
  readonly ignored: readonly string[];
  /** What of it is broken. */
  readonly notices: readonly Notice[];
  /** What another thread makes itself the same of; null without a tokenizer. */
  readonly origin: TextOrigin | null;
  readonly #parts: Parts | null;
  readonly #toolFormat: ToolFormat | null;
  readonly #toolFormats = new Map<string, ToolFormat>();
  readonly #spelled = new Map<ToolFormat, readonly number[]>();
  #thoughtTokens: readonly number[] | null = null;
  #words: { readonly speller: Speller; readonly breakers: BreakerFinder } | null = null;

  private constructor(
    parts: Parts | null,
    origin: TextOrigin | null,
    defaults: SamplingOptions,
    ignored: readonly string[] = [],
    notices: readonly Notice[] = [],
    toolFormat: ToolFormat | null = null,
  ) {
    this.#toolFormat = toolFormat;
    this.#parts = parts;
    this.origin = origin;
    this.defaults = defaults;
    this.ignored = ignored;
    this.notices = notices;
  }

  /**
   * `toolFormat`: its name, default what the model shows. Errors: those of the tokenizer and generation_config.json; a broken
   * template is one of chats alone.
   */
  static async load(place: TextPlace, toolFormat?: string): Promise<ModelText> {
    const format = toolFormat === undefined ? null : toolFormatNamed(toolFormat);
    const files = await textFiles(place);
    const tokenizer = await files.tokenizer();
    const template = await findTemplate(files, tokenizer);
    const { defaults, eosTokenIds, ignored, notices } = await files.generation(tokenizer);
    const broken: Notice[] = template instanceof KvantError ? [brokenNotice(template)] : [];
    const origin = { kind: 'folder', ...place } as const;
    const parts = { tokenizer, template, eosIds: eosTokenIds };
    const known = [...notices, ...broken];
    return new ModelText(parts, origin, samplingDefaults(defaults), ignored, known, format);
  }

  /** What tasks need on a thread of their own: no defaults, and the bytes of tokens only once they are asked for. */
  static async forTasks(origin: TextOrigin): Promise<ModelText> {
    if (origin.kind === 'stand-in') return ModelText.standIn(origin.vocab);
    const files = await textFiles(origin);
    const tokenizer = await files.tokenizer({ lazily: true });
    const template = await findTemplate(files, tokenizer);
    return new ModelText({ tokenizer, template, eosIds: [] }, origin, {});
  }

  /** For made-up weights that are to read and write text: see stand-in.ts. No id ends an answer. */
  static async standIn(vocab: number): Promise<ModelText> {
    const { standInTemplate, standInTokenizer } = await import('../text/stand-in.js');
    const parts = { tokenizer: standInTokenizer(vocab), template: standInTemplate(), eosIds: [] };
    return new ModelText(parts, { kind: 'stand-in', vocab }, {});
  }

  /** For weights without a tokenizer. */
  static none(): ModelText {
    return new ModelText(null, null, {});
  }

  /** For biases, bans and breakers given as texts; null without a tokenizer. */
  get words(): { readonly speller: Speller; readonly breakers: BreakerFinder } | null {
    if (this.#parts !== null) this.#words ??= wordsOf(this.#parts.tokenizer);
    return this.#words;
  }

  /** Also where it is broken: a chat is then refused, and never taken for a raw prompt. */
  get hasChatTemplate(): boolean {
    return this.#parts?.template !== undefined;
  }

  get tokenTable(): TokenTable | null {
    return this.#parts?.tokenizer.tokenTable ?? null;
  }

  get eosIds(): readonly number[] | null {
    return this.#parts === null ? [] : this.#parts.eosIds;
  }

  /** `onTokens`: told now and then how many there are so far; may throw, to end it. */
  encode(text: string, addSpecialTokens: boolean, onTokens?: (count: number) => void): Int32Array {
    return this.#require().tokenizer.encode(text, {
      addSpecialTokens,
      ...(onTokens === undefined ? {} : { onTokens }),
    });
  }

  /** Two texts as a pair: see Tokenizer.encodePair. */
  encodePair(
    first: string,
    second: string,
    most: number,
    onTokens?: (count: number) => void,
  ): { readonly ids: Int32Array; readonly all: number } | null {
    return this.#require().tokenizer.encodePair(first, second, most, onTokens);
  }

  /** So many tokens a text has at least, by its length alone. */
  fewestTokens(text: string): number {
    return this.#require().tokenizer.fewestTokens(text);
  }

  decode(ids: readonly number[]): string {
    return this.#require().tokenizer.decode(ids);
  }

  /** The bytes of an id's token; of a special one only if they are wanted. Empty for an id that has no token. */
  bytesOf(id: number, special: boolean): Uint8Array {
    const table = this.tokenTable;
    const leftOut = table === null || (!special && (table.flags[id]! & TOKEN_SPECIAL) !== 0);
    return leftOut ? new Uint8Array(0) : tokenBytes(table, id);
  }

  /** The id of a token, by its text; undefined for one that there is not. */
  idOf(token: string): number | undefined {
    return this.#require().tokenizer.idOf(token);
  }

  /** How a token is written, a special one too. */
  spellingOf(id: number): string {
    return new TextDecoder().decode(this.bytesOf(id, true));
  }

  /** `images`: parts `{ type: 'image' }` are pictures. */
  render(messages: readonly EngineChatMessage[], options: RenderChatOptions, images = false): string {
    const { template } = this.#require();
    if (template === undefined)
      throw new KvantError('chat-template-missing', 'The model has no chat template.', {
        kind: 'invalid-request',
        where: 'messages',
        fix: `It is a base model: send it a raw prompt, or use its chat-tuned sibling. ${PUT_ONE}`,
      });
    if (template instanceof KvantError) throw template;
    const given = forTemplate(options, template);
    template.checkTools(given);
    return template.render(messages, { ...given, images });
  }

  /** What of a conversation that was rendered the template makes nothing of. */
  unread(messages: readonly EngineChatMessage[], options: RenderChatOptions): readonly Unread[] {
    const template = this.#template;
    return template?.unread(messages, forTemplate(options, template)) ?? [];
  }

  /**
   * Whether an answer to this conversation may begin with thoughts. They count only where they are taken apart from the answer.
   *
   * @param promptEnd the end of the rendered prompt
   */
  thoughts({ tools, parseReasoning = true }: ChatRequest, promptEnd: string): Thoughts | null {
    const { frame } = this.toolFormat({ tools });
    if (frame !== undefined) {
      const begins = frame.begins(promptEnd);
      if (begins === 'thoughts') return { state: 'open', marks: frame.thoughts };
      return begins === 'message' && parseReasoning ? { state: 'allowed', marks: frame.thoughts } : null;
    }
    const opened = openedIn(promptEnd);
    if (opened !== undefined) return { state: 'open', marks: opened };
    const marks = parseReasoning ? (this.#template?.thoughts({ tools }) ?? null) : null;
    if (marks === null || promptEnd.includes(marks.close)) return null;
    return { state: 'allowed', marks };
  }

  /** The format that frames an answer to this conversation; null where none does, or the prompt has begun what is said. */
  frame({ tools }: ChatRequest, promptEnd: string): string | null {
    const { name, frame } = this.toolFormat({ tools });
    return frame === undefined || frame.begins(promptEnd) === 'text' ? null : name;
  }

  /** How a block of thoughts that is too long is ended. */
  thinkingBudget(tokens: number, { state, marks }: Thoughts): ThinkingBudget {
    const { open, close, end = close } = marks;
    return { tokens, open: state === 'open', marks: { open, close }, close: [...this.encode(end, false)] };
  }

  /** In which the model writes tool calls. */
  toolFormat({ tools }: { readonly tools?: readonly unknown[] | undefined }): ToolFormat {
    if (this.#toolFormat !== null) return this.#toolFormat;
    const template = this.#template?.source({ tools }) ?? '';
    let format = this.#toolFormats.get(template);
    if (format === undefined) {
      format = toolFormatOf(this.#cluesOf(template));
      this.#toolFormats.set(template, format);
    }
    return format;
  }

  /** What a grammar of calls is made by: the template for tools, and tokens. */
  tokenClues(): TokenClues {
    return this.#cluesOf(this.#template?.source({ tools: [{}] }) ?? '');
  }

  #cluesOf(template: string): TokenClues {
    const tokenizer = this.#parts?.tokenizer;
    const idOf = (text: string): number | undefined => tokenizer?.idOf(text);
    return { template, idOf, hasToken: (text) => idOf(text) !== undefined };
  }

  /** Special tokens that mark calls in a format: its parser is to see them. */
  spelledIn(format: ToolFormat): readonly number[] {
    let ids = this.#spelled.get(format);
    if (ids === undefined) {
      ids = this.#specialOf(format.tokens ?? []);
      this.#spelled.set(format, ids);
    }
    return ids;
  }

  /** Special tokens that mark thoughts: what takes them apart is to see them. */
  thoughtTokens(): readonly number[] {
    this.#thoughtTokens ??= this.#specialOf(THOUGHT_MARKS.flatMap(tokensOf));
    return this.#thoughtTokens;
  }

  #specialOf(tokens: readonly string[]): readonly number[] {
    const tokenizer = this.#parts?.tokenizer;
    return tokens.flatMap((token) => {
      const id = tokenizer?.idOf(token);
      return id !== undefined && tokenizer!.specialIds.has(id) ? [id] : [];
    });
  }

  /** The template where it works. */
  get #template(): ChatTemplate | undefined {
    const template = this.#parts?.template;
    return template instanceof ChatTemplate ? template : undefined;
  }

  #require(): Parts {
    if (this.#parts !== null) return this.#parts;
    throw new KvantError('tokenizer-missing', 'These weights have no tokenizer.', {
      kind: 'invalid-request',
      where: 'prompt',
      fix: 'Send token ids.',
    });
  }
}

/** The template of a model, or what a chat is refused with where it does not compile. */
async function findTemplate(
  files: TextFiles,
  tokenizer: Tokenizer,
): Promise<ChatTemplate | KvantError | undefined> {
  try {
    return await files.template(tokenizer);
  } catch (cause) {
    if (!(cause instanceof KvantError) || cause.code !== 'chat-template-broken') throw cause;
    return new KvantError('chat-template-broken', cause.message, {
      kind: 'unsupported',
      ...(cause.where === undefined ? {} : { where: cause.where }),
      fix: 'Send a raw prompt (/v1/completions, or --raw), which works without the template; or correct the template.',
      cause,
    });
  }
}

function brokenNotice(error: KvantError): Notice {
  return {
    message: 'the chat template is broken: chats are refused, raw prompts work',
    fields: { code: error.code, where: error.where, reason: error.message },
  };
}

function forTemplate(
  { tools, addGenerationPrompt, templateOptions, reasoningEffort }: RenderChatOptions,
  template: ChatTemplate,
): RenderOptions {
  const kwargs =
    reasoningEffort === undefined
      ? templateOptions
      : effortVariables(
          reasoningEffort,
          { source: template.source({ tools }), thinks: template.thoughts({ tools }) !== null },
          templateOptions ?? {},
        );
  return { tools, addGenerationPrompt, kwargs };
}

function wordsOf(tokenizer: Tokenizer): { speller: Speller; breakers: BreakerFinder } {
  const { tokenTable } = tokenizer;
  const speller: Speller = {
    size: tokenTable.size,
    bytesOf: (id) => tokenBytes(tokenTable, id),
    spell: (text) => tokenizer.encode(text, { addSpecialTokens: false }),
  };
  return { speller, breakers: new BreakerFinder(speller) };
}

function samplingDefaults(defaults: GenerationDefaults): SamplingOptions {
  const { temperature, topK, topP, minP, typicalP, repetitionPenalty, maxNewTokens } = defaults;
  return {
    ...(temperature === undefined ? {} : { temperature }),
    ...(topK === undefined ? {} : { topK }),
    ...(topP === undefined ? {} : { topP }),
    ...(minP === undefined ? {} : { minP }),
    ...(typicalP === undefined ? {} : { typicalP }),
    ...(repetitionPenalty === undefined ? {} : { repetitionPenalty }),
    ...(maxNewTokens === undefined ? {} : { maxTokens: maxNewTokens }),
  };
}
