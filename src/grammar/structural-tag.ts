/**
 * Text with tags in it, as vLLM, SGLang and xgrammar write it (`structural_tag`): free text up to a trigger, then a tag that begins so,
 * with what is between its begin and its end held to a form. Of both shapes, the older `structures` and `triggers` and the newer `format`.
 */

import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import { type Expression, type Grammar, oneOf, optional, repeat, rule, sequence } from './expression.js';
import { schemaGrammar } from './json/schema.js';
import { anyRules } from './json/terminals.js';
import { type Budget, checkSource, MAX_DEPTH, tooLarge } from './limits.js';
import { regexWords } from './regex.js';
import { Renamer } from './rename.js';
import { hasSpecial, spelled, type TokenNames } from './token-names.js';
import { freeText } from './triggered.js';
import { writtenGrammar } from './written.js';

type Json = Readonly<Record<string, unknown>>;

const ROOT = 'text with tags';
const SHARED: ReadonlySet<string> = new Set(anyRules().map(([name]) => name));

/**
 * @param source its JSON text
 * Errors: `invalid-structural-tag` with the place, those of schemas, patterns and grammars in it, `grammar-too-large`.
 */
export function structuralTagGrammar(source: string, budget: Budget, names: TokenNames): Grammar {
  checkSource(source);
  return new Tags(budget, names).grammar(objectAt('', parsed(source)));
}

class Tags {
  readonly #rules = new Map<string, Expression>(anyRules());
  readonly #budget: Budget;
  readonly #names: TokenNames;
  #parts = 0;
  #depth = 0;

  constructor(budget: Budget, names: TokenNames) {
    this.#budget = budget;
    this.#names = names;
  }

  grammar(whole: Json): Grammar {
    if (whole.type !== undefined && whole.type !== 'structural_tag')
      throw invalid('/type', 'is "structural_tag"');
    this.#rules.set(ROOT, 'structures' in whole ? this.#older(whole) : this.#newer(whole));
    return { rules: this.#rules, root: ROOT };
  }

  #newer(whole: Json): Expression {
    refuseOthers('', whole, ['type', 'format']);
    return this.#format('/format', objectAt('/format', whole.format), []);
  }

  /** `structures`: `begin`, `schema` and `end` of each. */
  #older(whole: Json): Expression {
    refuseOthers('', whole, ['type', 'structures', 'triggers']);
    const tags = listAt('/structures', whole.structures).map((tag, i) => {
      const at = `/structures/${i}`;
      const { begin, schema = true, end, ...others } = objectAt(at, tag);
      refuseOthers(at, others, []);
      return { type: 'tag', begin, content: { type: 'json_schema', json_schema: schema }, end };
    });
    return this.#triggered('', { tags, triggers: whole.triggers }, [], '/structures');
  }

  /** `ends`: texts that end what the format stands in: free text in it has none of them. */
  #format(at: string, format: Json, ends: readonly string[]): Expression {
    if (++this.#depth > MAX_DEPTH) throw tooLarge(`has more than ${MAX_DEPTH} formats within formats`);
    const made = this.#made(at, format, ends);
    this.#depth--;
    return made;
  }

  #made(at: string, format: Json, ends: readonly string[]): Expression {
    const { type } = format;
    const only = (...names: readonly string[]): void => refuseOthers(at, format, ['type', ...names]);
    switch (type) {
      case 'const_string':
        only('value');
        return spelled(textAt(`${at}/value`, format.value), this.#names);
      case 'json_schema':
        only('json_schema', 'style');
        if (format.style !== undefined && format.style !== 'json') throw invalid(`${at}/style`, 'is "json"');
        return this.#part(schemaGrammar(format.json_schema, this.#budget));
      case 'regex':
        only('pattern');
        return {
          kind: 'words',
          words: regexWords(textAt(`${at}/pattern`, format.pattern), false, this.#budget),
          spelling: 'text',
        };
      case 'grammar':
        only('grammar');
        return this.#part(writtenGrammar(textAt(`${at}/grammar`, format.grammar), this.#budget, this.#names));
      case 'any_text': {
        only('excludes');
        const excludes = format.excludes === undefined ? [] : textsAt(`${at}/excludes`, format.excludes);
        return this.#free(at, [...ends, ...excludes]);
      }
      case 'sequence': {
        only('elements');
        const elements = listAt(`${at}/elements`, format.elements);
        return sequence(
          ...elements.map((element, i) => {
            const where = `${at}/elements/${i}`;
            const inner = objectAt(where, element);
            // Where free text ends is told by what ends the whole, and by nothing behind it.
            if (i < elements.length - 1 && isFree(inner))
              throw invalid(where, 'has free text and stands last in its sequence');
            return this.#format(where, inner, ends);
          }),
        );
      }
      case 'or':
        only('elements');
        return oneOf(
          listAt(`${at}/elements`, format.elements).map((element, i) =>
            this.#format(`${at}/elements/${i}`, objectAt(`${at}/elements/${i}`, element), ends),
          ),
        );
      case 'tag':
        return this.#tag(at, format);
      case 'triggered_tags':
        only('triggers', 'tags', 'at_least_one', 'stop_after_first', 'excludes');
        return this.#triggered(at, format, ends, `${at}/tags`);
      case 'tags_with_separator': {
        only('tags', 'separator', 'at_least_one', 'stop_after_first');
        const tag = this.#anyOf(`${at}/tags`, format.tags);
        const separator = spelled(textAt(`${at}/separator`, format.separator), this.#names);
        const more = flagAt(`${at}/stop_after_first`, format.stop_after_first)
          ? tag
          : sequence(tag, repeat(sequence(separator, tag), 0, null));
        return flagAt(`${at}/at_least_one`, format.at_least_one) ? more : optional(more);
      }
      default:
        throw invalid(
          `${at}/type`,
          'is "const_string", "json_schema", "regex", "grammar", "any_text", "sequence", "or", "tag", "triggered_tags" or "tags_with_separator"',
        );
    }
  }

  #tag(at: string, tag: Json): Expression {
    refuseOthers(at, tag, ['type', 'begin', 'content', 'end']);
    if (tag.type !== undefined && tag.type !== 'tag') throw invalid(`${at}/type`, 'is "tag"');
    const begin = textAt(`${at}/begin`, tag.begin);
    const ends = typeof tag.end === 'string' ? [tag.end] : textsAt(`${at}/end`, tag.end);
    if (ends.length === 0) throw invalid(`${at}/end`, 'is a text, or a list of some');
    const inner = objectAt(`${at}/content`, tag.content);
    if (ends.includes('') && isFree(inner)) throw invalid(`${at}/end`, 'is not empty behind free text');
    const content = this.#format(`${at}/content`, inner, ends);
    return sequence(
      spelled(begin, this.#names),
      content,
      oneOf(ends.map((end) => spelled(end, this.#names))),
    );
  }

  #anyOf(at: string, value: unknown): Expression {
    const tags = listAt(at, value);
    if (tags.length === 0) throw invalid(at, 'has at least one tag');
    return oneOf(tags.map((tag, i) => this.#tag(`${at}/${i}`, objectAt(`${at}/${i}`, tag))));
  }

  #triggered(at: string, format: Json, ends: readonly string[], tagsAt: string): Expression {
    const triggers = textsAt(`${at}/triggers`, format.triggers);
    const tags = listAt(tagsAt, format.tags);
    if (triggers.length === 0 || triggers.includes(''))
      throw invalid(`${at}/triggers`, 'has texts, none of them empty');
    tags.forEach((tag, i) => {
      const begin = textAt(`${tagsAt}/${i}/begin`, objectAt(`${tagsAt}/${i}`, tag).begin);
      if (!triggers.some((trigger) => begin.startsWith(trigger)))
        throw invalid(`${tagsAt}/${i}/begin`, 'begins with one of the triggers');
    });
    const tag = this.#anyOf(tagsAt, tags);
    const excludes = format.excludes === undefined ? [] : textsAt(`${at}/excludes`, format.excludes);
    const free = this.#free(at, [...triggers, ...ends, ...excludes]);
    const once = flagAt(`${at}/stop_after_first`, format.stop_after_first);
    // One that has to be there stands first.
    if (flagAt(`${at}/at_least_one`, format.at_least_one))
      return once ? tag : sequence(tag, repeat(sequence(free, tag), 0, null), free);
    return once ? sequence(free, optional(tag)) : sequence(repeat(sequence(free, tag), 0, null), free);
  }

  /** Text without any of these. Special tokens stand in no text, so those need not be kept out. */
  #free(at: string, marks: readonly string[]): Expression {
    const plain = marks.filter((mark) => mark !== '' && !hasSpecial(mark, this.#names));
    checkMarks(at, plain);
    if (plain.length > 0) return freeText(plain, this.#budget);
    return { kind: 'words', words: regexWords('[^]*', false, this.#budget), spelling: 'text' };
  }

  /** The rules of a form of its own. */
  #part(grammar: Grammar): Expression {
    const renamer = new Renamer(`part-${this.#parts++}:`, { shared: SHARED });
    for (const [name, expression] of renamer.rules(grammar)) this.#rules.set(name, expression);
    return rule(renamer.name(grammar.root));
  }
}

/** Text of which only what stands behind it can say where it ends. */
function isFree(format: Json): boolean {
  const { type, elements } = format;
  if (type === 'any_text' || type === 'triggered_tags') return true;
  return (
    (type === 'sequence' || type === 'or') &&
    Array.isArray(elements) &&
    elements.some((one) => typeof one === 'object' && one !== null && isFree(one as Json))
  );
}

/** So that in a text it can be told where the first one is: none begins within another, or within itself. */
function checkMarks(at: string, marks: readonly string[]): void {
  for (const mark of marks)
    for (const other of marks)
      for (let from = 1; from < mark.length; from++)
        if (other.startsWith(mark.slice(from, from + other.length)))
          throw invalid(
            at,
            `has free text up to "${shown(mark)}" and "${shown(other)}", of which one begins within the other`,
          );
}

function parsed(source: string): unknown {
  try {
    return JSON.parse(source) as unknown;
  } catch {
    throw invalid('', 'is JSON');
  }
}

function refuseOthers(at: string, value: Json, names: readonly string[]): void {
  for (const name of Object.keys(value))
    if (!names.includes(name)) throw invalid(`${at}/${shown(name)}`, 'is not known here');
}

function objectAt(at: string, value: unknown): Json {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Json;
  throw invalid(at, 'is an object');
}

function listAt(at: string, value: unknown): readonly unknown[] {
  if (Array.isArray(value)) return value as readonly unknown[];
  throw invalid(at, 'is a list');
}

function textAt(at: string, value: unknown): string {
  if (typeof value === 'string') return value;
  throw invalid(at, 'is a text');
}

const textsAt = (at: string, value: unknown): string[] =>
  listAt(at, value).map((one, i) => textAt(`${at}/${i}`, one));

function flagAt(at: string, value: unknown): boolean {
  if (value === undefined || value === null) return false;
  if (typeof value === 'boolean') return value;
  throw invalid(at, 'is true or false');
}

function invalid(at: string, what: string): KvantError {
  const place = at === '' ? 'A structural tag' : `\`${at}\` of the structural tag`;
  return new KvantError('invalid-structural-tag', `${place} ${what}.`, {
    kind: 'invalid-request',
    where: 'structuralTag',
    fix: 'Write {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f="], "tags": [{"begin": "<f=a>", "content": {"type": "json_schema", "json_schema": {…}}, "end": "</f>"}]}}.',
  });
}
