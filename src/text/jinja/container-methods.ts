/** Methods of list, tuple, range and dict. Those that change one are not for templates. */
import { method, REQUIRED } from './arguments.js';
import { valueError } from './errors.js';
import { toIndex } from './numbers.js';
import { equals, iterate } from './operators.js';
import { repr } from './repr.js';
import { type Callable, Dict, DictView, orElse, type Range, type Tuple, type Value } from './values.js';

export function listMethod(list: readonly Value[], name: string): Callable | undefined {
  if (name === 'copy') return method(name, [], () => [...list]);
  return sequenceMethod(list, name, 'list');
}

export function tupleMethod(tuple: Tuple, name: string): Callable | undefined {
  return sequenceMethod(tuple.items, name, 'tuple');
}

function sequenceMethod(items: readonly Value[], name: string, what: string): Callable | undefined {
  if (name === 'count') {
    return method(name, [['/value', REQUIRED]], (value) =>
      BigInt(items.filter((item) => equals(item, value!)).length),
    );
  }
  if (name !== 'index') return undefined;
  const parameters = [
    ['/value', REQUIRED],
    ['/start', 0n],
    ['/stop', BigInt(items.length)],
  ] as const;
  return method(name, parameters, (value, start, stop) => {
    const place = (bound: Value): number => {
      const at = toIndex(bound);
      return at < 0 ? Math.max(0, at + items.length) : at;
    };
    const end = Math.min(place(stop!), items.length);
    for (let i = place(start!); i < end; i++) if (equals(items[i]!, value!)) return BigInt(i);
    throw valueError(what === 'list' ? `${repr(value!)} is not in list` : 'tuple.index(x): x not in tuple');
  });
}

export function rangeMethod(range: Range, name: string): Value | undefined {
  if (name === 'start' || name === 'stop' || name === 'step') return range[name];
  return sequenceMethod(
    Array.from({ length: range.length }, (_, i) => range.at(i)),
    name,
    'range',
  );
}

export function dictMethod(dict: Dict, name: string): Callable | undefined {
  switch (name) {
    case 'get':
      return method(
        name,
        [
          ['/key', REQUIRED],
          ['/default', null],
        ],
        (key, fallback) => orElse(dict.get(key!), fallback!),
      );
    case 'keys':
    case 'values':
    case 'items':
      return method(name, [], () => new DictView(name, dict));
    case 'copy':
      return method(name, [], () => new Dict(dict.entries()));
    case 'fromkeys':
      return fromKeys();
    default:
      return undefined;
  }
}

/** `dict.fromkeys(iterable, value)` */
export function fromKeys(): Callable {
  return method(
    'fromkeys',
    [
      ['/iterable', REQUIRED],
      ['/value', null],
    ],
    (keys, value) => {
      const dict = new Dict();
      for (const key of iterate(keys!)) dict.set(key, value!);
      return dict;
    },
  );
}
