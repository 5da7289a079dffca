import { typeError } from './errors.js';
import { equals, iterate, size } from './operators.js';
import {
  type Arguments,
  Callable,
  Dict,
  DictView,
  isList,
  NativeObject,
  orElse,
  Range,
  Tuple,
  textOf,
  Undefined,
  type Value,
} from './values.js';

/** The variable `loop`. Items are taken from the iterable one ahead, and only when something asks for the next. */
export class Loop extends NativeObject {
  readonly typeName = 'LoopContext';
  override readonly call: (args: Arguments) => Value;

  readonly #iterable: Value;
  readonly #depth0: number;
  #items: globalThis.Iterator<Value>;
  #index0 = -1;
  #length: number | undefined;
  /** The item after the current one, where it was asked for: undefined at the end. */
  #after: { readonly item: Value | undefined } | undefined;
  #before: Value | undefined;
  #current: Value | undefined;
  #changed: readonly Value[] | undefined;

  /** @param recurse renders the loop's body over other items, one level deeper; null where the loop is not recursive */
  constructor(iterable: Value, depth0: number, recurse: ((items: Value, depth0: number) => Value) | null) {
    super();
    this.#iterable = iterable;
    this.#depth0 = depth0;
    this.#items = iterate(iterable);
    this.call = ({ positional }) => {
      if (recurse === null)
        throw typeError("The loop must have the 'recursive' marker to be called recursively.");
      if (positional.length !== 1)
        throw typeError(`a loop is called with one iterable, not ${positional.length}`);
      return recurse(positional[0]!, depth0 + 1);
    };
  }

  /** Steps on to the next item; undefined at the end. */
  next(): Value | undefined {
    const item = this.#after === undefined ? this.#take() : this.#after.item;
    this.#after = undefined;
    if (item === undefined) return undefined;
    this.#index0++;
    this.#before = this.#current;
    this.#current = item;
    return item;
  }

  #take(): Value | undefined {
    const step = this.#items.next();
    return step.done === true ? undefined : step.value;
  }

  #peek(): Value | undefined {
    this.#after ??= { item: this.#take() };
    return this.#after.item;
  }

  override length(): number {
    if (this.#length !== undefined) return this.#length;
    const it = this.#iterable;
    if (
      textOf(it) !== undefined ||
      isList(it) ||
      it instanceof Tuple ||
      it instanceof Dict ||
      it instanceof DictView ||
      it instanceof Range
    ) {
      this.#length = size(it);
    } else {
      const rest: Value[] = [];
      for (let item = this.#take(); item !== undefined; item = this.#take()) rest.push(item);
      this.#items = rest[Symbol.iterator]();
      this.#length = rest.length + this.#index0 + 1 + (this.#after?.item === undefined ? 0 : 1);
    }
    return this.#length;
  }

  attribute(name: string): Value | undefined {
    switch (name) {
      case 'index':
        return BigInt(this.#index0 + 1);
      case 'index0':
        return BigInt(this.#index0);
      case 'revindex':
        return BigInt(this.length() - this.#index0);
      case 'revindex0':
        return BigInt(this.length() - this.#index0 - 1);
      case 'length':
        return BigInt(this.length());
      case 'first':
        return this.#index0 === 0;
      case 'last':
        return this.#peek() === undefined;
      case 'depth':
        return BigInt(this.#depth0 + 1);
      case 'depth0':
        return BigInt(this.#depth0);
      case 'previtem':
        return orElse(this.#before, new Undefined('there is no previous item'));
      case 'nextitem':
        return orElse(this.#peek(), new Undefined('there is no next item'));
      case 'cycle':
        return new Callable(name, ({ positional }) => {
          if (positional.length === 0) throw typeError('no items for cycling given');
          return positional[this.#index0 % positional.length]!;
        });
      case 'changed':
        return new Callable(name, ({ positional }) => {
          const last = this.#changed;
          if (last !== undefined && equals(new Tuple(last), new Tuple(positional))) return false;
          this.#changed = positional;
          return true;
        });
      default:
        return undefined;
    }
  }

  repr(): string {
    return `<LoopContext ${this.#index0 + 1}/${this.length()}>`;
  }
}
