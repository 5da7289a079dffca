/** What every template can call. */
import { bind, REQUIRED } from './arguments.js';
import { fromKeys } from './container-methods.js';
import { PythonError, TemplateRaised, typeError, valueError } from './errors.js';
import { iterate, listOf } from './operators.js';
import { quote } from './quote.js';
import { repr, str } from './repr.js';
import { strftime } from './strftime.js';
import {
  type Arguments,
  Callable,
  Dict,
  integerOf,
  isList,
  Namespace,
  NativeObject,
  Range,
  Tuple,
  textOf,
  typeName,
  type Value,
} from './values.js';

/** @param now the time that `strftime_now` tells */
export function globals(now: Date): ReadonlyMap<string, Value> {
  return new Map<string, Value>([
    ['range', new Callable('range', range)],
    ['dict', new DictType()],
    ['namespace', new Callable('namespace', namespace)],
    ['cycler', new Callable('cycler', ({ positional }) => new Cycler(positional))],
    ['joiner', new Callable('joiner', (args) => joiner(str(bind('joiner', [['sep', ', ']], args)[0]!)))],
    [
      'lipsum',
      new Callable('lipsum', () => {
        throw new PythonError('RuntimeError', 'lipsum() gives random text: kvant does not have it');
      }),
    ],
    [
      'raise_exception',
      new Callable('raise_exception', (args) => {
        throw new TemplateRaised(str(bind('raise_exception', [['message', REQUIRED]], args)[0]!));
      }),
    ],
    [
      'strftime_now',
      new Callable('strftime_now', (args) => {
        const [format] = bind('strftime_now', [['format', REQUIRED]], args);
        const text = textOf(format!);
        if (text === undefined)
          throw typeError(`strftime() argument 1 must be str, not ${typeName(format!)}`);
        return strftime(now, text);
      }),
    ],
  ]);
}

function range({ positional, keywords }: Arguments): Value {
  if (keywords.size > 0) throw typeError('range() takes no keyword arguments');
  const [first, second, third] = positional.map((value) => {
    const integer = integerOf(value);
    if (integer === undefined)
      throw typeError(`'${typeName(value)}' object cannot be interpreted as an integer`);
    return integer;
  });
  if (first === undefined) throw typeError('range expected at least 1 argument, got 0');
  if (positional.length > 3) throw typeError(`range expected at most 3 arguments, got ${positional.length}`);
  return second === undefined ? new Range(0n, first, 1n) : new Range(first, second, third ?? 1n);
}

/** `dict(mapping or pairs, **more)` */
function makeDict({ positional, keywords }: Arguments): Dict {
  if (positional.length > 1) throw typeError(`dict expected at most 1 argument, got ${positional.length}`);
  const dict = new Dict();
  const [source] = positional;
  if (source instanceof Dict) for (const [key, value] of source.entries()) dict.set(key, value);
  else if (source !== undefined) {
    let at = 0;
    for (const pair of iterate(source)) {
      const items =
        textOf(pair) !== undefined || isList(pair) || pair instanceof Tuple ? listOf(pair) : undefined;
      if (items === undefined) {
        throw typeError(`cannot convert dictionary update sequence element #${at} to a sequence`);
      }
      if (items.length !== 2) {
        throw valueError(
          `dictionary update sequence element #${at} has length ${items.length}; 2 is required`,
        );
      }
      dict.set(items[0]!, items[1]!);
      at++;
    }
  }
  for (const [key, value] of keywords) dict.set(key, value);
  return dict;
}

class DictType extends NativeObject {
  readonly typeName = 'TemplateDict';
  override readonly call = makeDict;

  attribute(name: string): Value | undefined {
    return name === 'fromkeys' ? fromKeys() : undefined;
  }

  repr(): string {
    return '<TemplateDict object at 0x0>';
  }
}

function namespace(args: Arguments): Value {
  const attributes = new Map<string, Value>();
  for (const [key, value] of makeDict(args).entries()) {
    const name = textOf(key);
    if (name === undefined) continue;
    checkAttribute(name);
    attributes.set(name, value);
  }
  return new Namespace(attributes);
}

/** @throws PythonError for a name that a namespace may not have */
export function checkAttribute(name: string): void {
  if (!name.startsWith('_')) return;
  throw new PythonError(
    'SecurityError',
    `Chat templates cannot store underscore-prefixed attributes on a namespace, but got ${quote(name)}.`,
  );
}

class Cycler extends NativeObject {
  readonly typeName = 'Cycler';
  readonly #items: readonly Value[];
  #at = 0;

  constructor(items: readonly Value[]) {
    super();
    if (items.length === 0) throw new PythonError('RuntimeError', 'at least one item has to be provided');
    this.#items = items;
  }

  attribute(name: string): Value | undefined {
    switch (name) {
      case 'items':
        return new Tuple(this.#items);
      case 'pos':
        return BigInt(this.#at);
      case 'current':
        return this.#items[this.#at];
      case 'next':
        return new Callable(name, () => {
          const item = this.#items[this.#at]!;
          this.#at = (this.#at + 1) % this.#items.length;
          return item;
        });
      case 'reset':
        return new Callable(name, () => {
          this.#at = 0;
          return null;
        });
      default:
        return undefined;
    }
  }

  repr(): string {
    return `<Cycler object of ${repr(new Tuple(this.#items))}>`;
  }
}

/** Nothing at first, then what goes between. */
function joiner(separator: string): Callable {
  let used = false;
  return new Callable('joiner', () => {
    const text = used ? separator : '';
    used = true;
    return text;
  });
}
