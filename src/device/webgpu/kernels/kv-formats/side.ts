/** One side, keys or values, of a layer's cache, as a kernel sees it. */

import type { KvFormat } from '../../../kv.js';

/** Places of the parts of a side's buffer, in u32 words (kv-layout.ts). */
export interface KvLayout {
  /** Words of one vector. */
  readonly words: number;
  /** Words that go with a (head, token), or with two heads of a token; 0 for floats. */
  readonly groups: number;
  /** Heads, or pairs of heads. */
  readonly metaHeads: number;
  /** First word of the metadata, and of the tables: multiples of four, but for floats. */
  readonly metaAt: number;
  readonly tablesAt: number;
  readonly bytes: number;
}

export interface KvSideSpec<Name extends string = string> {
  /** The binding: keys or values, or float-start ones. */
  readonly name: Name;
  readonly format: KvFormat;
  readonly headDim: number;
  readonly layout: KvLayout;
  /** Its words are bound as atomic ones: several workgroups change bytes of a word. */
  readonly atomic?: boolean;
}

/** Expressions of the numbers that a side's texts need; layers differ in them and share the text. */
export interface KvSideNumbers {
  readonly kvHeads: string;
  readonly blockTokens: string;
  readonly metaAt: string;
  readonly tablesAt: string;
}

/** Expression: word i of a side's tables, as f32. */
export function tableWord(side: KvSideSpec, numbers: KvSideNumbers, i: string): string {
  const word = `${side.name}[${numbers.tablesAt} + ${i}]`;
  return `bitcast<f32>(${side.atomic === true ? `atomicLoad(&${word})` : word})`;
}

/** Expression: the vector of the side that is KV head `kv` at (`block`, `token_at`). */
export function vectorText(n: KvSideNumbers): string {
  return `((block * ${n.kvHeads} + kv) * ${n.blockTokens} + token_at)`;
}

/** The first lines of a reader's function, which leave `vector`. */
export function readerHead(name: string, n: KvSideNumbers): string {
  return `fn ${name}_four(block: u32, kv: u32, token: u32, vec: u32) -> vec4<f32> {
  let vector = (block * ${n.kvHeads} + kv) * ${n.blockTokens} + token;`;
}

/** Expression of the signs of thread `lid`: of the vector's four dims, of the first for those that have none. */
export function signsText(side: KvSideSpec, n: KvSideNumbers): string {
  const dims = [0, 1, 2, 3].map((i) => tableWord(side, n, `min(lid, ${side.headDim / 4 - 1}u) * 4u + ${i}u`));
  return `vec4<f32>(${dims.join(', ')})`;
}
