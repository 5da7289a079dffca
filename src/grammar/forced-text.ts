/** Stretches of a grammar in which one text may come and no other: keys, tags, what is left of a listed value. */

import { type GrammarTables, STATE } from './tables.js';

/** Bytes that have to come, one behind the other. */
export interface ForcedText {
  readonly bytes: Uint8Array;
  /** `[bytes]`: the state before each byte, −1 for those of rules that are called on the way: who else calls them is not known there. */
  readonly states: Int32Array;
}

/** Longer ones are cut. */
const MAX_BYTES = 256;
/** Rules within rules on the way. */
const MAX_CALLS = 16;

/** All that begin where something else could have been before, in the order of their states. */
export function forcedTexts(tables: GrammarTables): ForcedText[] {
  const { byteAt, byteTo, ruleOf } = tables;
  const heads: number[] = [];
  const led = new Uint8Array(ruleOf.length);
  for (let state = 0; state < ruleOf.length; state++)
    if (leadsOn(tables, state)) led[byteTo[byteAt[state]!]!] = 1;
  for (let state = 0; state < ruleOf.length; state++)
    if (led[state] === 0 && leadsOn(tables, state)) heads.push(state);
  const found: ForcedText[] = [];
  const seen = new Set(heads);
  for (const head of heads) {
    const { text, next } = textFrom(tables, head);
    found.push(text);
    if (next < 0 || seen.has(next)) continue;
    seen.add(next);
    heads.push(next);
  }
  return found;
}

/** `next`: where it goes on behind a cut, −1 where it does not. */
function textFrom(tables: GrammarTables, head: number): { text: ForcedText; next: number } {
  const { flags, start, byteAt, byteLow, byteTo, callAt, callRule, callTo } = tables;
  const bytes: number[] = [];
  const states: number[] = [];
  const back: number[] = [];
  let state = head;
  // Rules of nothing take no bytes, but each step goes on in one of a finite number of rules.
  for (let calls = 0; bytes.length < MAX_BYTES && calls < MAX_BYTES; ) {
    if (leadsOn(tables, state)) {
      states.push(back.length === 0 ? state : -1);
      bytes.push(byteLow[byteAt[state]!]!);
      state = byteTo[byteAt[state]!]!;
    } else if (callsOn(tables, state) && back.length < MAX_CALLS) {
      calls++;
      back.push(callTo[callAt[state]!]!);
      state = start[callRule[callAt[state]!]!]!;
    } else if ((flags[state]! & STATE.LAST) !== 0 && back.length > 0) state = back.pop()!;
    else break;
  }
  const isCut = bytes.length === MAX_BYTES && back.length === 0 && leadsOn(tables, state);
  return {
    text: { bytes: Uint8Array.from(bytes), states: Int32Array.from(states) },
    next: isCut ? state : -1,
  };
}

/** One byte may come, and nothing else. */
function leadsOn(
  { flags, byteAt, byteLow, byteHigh, callAt, tokenAt }: GrammarTables,
  state: number,
): boolean {
  const edge = byteAt[state]!;
  return (
    flags[state] === 0 &&
    byteAt[state + 1] === edge + 1 &&
    byteLow[edge] === byteHigh[edge] &&
    callAt[state] === callAt[state + 1] &&
    tokenAt[state] === tokenAt[state + 1]
  );
}

/** One rule is called, and nothing else may come. */
function callsOn({ flags, byteAt, callAt, tokenAt }: GrammarTables, state: number): boolean {
  return (
    flags[state] === 0 &&
    byteAt[state] === byteAt[state + 1] &&
    callAt[state + 1] === callAt[state]! + 1 &&
    tokenAt[state] === tokenAt[state + 1]
  );
}
