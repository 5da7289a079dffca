/**
 * Reads config.json field by field. A getter names the field and the type that it must have, and returns the value or throws an
 * error that says what is wrong. A field that is `null` counts as absent. Where a field has had several names, the first
 * one that is there counts. Odd spellings that transformers takes, such as numbers as text, are taken here too.
 */

import { KvantError } from '../errors.js';
import type { Notice } from '../notice.js';
import { readTokenIds } from '../text/token-ids.js';
import type { JsonObject } from '../weights/folder-files.js';

/**
 * The fields of one object of config.json, for the families' `readConfig`. Errors of getters: `model-config`.
 *
 *     const heads = fields.count('num_attention_heads'); // required: an error where it is absent
 *     const kvHeads = fields.count(['num_key_value_heads', 'n_head_kv'], heads); // either name, or as many as heads
 *
 * It remembers which fields were asked for (`wasRead`), also where a family reads a changed copy (`withDefaults`, `replacing`): after
 * the config is read, structure that nobody looked at is refused (structure-fields.ts).
 */
export class ConfigFields {
  /** Names the object in errors: `config.json` or `config.json: rope_parameters`. */
  readonly where: string;
  /** What was odd and was read all the same, in the objects within as well. */
  readonly notices: Notice[];
  readonly #json: JsonObject;
  /** Names that were asked for, of all copies of these fields. */
  readonly #read: Set<string>;
  /** Of the objects within, by name. */
  readonly #within: Map<string, ConfigFields>;

  constructor(
    json: JsonObject,
    where: string,
    notices: Notice[] = [],
    read = new Set<string>(),
    within = new Map<string, ConfigFields>(),
  ) {
    this.#json = json;
    this.#read = read;
    this.#within = within;
    this.where = where;
    this.notices = notices;
  }

  /** True if there is no field that is not `null`. */
  get empty(): boolean {
    return !this.has(...Object.keys(this.#json));
  }

  /** The fields as they were read. */
  get json(): JsonObject {
    return this.#json;
  }

  /** The same fields, with others where they are absent or `null`. */
  withDefaults(defaults: JsonObject): ConfigFields {
    const stated = Object.entries(this.#json).filter(([, value]) => value !== null);
    const all = { ...defaults, ...Object.fromEntries(stated) };
    return new ConfigFields(all, this.where, this.notices, this.#read, this.#within);
  }

  /** The same fields, with others where they are absent; a `null` stays. */
  whereAbsent(defaults: JsonObject): ConfigFields {
    return new ConfigFields(
      { ...defaults, ...this.#json },
      this.where,
      this.notices,
      this.#read,
      this.#within,
    );
  }

  /** The same fields but for one. */
  replacing(name: string, value: unknown): ConfigFields {
    return new ConfigFields(
      { ...this.#json, [name]: value },
      this.where,
      this.notices,
      this.#read,
      this.#within,
    );
  }

  /** True if somebody asked for the field, in these fields or a copy of them. */
  wasRead(name: string): boolean {
    return this.#read.has(name);
  }

  /** Names that somebody asked for. */
  readNames(): readonly string[] {
    return [...this.#read];
  }

  /** What was read of an object within, null if nobody asked for it. */
  readWithin(name: string): ConfigFields | null {
    return this.#within.get(name) ?? null;
  }

  /** True if the field is there, even as `null`. */
  states(name: string): boolean {
    this.#read.add(name);
    return Object.hasOwn(this.#json, name);
  }

  /** True if one of the fields is there and not `null`. */
  has(...names: string[]): boolean {
    return this.#find(names) !== undefined;
  }

  /** A whole number of at least `min` (1 if omitted). Required where there is no fallback. */
  count(names: string | readonly string[], fallback?: number, min = 1): number {
    const found = this.#find(asList(names));
    if (found === undefined) return fallback ?? this.#missing(names);
    const [name, value] = found;
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < min)
      throw this.odd(name, value, `a whole number of at least ${min}`);
    return value;
  }

  /** A finite number above 0, or its text: in YAML, which some configs come from, `1e-5` is a string. */
  positive(names: string | readonly string[], fallback?: number): number {
    return this.positiveOrNull(names) ?? fallback ?? this.#missing(names);
  }

  positiveOrNull(names: string | readonly string[]): number | null {
    const found = this.#find(asList(names));
    if (found === undefined) return null;
    const [name, value] = found;
    const number = asNumber(value);
    if (!(number > 0 && number < Number.POSITIVE_INFINITY)) throw this.odd(name, value, 'a number above 0');
    return number;
  }

  /** As {@link positive}, or 0. */
  atLeastZero(name: string, fallback: number): number {
    const found = this.#find([name]);
    if (found === undefined) return fallback;
    return asNumber(found[1]) === 0 ? 0 : this.positive(name);
  }

  /** The field as it stands, for what no other getter reads; null if absent. */
  value(name: string): unknown {
    return this.#find([name])?.[1] ?? null;
  }

  /** True or false, and no other spelling of them. */
  flag(name: string, fallback: boolean): boolean {
    const found = this.#find([name]);
    if (found === undefined) return fallback;
    if (typeof found[1] !== 'boolean') throw this.odd(name, found[1], 'true or false');
    return found[1];
  }

  /** A string; null if absent. */
  text(names: string | readonly string[]): string | null {
    const found = this.#find(asList(names));
    if (found === undefined) return null;
    if (typeof found[1] !== 'string') throw this.odd(found[0], found[1], 'a string');
    return found[1];
  }

  /** A list of strings; one alone is a list of one. */
  texts(name: string): readonly string[] | null {
    const found = this.#find([name]);
    if (found === undefined) return null;
    const value = typeof found[1] === 'string' ? [found[1]] : found[1];
    if (!Array.isArray(value) || !value.every((item) => typeof item === 'string'))
      throw this.odd(name, value, 'a list of strings');
    return value;
  }

  /** A list of whole numbers of at least 0. */
  numbers(name: string): readonly number[] | null {
    const found = this.#find([name]);
    if (found === undefined) return null;
    const [, value] = found;
    if (!Array.isArray(value) || !value.every((item) => Number.isSafeInteger(item) && item >= 0))
      throw this.odd(name, value, 'a list of whole numbers');
    return value;
  }

  /** Token ids: one, or a list of them. Where there is none some tools write -1. */
  ids(name: string): readonly number[] {
    const found = this.#find([name]);
    if (found === undefined) return [];
    const ids = readTokenIds(found[1]);
    if (ids === undefined) throw this.odd(name, found[1], 'a token id or a list of them');
    return ids;
  }

  /** An object; `false` is none. */
  object(name: string): ConfigFields | null {
    const found = this.#find([name]);
    if (found === undefined || found[1] === false) return null;
    const value = found[1];
    if (typeof value !== 'object' || Array.isArray(value)) throw this.odd(name, value, 'an object');
    const where = `${this.where}: ${name}`;
    const known = this.#within.get(name);
    const within =
      known === undefined
        ? new ConfigFields(value as JsonObject, where, this.notices)
        : new ConfigFields(value as JsonObject, where, this.notices, known.#read, known.#within);
    this.#within.set(name, within);
    return within;
  }

  /** Says that something odd was read all the same. */
  notice(message: string, fields: Readonly<Record<string, unknown>>): void {
    this.notices.push({ message, fields });
  }

  /** The error for a field that is not what is `wanted`: `a list of strings`. */
  odd(name: string, value: unknown, wanted: string): KvantError {
    const shown = typeof value === 'number' ? String(value) : (JSON.stringify(value) ?? String(value));
    const short = shown.length > 80 ? `${shown.slice(0, 77)}…` : shown;
    return new KvantError('model-config', `${this.where}: "${name}" is ${short}; ${wanted} is needed`, {
      kind: 'model',
      where: name,
      fix: this.#again(),
    });
  }

  /** The error for what a config says and kvant does not compute; `what` begins the sentence that `is not supported` ends. */
  unsupported(name: string, what: string, fix: string): KvantError {
    return new KvantError('model-config-unsupported', `${this.where}: ${what} is not supported`, {
      kind: 'unsupported',
      where: name,
      fix,
    });
  }

  #find(names: readonly string[]): readonly [string, unknown] | undefined {
    for (const name of names) {
      this.#read.add(name);
      const value = Object.hasOwn(this.#json, name) ? this.#json[name] : undefined;
      if (value !== undefined && value !== null) return [name, value];
    }
    return undefined;
  }

  #again(): string {
    return this.where.startsWith('config.json')
      ? 'Fetch config.json again: it should be the one published with the weights.'
      : 'Fetch the file again, or have it converted again with a current version of the tool that made it.';
  }

  #missing(names: string | readonly string[]): never {
    const [name] = asList(names);
    throw new KvantError('model-config', `${this.where} has no "${name}"`, {
      kind: 'model',
      where: name as string,
      fix: this.#again(),
    });
  }
}

/** NaN for what is no number. */
function asNumber(value: unknown): number {
  if (typeof value === 'string' && value.trim() !== '') return Number(value);
  return typeof value === 'number' ? value : Number.NaN;
}

function asList(names: string | readonly string[]): readonly string[] {
  return typeof names === 'string' ? [names] : names;
}
