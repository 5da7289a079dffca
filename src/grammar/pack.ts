/** Rules as typed arrays over shared memory. */

import { createHash } from 'node:crypto';
import type { Automaton, State } from './automaton.js';
import type { Budget } from './limits.js';
import { plainDepths } from './plain-text.js';
import { partsOf, type Rule } from './rules.js';
import { type GrammarTables, NO_END, STATE } from './tables.js';

/** `order`: numbers of the rules that are packed, as they are numbered from then on. */
export function packTables(
  rules: readonly Rule[],
  order: readonly number[],
  budget: Budget,
): Omit<GrammarTables, 'left'> {
  const packed = order.map((number) => rules[number]!);
  const numbers = new Int32Array(rules.length);
  order.forEach((number, i) => {
    numbers[number] = i;
  });
  const states = packed.flatMap((rule) => partsOf(rule).flat());
  const count = (edges: (state: State) => readonly unknown[]): number =>
    states.reduce((sum, state) => sum + edges(state).length, 0);
  const [bytes, calls, tokens] = [
    count((state) => state.bytes),
    count((state) => state.calls),
    count((state) => state.tokens),
  ] as const;
  budget.spend(2 * states.length + bytes + calls + tokens);
  const made = {
    start: shared(Int32Array, packed.length),
    min: shared(Int32Array, packed.length),
    max: shared(Int32Array, packed.length),
    item: shared(Int32Array, packed.length),
    tail: shared(Int32Array, packed.length),
    ruleOf: shared(Int32Array, states.length),
    flags: shared(Uint8Array, states.length),
    byteAt: shared(Int32Array, states.length + 1),
    byteLow: shared(Uint8Array, bytes),
    byteHigh: shared(Uint8Array, bytes),
    byteTo: shared(Int32Array, bytes),
    callAt: shared(Int32Array, states.length + 1),
    callRule: shared(Int32Array, calls),
    callTo: shared(Int32Array, calls),
    tokenAt: shared(Int32Array, states.length + 1),
    tokenId: shared(Int32Array, tokens),
    tokenTo: shared(Int32Array, tokens),
  };
  let [at, byte, call, token] = [0, 0, 0, 0];
  const put = (automaton: Automaton, rule: number, end: number): number => {
    const base = at;
    for (const state of automaton) {
      const last = state.bytes.length + state.calls.length + state.tokens.length === 0;
      made.ruleOf[at] = rule;
      made.flags[at] = (state.final ? end : 0) | (last && end === STATE.FINAL ? STATE.LAST : 0);
      for (const { low, high, to } of state.bytes) {
        made.byteLow[byte] = low;
        made.byteHigh[byte] = high;
        made.byteTo[byte++] = base + to;
      }
      for (const { number, to } of state.calls) {
        made.callRule[call] = numbers[number]!;
        made.callTo[call++] = base + to;
      }
      for (const { number, to } of state.tokens) {
        made.tokenId[token] = number;
        made.tokenTo[token++] = base + to;
      }
      at++;
      made.byteAt[at] = byte;
      made.callAt[at] = call;
      made.tokenAt[at] = token;
    }
    return base;
  };
  packed.forEach(({ head, loop }, i) => {
    made.max[i] = -1;
    made.start[i] = put(head, i, loop === null ? STATE.FINAL : STATE.HEAD_END);
    if (loop === null) return;
    made.item[i] = put(loop.item, i, STATE.ITEM_END);
    made.tail[i] = put(loop.tail, i, STATE.FINAL);
    made.min[i] = Math.min(loop.min, NO_END - 1);
    made.max[i] = loop.max === null ? NO_END : Math.min(loop.max, NO_END - 1);
  });
  const key = createHash('sha256');
  for (const array of Object.values(made))
    key.update(`${array.length};`).update(new Uint8Array(array.buffer));
  return {
    key: key.digest('base64'),
    ruleKeys: packed.map((rule) => keyOf(partsOf(rule))),
    loopKeys: packed.map(({ loop }) => (loop === null ? '' : keyOf([loop.item, loop.tail]))),
    plain: plainDepths(made, budget),
    ...made,
  };
}

/** The same for parts that go the same ways; empty where one calls others. */
function keyOf(parts: readonly Automaton[]): string {
  if (parts.some((automaton) => automaton.some(({ calls }) => calls.length > 0))) return '';
  const numbers: number[] = [parts.length];
  for (const automaton of parts) {
    numbers.push(automaton.length);
    for (const { bytes, tokens, final } of automaton) {
      numbers.push(final ? 1 : 0, bytes.length, tokens.length);
      for (const { low, high, to } of bytes) numbers.push(low * 256 + high, to);
      for (const { number, to } of tokens) numbers.push(number, to);
    }
  }
  return createHash('sha256').update(Int32Array.from(numbers)).digest('base64');
}

type Typed<A> = {
  readonly BYTES_PER_ELEMENT: number;
  new (buffer: SharedArrayBuffer): A;
};

function shared<A>(kind: Typed<A>, length: number): A {
  return new kind(new SharedArrayBuffer(kind.BYTES_PER_ELEMENT * length));
}
