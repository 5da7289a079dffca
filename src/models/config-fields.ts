/**
 * Reading config.json by hand: each getter checks one field and says what is wrong with it. Where a field has had
 * several names the first one that is there counts; `null` counts as absent.
 */

import { KvantError } from '../errors.js';
import type { JsonObject } from '../weights/folder-files.js';

export class ConfigFields {
  /** Names the object in errors: `config.json` or `config.json: rope_parameters`. */
  readonly where: string;
  readonly #json: JsonObject;

  constructor(json: JsonObject, where: string) {
    this.#json = json;
    this.where = where;
  }

  /** True if the field is there, even as `null`. */
  states(name: string): boolean {
    return Object.hasOwn(this.#json, name);
  }

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

  /** A finite number above 0. */
  positive(names: string | readonly string[], fallback?: number): number {
    return this.positiveOrNull(names) ?? fallback ?? this.#missing(names);
  }

  positiveOrNull(names: string | readonly string[]): number | null {
    const found = this.#find(asList(names));
    if (found === undefined) return null;
    const [name, value] = found;
    if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0)
      throw this.odd(name, value, 'a number above 0');
    return value;
  }

  flag(name: string, fallback: boolean): boolean {
    const found = this.#find([name]);
    if (found === undefined) return fallback;
    if (typeof found[1] !== 'boolean') throw this.odd(name, found[1], 'true or false');
    return found[1];
  }

  text(names: string | readonly string[]): string | null {
    const found = this.#find(asList(names));
    if (found === undefined) return null;
    if (typeof found[1] !== 'string') throw this.odd(found[0], found[1], 'a string');
    return found[1];
  }

  texts(name: string): readonly string[] | null {
    const found = this.#find([name]);
    if (found === undefined) return null;
    const value = found[1];
    if (!Array.isArray(value) || !value.every((item) => typeof item === 'string'))
      throw this.odd(name, value, 'a list of strings');
    return value;
  }

  /** Token ids: one, or a list of them. */
  ids(name: string): readonly number[] {
    const found = this.#find([name]);
    if (found === undefined) return [];
    const list: unknown[] = Array.isArray(found[1]) ? found[1] : [found[1]];
    if (!list.every((id) => Number.isSafeInteger(id) && (id as number) >= 0))
      throw this.odd(name, found[1], 'a token id or a list of them');
    return list as number[];
  }

  object(name: string): ConfigFields | null {
    const found = this.#find([name]);
    if (found === undefined) return null;
    const value = found[1];
    if (typeof value !== 'object' || Array.isArray(value)) throw this.odd(name, value, 'an object');
    return new ConfigFields(value as JsonObject, `${this.where}: ${name}`);
  }

  odd(name: string, value: unknown, wanted: string): KvantError {
    const shown = JSON.stringify(value) ?? String(value);
    const short = shown.length > 80 ? `${shown.slice(0, 77)}…` : shown;
    return new KvantError('model-config', `${this.where}: "${name}" is ${short}; ${wanted} is needed`, {
      kind: 'model',
      where: name,
      fix: 'Fetch config.json again: it should be the one published with the weights.',
    });
  }

  unsupported(name: string, what: string, fix: string): KvantError {
    return new KvantError('model-config-unsupported', `${this.where}: ${what} is not supported`, {
      kind: 'unsupported',
      where: name,
      fix,
    });
  }

  #find(names: readonly string[]): readonly [string, unknown] | undefined {
    for (const name of names) {
      const value = Object.hasOwn(this.#json, name) ? this.#json[name] : undefined;
      if (value !== undefined && value !== null) return [name, value];
    }
    return undefined;
  }

  #missing(names: string | readonly string[]): never {
    const [name] = asList(names);
    throw new KvantError('model-config', `${this.where} has no "${name}"`, {
      kind: 'model',
      where: name as string,
      fix: 'Fetch config.json again: it should be the one published with the weights.',
    });
  }
}

function asList(names: string | readonly string[]): readonly string[] {
  return typeof names === 'string' ? [names] : names;
}
