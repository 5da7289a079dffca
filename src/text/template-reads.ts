/**
 * What of a request a chat template makes anything of. The rest would be dropped in silence, so callers are told.
 *
 * A name that does not occur in a template's source is not read, unless the template prints a message whole, which a try shows.
 * One that does occur may be read; where it often means something else, a try decides as well.
 */
import type { JsonObject } from './json-file.js';

/** Renders with these variables; undefined where the template fails. */
export type Attempt = (variables: Readonly<Record<string, unknown>>) => string | undefined;

const SAMPLE = 'a-sample-text';
const MARK = 'a-sample-field';

/** `name` is what tools and functions have, too. */
const COMMON_NAMES = new Set(['name']);

export class TemplateReads {
  readonly #source: string;
  readonly #attempt: Attempt;
  readonly #fields = new Map<string, boolean>();
  #tools: boolean | undefined;

  constructor(source: string, attempt: Attempt) {
    this.#source = source;
    this.#attempt = attempt;
  }

  /** A variable of the template, such as `enable_thinking`. */
  variable(name: string): boolean {
    return this.#mentions(name);
  }

  /** A field of messages, such as `refusal`. */
  field(name: string): boolean {
    let reads = this.#fields.get(name);
    if (reads === undefined) {
      reads = this.#mentions(name) && !COMMON_NAMES.has(name) ? true : this.#shows(name);
      // Names are the client's: no more of them are kept than templates have.
      if (this.#fields.size < MOST_FIELDS) this.#fields.set(name, reads);
    }
    return reads;
  }

  /** A list of tools. `given`: variables of the request, which may say how to show them. */
  tools(given: Readonly<Record<string, unknown>> = {}): boolean {
    if (this.#tools === undefined) this.#tools = this.#showsTools();
    return this.#tools || (Object.keys(given).length > 0 && this.#mentions('tools'));
  }

  #mentions(name: string): boolean {
    if (name === '') return false;
    // A name is a client's: looked for, not compiled into a pattern.
    for (let at = this.#source.indexOf(name); at >= 0; at = this.#source.indexOf(name, at + 1))
      if (!isWord(this.#source[at - 1]) && !isWord(this.#source[at + name.length])) return true;
    return false;
  }

  /** Whether it makes a difference in any message that has it. */
  #shows(name: string): boolean {
    const conversations = CONVERSATIONS.filter((messages) => this.#render(messages) !== undefined);
    return conversations.some((messages) => {
      const marked = messages.map((message) => ({ ...message, [name]: MARK }));
      return this.#render(marked) !== this.#render(messages);
    });
  }

  #showsTools(): boolean {
    let tried = false;
    for (const messages of CONVERSATIONS) {
      const text = this.#render(messages, [TOOL]);
      if (text?.includes(MARK) === true) return true;
      tried ||= text !== undefined;
    }
    // A template that failed with tools may want other ones.
    return !tried && this.#mentions('tools');
  }

  #render(messages: readonly JsonObject[], tools: readonly JsonObject[] | null = null): string | undefined {
    return this.#attempt({ messages, tools });
  }
}

const MOST_FIELDS = 256;

const CONVERSATIONS: readonly (readonly JsonObject[])[] = [
  [{ role: 'user', content: SAMPLE }],
  [
    { role: 'system', content: SAMPLE },
    { role: 'user', content: SAMPLE },
  ],
  [
    { role: 'user', content: SAMPLE },
    { role: 'assistant', content: SAMPLE },
    { role: 'user', content: SAMPLE },
  ],
];

const TOOL: JsonObject = {
  type: 'function',
  function: {
    name: MARK,
    description: MARK,
    parameters: { type: 'object', properties: { [MARK]: { type: 'string' } }, required: [MARK] },
  },
};

function isWord(character: string | undefined): boolean {
  return character !== undefined && /\w/.test(character);
}
