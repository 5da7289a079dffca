import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { KvantError } from '../errors.js';
import { SHOWN_CHARACTERS, shown, shownEnds } from '../printable.js';
import {
  adaptMessages,
  checkMessages,
  fieldsOf,
  REASONING_FIELDS,
  type TemplateAbilities,
} from './chat-messages.js';
import { checkDepth } from './depth.js';
import { PythonTemplate, TemplateRaised } from './jinja/python-template.js';
import { isJsonObject, type JsonObject, readJsonObject, readTextFile } from './json-file.js';
import { type Attempt, TemplateReads } from './template-reads.js';
import { marksIn, type ThoughtMarks } from './thought-marks.js';
import { checkToolList, toolObjects } from './tool-check.js';
import { toolForTemplate } from './tool-schemas.js';

export interface RenderOptions {
  /** Function tools in OpenAI's form; what the template does with them is its own. `$schema` and the like it does not see. */
  readonly tools?: readonly unknown[] | undefined;
  /** End with the header of an assistant turn, for the model to go on from. Default true. */
  readonly addGenerationPrompt?: boolean | undefined;
  /** Further variables of the template: `enable_thinking`, `documents`, … */
  readonly kwargs?: Readonly<Record<string, unknown>> | undefined;
  /** Which of several named templates; by default `tool_use` with tools where there is one, else `default`. */
  readonly name?: string | undefined;
  /** Parts `{ type: 'image' }` of messages are pictures. Default false. */
  readonly images?: boolean | undefined;
  /** The time that `strftime_now` tells; default the present. */
  readonly now?: Date | undefined;
}

/** Variables that a request may not set: they are what it is made of. */
const RESERVED = ['messages', 'tools', 'add_generation_prompt'];

interface NamedTemplate {
  readonly template: PythonTemplate;
  readonly abilities: TemplateAbilities;
  readonly source: string;
  readonly thoughts: ThoughtMarks | null;
  readonly reads: TemplateReads;
}

/** Mistral's own files have none, for its library writes the prompts. */
export const PUT_ONE = 'If it is chat-tuned, put its chat_template.jinja beside its tokenizer.';

/**
 * The chat template of a model: messages in, prompt text out, as the model saw it in training.
 *
 * The text holds the special tokens already: encode it with `addSpecialTokens: false`.
 */
export class ChatTemplate {
  readonly #templates: ReadonlyMap<string, NamedTemplate>;
  readonly #special: Readonly<Record<string, string>>;

  /**
   * @param sources template text by name; a single one is called `default`
   * @param special `bos_token`, `eos_token` and so on, as the template sees them
   * @throws KvantError `chat-template-broken`
   */
  constructor(
    sources: string | ReadonlyMap<string, string>,
    special: Readonly<Record<string, string>> = {},
    where = 'chat_template',
  ) {
    const named = typeof sources === 'string' ? new Map([['default', sources]]) : sources;
    this.#special = special;
    this.#templates = new Map(
      [...named].map(([name, source]) => {
        const template = compile(source, where);
        const attempt = trial(template, special);
        const reads = new TemplateReads(source, attempt);
        const thoughts = marksIn(source) ?? null;
        return [name, { template, abilities: probe(attempt, source), reads, source, thoughts }];
      }),
    );
  }

  /**
   * The template of a model folder: `chat_template.jinja`, else `chat_template.json`, else that of
   * `tokenizer_config.json`; `undefined` where there is none (a base model).
   *
   * @param stated what the folder's tokenizer took for tokenizer_config.json, its special tokens included (Tokenizer.config). Default: the file
   * @throws KvantError `chat-template-broken`, `tokenizer-broken`
   */
  static async find(folder: string, stated?: JsonObject): Promise<ChatTemplate | undefined> {
    const config =
      stated ?? (await readJsonObject(folder, 'tokenizer_config.json', 'tokenizer-broken')) ?? {};
    const special = specialTokens(config);
    const jinja = await readTextFile(folder, 'chat_template.jinja');
    if (jinja !== undefined) {
      const sources = new Map([['default', jinja], ...(await additionalTemplates(folder))]);
      return new ChatTemplate(sources, special, join(folder, 'chat_template.jinja'));
    }
    const json = await readJsonObject(folder, 'chat_template.json', 'chat-template-broken');
    for (const [source, file] of [
      [json?.chat_template, 'chat_template.json'],
      [config.chat_template, 'tokenizer_config.json'],
    ] as const) {
      if (source === undefined || source === null) continue;
      return new ChatTemplate(sourcesOf(source, join(folder, file)), special, join(folder, file));
    }
    return undefined;
  }

  /** The template within a parsed tokenizer_config.json; undefined where it has none. Errors: `chat-template-broken`. */
  static ofConfig(config: JsonObject, where: string): ChatTemplate | undefined {
    const source = config.chat_template ?? undefined;
    return source === undefined
      ? undefined
      : new ChatTemplate(sourcesOf(source, where), specialTokens(config), where);
  }

  /** As {@link find}, but a folder without a template is an error. */
  static async load(folder: string): Promise<ChatTemplate> {
    const template = await ChatTemplate.find(folder);
    if (template !== undefined) return template;
    throw new KvantError('chat-template-missing', `The model in ${folder} has no chat template`, {
      kind: 'invalid-request',
      where: folder,
      fix: `It is a base model: send it a raw prompt (/v1/completions, or --raw), or use its chat-tuned sibling. ${PUT_ONE}`,
    });
  }

  /** The names of the templates, `default` for the only one. */
  get names(): readonly string[] {
    return [...this.#templates.keys()];
  }

  /**
   * Renders a conversation.
   *
   * @param messages `[{role, content, …}]`, checked here
   * @throws KvantError `invalid-messages`, `unsupported-content`, `invalid-tools`, `invalid-template-kwargs`, `nested-too-deeply`,
   *   `chat-template-raised` (the template refuses the conversation), `chat-template-failed`
   */
  render(messages: unknown, options: RenderOptions = {}): string {
    const { template, abilities } = this.#choose(options);
    checkDepth(messages, 'messages');
    const variables = {
      ...this.#special,
      documents: null,
      ...checkKwargs(options.kwargs ?? {}),
      messages: adaptMessages(checkMessages(messages, { images: options.images ?? false }), abilities),
      tools: readTools(options.tools),
      add_generation_prompt: options.addGenerationPrompt ?? true,
    };
    try {
      return template.render(variables, options.now ?? new Date());
    } catch (cause) {
      const raised = cause instanceof TemplateRaised;
      const reason = shownEnds((cause as Error).message, 2 * SHOWN_CHARACTERS);
      throw new KvantError(
        raised ? 'chat-template-raised' : 'chat-template-failed',
        raised
          ? `The model's chat template refuses the conversation: ${reason}`
          : `The model's chat template cannot render the conversation: ${reason}`,
        {
          kind: 'invalid-request',
          where: 'messages',
          fix: 'Change the order, roles or fields of the messages to what the model expects.',
          cause,
        },
      );
    }
  }

  /** What thoughts stand in that the template knows of; null where it knows of none. */
  thoughts(options: Pick<RenderOptions, 'tools' | 'name'> = {}): ThoughtMarks | null {
    return this.#choose(options).thoughts;
  }

  /** The text of the template that a conversation is rendered with. */
  source(options: Pick<RenderOptions, 'tools' | 'name'> = {}): string {
    return this.#choose(options).source;
  }

  /**
   * Refuses tools that are none, and all tools where the template would not show them.
   *
   * @throws KvantError `invalid-tools`, `unsupported-tool`, `tools-unsupported`
   */
  checkTools(options: RenderOptions): void {
    const { tools = [], kwargs = {} } = options;
    if (checkToolList(tools).length === 0 || this.#choose(options).reads.tools(kwargs)) return;
    throw new KvantError('tools-unsupported', "The model's chat template takes no tools", {
      kind: 'unsupported',
      where: 'tools',
      fix: 'Leave them out: the model would not see them. Or use a model that was trained to call tools.',
    });
  }

  /**
   * What of a conversation that {@link render} takes the template makes nothing of: fields of messages and variables, and the
   * promise of `strict`. Whoever sent it should know.
   */
  unread(messages: readonly JsonObject[], options: RenderOptions = {}): readonly Unread[] {
    const { reads } = this.#choose(options);
    const found: Unread[] = [];
    for (const [name, where] of fieldsOf(messages)) {
      const names = isReasoning(name) ? REASONING_FIELDS : [name];
      if (!names.some((one) => reads.field(one))) found.push({ kind: 'field', name, where });
    }
    const { kwargs = {}, addGenerationPrompt } = options;
    for (const name of Object.keys(kwargs))
      if (!reads.variable(name))
        found.push({ kind: 'variable', name, where: `chat_template_kwargs.${name}` });
    if (addGenerationPrompt === false && !reads.variable('add_generation_prompt'))
      found.push({ kind: 'variable', name: 'add_generation_prompt', where: 'add_generation_prompt' });
    return found;
  }

  #choose(options: RenderOptions): NamedTemplate {
    const withTools =
      options.tools !== undefined && options.tools.length > 0 && this.#templates.has('tool_use');
    const name = options.name ?? (withTools ? 'tool_use' : 'default');
    const chosen = this.#templates.get(name);
    if (chosen !== undefined) return chosen;
    throw new KvantError('chat-template-missing', `The model has no chat template named "${shown(name)}"`, {
      kind: 'invalid-request',
      fix: `Name one of: ${this.names.join(', ')}.`,
    });
  }
}

/** Something of a request that has no effect. */
export interface Unread {
  readonly kind: 'field' | 'variable' | 'format';
  readonly name: string;
  readonly where: string;
}

const isReasoning = (name: string): boolean => (REASONING_FIELDS as readonly string[]).includes(name);

function compile(source: string, where: string): PythonTemplate {
  try {
    return new PythonTemplate(source);
  } catch (cause) {
    throw new KvantError('chat-template-broken', `The chat template is broken: ${(cause as Error).message}`, {
      kind: 'model',
      where,
      fix: 'Fetch the model again, or correct the template; a raw prompt works without it.',
      cause,
    });
  }
}

const SAMPLE = 'a-sample-text';
const ARGUMENT = 'a-sample-argument';
/** An object as Python prints it: no template means that. */
const PRINTED = `{'k': '${ARGUMENT}'}`;

/** Renders what is only a try, at a time that is always the same. */
function trial(template: PythonTemplate, special: Readonly<Record<string, string>>): Attempt {
  const usual = { ...special, documents: null, tools: null, add_generation_prompt: true };
  return (variables) => {
    try {
      return template.render({ ...usual, ...variables }, new Date(0));
    } catch {
      return undefined;
    }
  };
}

/** Tries what the template can read, with conversations whose result shows it. */
function probe(attempt: Attempt, source: string): TemplateAbilities {
  const shows = (messages: readonly JsonObject[], text: string): boolean =>
    attempt({ messages })?.includes(text) === true;
  const user = { role: 'user', content: SAMPLE };
  const userInParts = { role: 'user', content: [{ type: 'text', text: SAMPLE }] };
  const call = (args: unknown, content: string | null = '', more: JsonObject = {}): JsonObject[] => [
    user,
    {
      role: 'assistant',
      content,
      ...more,
      // Some templates insist on an id of nine characters.
      tool_calls: [{ id: '123456789', type: 'function', function: { name: 'f', arguments: args } }],
    },
  ];
  const plain = attempt({ messages: [user] });
  const string = plain?.includes(SAMPLE) === true;
  const parts = attempt({ messages: [userInParts] });
  const [empty, absent] = ['', null].map((content) => attempt({ messages: call({ k: ARGUMENT }, content) }));
  // The sample is quoted once where the arguments are written as they came, more often where they are escaped; brackets around a text
  // of them are doubled where they are the template's own.
  const argument = `"${ARGUMENT}"`;
  const text = `{"k": ${argument}}`;
  // Some templates write calls in several places, or a text in another form than the object that it is of.
  const thought = { reasoning_content: 'a', thinking: 'a', reasoning: 'a' };
  const alike = [['', {}] as const, ['a', {}] as const, ['a', thought] as const].every(([content, more]) => {
    const [asText, asObject] = [text, { k: ARGUMENT }].map((args) =>
      attempt({ messages: call(args, content, more) }),
    );
    const written = asObject?.includes(ARGUMENT) === true && !asObject.includes(PRINTED);
    return !written || asText === asObject;
  });
  const result = { role: 'tool', name: 'f', tool_call_id: '123456789', content: ARGUMENT };
  return {
    content: string ? (parts === plain ? 'both' : 'string') : parts?.includes(SAMPLE) ? 'parts' : 'string',
    argumentText: alike && shows(call(text), argument) && !shows(call(text), `{{"k"`),
    argumentObject: shows(call({ k: ARGUMENT }), ARGUMENT) && !shows(call({ k: ARGUMENT }), PRINTED),
    developerRole: source.includes('developer'),
    nullContent: absent !== undefined && (!absent.includes('None') || empty?.includes('None') === true),
    toolResponses:
      source.includes('tool_responses') && !shows([...call({ k: ARGUMENT }), result], 'tool_response'),
    observations:
      !source.includes('tool_calls') &&
      shows([user, { role: 'assistant', metadata: 'f', content: ARGUMENT }], `f\n${ARGUMENT}`) &&
      shows([user, { role: 'observation', content: ARGUMENT }], ARGUMENT),
  };
}

function readTools(tools: readonly unknown[] | undefined): readonly unknown[] | null {
  // Templates announce tools as soon as there is a list of them.
  if (tools === undefined || (Array.isArray(tools) && tools.length === 0)) return null;
  const objects = toolObjects(tools);
  checkDepth(tools, 'tools');
  return objects.map(toolForTemplate);
}

function checkKwargs(kwargs: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  for (const name of Object.keys(kwargs)) {
    if (!RESERVED.includes(name) && /^[A-Za-z_]\w*$/.test(name)) continue;
    const named = shown(name);
    throw new KvantError('invalid-template-kwargs', `The chat template cannot be given "${named}"`, {
      kind: 'invalid-request',
      where: `chat_template_kwargs.${named}`,
      fix: RESERVED.includes(name)
        ? 'Use the request field of that name.'
        : 'Variables have names of letters, digits and underscores.',
    });
  }
  checkDepth(kwargs, 'chat_template_kwargs');
  return kwargs;
}

function specialTokens(config: JsonObject): Record<string, string> {
  const special: Record<string, string> = {};
  for (const role of ['bos', 'eos', 'unk', 'sep', 'pad', 'cls', 'mask']) {
    const token = config[`${role}_token`];
    const content = isJsonObject(token) ? token.content : token;
    if (typeof content === 'string') special[`${role}_token`] = content;
  }
  return special;
}

async function additionalTemplates(folder: string): Promise<[string, string][]> {
  const directory = join(folder, 'additional_chat_templates');
  const files = await readdir(directory).catch(() => []);
  const found: [string, string][] = [];
  for (const file of files.sort()) {
    if (!file.endsWith('.jinja')) continue;
    const source = await readTextFile(directory, file);
    if (source !== undefined) found.push([file.slice(0, -'.jinja'.length), source]);
  }
  return found;
}

function sourcesOf(source: unknown, where: string): string | Map<string, string> {
  if (typeof source === 'string') return source;
  const named = new Map<string, string>();
  for (const entry of Array.isArray(source) ? (source as unknown[]) : []) {
    if (isJsonObject(entry) && typeof entry.name === 'string' && typeof entry.template === 'string') {
      named.set(entry.name, entry.template);
    }
  }
  if (named.size > 0) return named;
  throw new KvantError(
    'chat-template-broken',
    'The chat template is neither a text nor a list of named texts',
    {
      kind: 'model',
      where,
      fix: 'Fetch the model again, or correct the file.',
    },
  );
}
