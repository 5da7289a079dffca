/** `str.format`. */
import { bind, REQUIRED } from './arguments.js';
import { PythonError, typeError, valueError } from './errors.js';
import { convert, formatValue } from './format-spec.js';
import { escapeHtml } from './markup.js';
import { escapeCode } from './quote.js';
import { repr } from './repr.js';
import { getAttribute, getItem } from './subscript.js';
import { type Arguments, Callable, Dict, Markup, textOf, typeName, type Value } from './values.js';

/** `text.format` and `text.format_map`; fields reach no more of a value than a template does. */
export function formatMethod(origin: Value, text: string, name: 'format' | 'format_map'): Callable {
  const wrap = (formatted: string): Value => (origin instanceof Markup ? new Markup(formatted) : formatted);
  return new Callable(name, (args) => {
    if (name === 'format') return wrap(new Formatter(args, origin instanceof Markup).format(text, 2));
    const [mapping] = bind(name, [['/mapping', REQUIRED]], args);
    if (!(mapping instanceof Dict)) throw typeError(`'${typeName(mapping!)}' object is not a mapping`);
    const keywords = new Map(
      mapping.entries().flatMap(([key, value]) => {
        const word = textOf(key);
        return word === undefined ? [] : [[word, value] as const];
      }),
    );
    return wrap(new Formatter({ positional: [], keywords }, origin instanceof Markup).format(text, 2));
  });
}

class Formatter {
  readonly #args: Arguments;
  readonly #html: boolean;
  /** The next number of a field without one; undefined once a field had one. */
  #next: number | undefined = 0;

  constructor(args: Arguments, html: boolean) {
    this.#args = args;
    this.#html = html;
  }

  format(text: string, depth: number): string {
    if (depth < 0) throw valueError('Max string recursion exceeded');
    let out = '';
    for (let at = 0; at < text.length; ) {
      const character = text[at]!;
      if (character !== '{' && character !== '}') {
        out += character;
        at++;
      } else if (text[at + 1] === character) {
        out += character;
        at += 2;
      } else if (character === '}') {
        throw valueError("Single '}' encountered in format string");
      } else {
        const end = closing(text, at);
        out += this.#field(text.slice(at + 1, end), depth);
        at = end + 1;
      }
    }
    return out;
  }

  #field(field: string, depth: number): string {
    // The name ends at the first `!` or `:` outside of brackets.
    const match = /^((?:\[[^\]]*\]|[^!:[])*)(?:!(.?))?(?::(.*))?$/s.exec(field);
    if (match === null) throw valueError("expected ':' after conversion specifier");
    const [, name = '', conversion, spec = ''] = match;
    if (field.includes('!') && conversion === '')
      throw valueError('end of string while looking for conversion specifier');
    const value = this.#value(name);
    const made = conversion === undefined ? value : convert(value, conversion, ascii);
    const formatted = this.format(spec, depth - 1);
    if (!this.#html) return formatValue(made, formatted);
    return made instanceof Markup ? made.text : escapeHtml(formatValue(made, formatted));
  }

  #value(name: string): Value {
    const first = /^[^.[]*/.exec(name)![0];
    let value = this.#argument(name, first);
    let rest = name.slice(first.length);
    while (rest !== '') {
      const attribute = /^\.([^.[]+)/.exec(rest);
      const item = attribute === null ? /^\[([^\]]+)\]/.exec(rest) : null;
      const part = attribute ?? item;
      if (part === null) throw valueError('Empty attribute in format string');
      const key = part[1]!;
      value =
        attribute !== null ? getAttribute(value, key) : getItem(value, /^\d+$/.test(key) ? BigInt(key) : key);
      rest = rest.slice(part[0].length);
    }
    return value;
  }

  /** @param first where the field's name begins: what follows it is read of that argument */
  #argument(name: string, first: string): Value {
    if (name === '') {
      if (this.#next === undefined) {
        throw valueError('cannot switch from manual field specification to automatic field numbering');
      }
      return this.#positional(this.#next++);
    }
    if (/^\d+$/.test(name)) {
      if (this.#next !== undefined && this.#next > 0) {
        throw valueError('cannot switch from manual field specification to automatic field numbering');
      }
      this.#next = undefined;
    }
    if (/^\d+$/.test(first)) return this.#positional(Number(first));
    const value = this.#args.keywords.get(first);
    if (value === undefined) throw new PythonError('KeyError', repr(first));
    return value;
  }

  #positional(index: number): Value {
    const value = this.#args.positional[index];
    if (value === undefined) {
      throw new PythonError(
        'IndexError',
        `Replacement index ${index} out of range for positional args tuple`,
      );
    }
    return value;
  }
}

/** Where the field that opens at `start` closes. */
function closing(text: string, start: number): number {
  let open = 0;
  for (let at = start; at < text.length; at++) {
    if (text[at] === '[' && open === 1) {
      const bracket = text.indexOf(']', at);
      if (bracket >= 0) at = bracket;
    } else if (text[at] === '{') open++;
    else if (text[at] === '}' && --open === 0) return at;
  }
  throw valueError(
    start === text.length - 1
      ? "Single '{' encountered in format string"
      : "expected '}' before end of string",
  );
}

/** `ascii(value)` */
export function ascii(value: Value): string {
  return repr(value).replace(/[^\0-\x7f]/gu, escapeCode);
}
