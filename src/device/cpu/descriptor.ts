/**
 * A program as the threads read it: words in the first memory.
 *
 * Head, then for each mirror of the step (memory, address), then the segments: runs of commands in one memory, with
 * the activations to be carried into it first.
 */
import type { StepSlice } from '../device.js';
import { cutOf } from '../slices.js';

export const D_STEP = 0;
export const D_STEP_BYTES = 1;
export const D_TOKENS = 2;
export const D_LAST = 3;
export const D_SLOTS = 4;
export const D_OUTPUT_SLOTS = 5;
/** Where the sampled ids are: memory and address. No sampling: NO_MEMORY. */
export const D_IDS_MEMORY = 6;
export const D_IDS = 7;
/** Where they are gathered in the first memory, if they are in another. */
export const D_IDS_HERE = 8;
export const D_MIRRORS = 9;
export const D_SEGMENTS = 10;
/** Where hidden rows are: memory and address, bytes of a row. A program without: NO_MEMORY. */
export const D_HIDDEN_MEMORY = 11;
export const D_HIDDEN = 12;
export const D_HIDDEN_BYTES = 13;
/** Where the step says which are asked for, in words from its address; and where they go, in bytes from that of the result. */
export const D_HIDDEN_LIST = 14;
export const D_HIDDEN_RESULT = 15;
export const D_HEAD = 16;
export const NO_MEMORY = 0xffff_ffff;

/** Kinds of ring entries: `[kind, descriptor, inbox, result]`. */
export const ENTRY_STEP = 0;
export const ENTRY_MESSAGE = 1;
export const ENTRY_EXIT = 2;

/** An activation carried from one memory to another before a segment. */
export interface RowCopy {
  readonly fromMemory: number;
  readonly from: number;
  readonly to: number;
  readonly rowBytes: number;
  /** Word offset, in the step, of the count of its rows. */
  readonly rows: number;
}

export interface Segment {
  readonly memory: number;
  readonly commands: number;
  readonly count: number;
  readonly copies: readonly RowCopy[];
}

/**
 * What a part of a step runs of the segments. `starts`: of each the words before each of its commands. A segment that is cut brings
 * its activations where it begins.
 */
export function sliceOf(
  segments: readonly Segment[],
  starts: readonly Uint32Array[],
  { from, to, of }: StepSlice,
): Segment[] {
  const total = segments.reduce((sum, { count }) => sum + count, 0);
  const [begin, end] = [cutOf(total, from, of), cutOf(total, to, of)];
  let before = 0;
  return segments.flatMap((segment, s) => {
    const first = Math.max(begin - before, 0);
    const last = Math.min(end - before, segment.count);
    before += segment.count;
    if (first >= last) return [];
    const commands = segment.commands + starts[s]![first]! * 4;
    return [{ ...segment, commands, count: last - first, copies: first === 0 ? segment.copies : [] }];
  });
}

export interface Descriptor {
  readonly step: number;
  readonly stepBytes: number;
  readonly tokens: number;
  readonly last: number;
  readonly slots: number;
  readonly outputSlots: number;
  readonly ids: { readonly memory: number; readonly at: number } | null;
  readonly idsHere: number;
  /** Default: the program has none, or this half of a step brings none. */
  readonly hidden?: {
    readonly memory: number;
    readonly at: number;
    readonly rowBytes: number;
    readonly list: number;
    readonly result: number;
  } | null;
  readonly mirrors: readonly { readonly memory: number; readonly at: number }[];
  readonly segments: readonly Segment[];
}

export function encodeDescriptor(d: Descriptor): Uint32Array {
  const words = [
    d.step,
    d.stepBytes,
    d.tokens,
    d.last,
    d.slots,
    d.outputSlots,
    d.ids?.memory ?? NO_MEMORY,
    d.ids?.at ?? 0,
    d.idsHere,
    d.mirrors.length,
    d.segments.length,
    d.hidden?.memory ?? NO_MEMORY,
    d.hidden?.at ?? 0,
    d.hidden?.rowBytes ?? 0,
    d.hidden?.list ?? 0,
    d.hidden?.result ?? 0,
  ];
  for (const { memory, at } of d.mirrors) words.push(memory, at);
  for (const { memory, commands, count, copies } of d.segments) {
    words.push(memory, commands, count, copies.length);
    for (const c of copies) words.push(c.fromMemory, c.from, c.to, c.rowBytes, c.rows);
  }
  return Uint32Array.from(words);
}
