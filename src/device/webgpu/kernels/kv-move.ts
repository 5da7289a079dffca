/**
 * Moves whole blocks of one layer as they are stored: out of the caches into a buffer where blocks lie as kv-block.ts
 * says (`gather`), back (`scatter`), or within the caches (`copy`). Every plane is whole vectors of four words.
 */

import { type Binding, declareBindings, Params, type Stage } from '../kernel.js';

export type Move = 'gather' | 'scatter' | 'copy';

/** One side of a layer, counted in vectors of four words. */
export interface MoveSide {
  /** The codes, and what goes with them, of one block. */
  readonly codes: number;
  readonly meta: number;
  /** Where the latter begin in the buffer. */
  readonly metaAt: number;
  /** Id of the first block in the buffer. */
  readonly first: number;
}

export interface MoveShape {
  readonly keys: MoveSide;
  readonly values: MoveSide;
  /** Where the layer begins in a block, and the length of a block. */
  readonly at: number;
  readonly block: number;
}

const THREADS = 64;

/**
 * Roles: pairs, keys, values; bytes, but for `copy`. Dispatched over (units, blocks). `pairs`: ids of source and target;
 * the place in `bytes` is the index of the pair.
 */
export function moveStage(move: Move, shape: MoveShape): Stage & { readonly units: number } {
  const { keys, values } = shape;
  const p = new Params();
  const side = (s: MoveSide) => ({
    codes: p.u32(s.codes),
    meta: p.u32(s.meta),
    metaAt: p.u32(s.metaAt),
    first: p.u32(s.first),
  });
  const k = side(keys);
  const v = side(values);
  const at = p.u32(shape.at);
  const block = p.u32(shape.block);
  const cache = move === 'gather' ? 'read' : 'read_write';
  const type = 'array<vec4<u32>>';
  const bindings: Binding[] = [
    { name: 'pairs', access: 'read', type: 'array<vec2<u32>>' },
    { name: 'keys', access: cache, type },
    { name: 'values', access: cache, type },
  ];
  if (move !== 'copy')
    bindings.push({ name: 'bytes', access: move === 'gather' ? 'read_write' : 'read', type });
  bindings.push(p.binding);
  const branch = (name: string, s: ReturnType<typeof side>): string => {
    const place = (id: string): string => `place(${id} - ${s.first}, i, ${s.codes}, ${s.meta}, ${s.metaAt})`;
    if (move === 'copy') return `${name}[${place('pair.y')}] = ${name}[${place('pair.x')}];`;
    const here = `${name}[${place('pair.x')}]`;
    return move === 'gather' ? `bytes[there] = ${here};` : `${here} = bytes[there];`;
  };
  const wgsl = `${declareBindings(bindings)}
fn place(block: u32, i: u32, codes: u32, meta_: u32, meta_at: u32) -> u32 {
  return select(meta_at + block * meta_ + i - codes, block * codes + i, i < codes);
}
@compute @workgroup_size(${THREADS})
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  let pair = pairs[gid.y];
  var i = gid.x;
  ${move === 'copy' ? '' : `let there = gid.y * ${block} + ${at} + i;`}
  let keys_length = ${k.codes} + ${k.meta};
  if (i < keys_length) {
    ${branch('keys', k)}
    return;
  }
  i -= keys_length;
  if (i < ${v.codes} + ${v.meta}) { ${branch('values', v)} }
}`;
  return {
    label: `kv ${move}`,
    wgsl,
    bindings,
    params: p.words,
    units: Math.ceil((keys.codes + keys.meta + values.codes + values.meta) / THREADS),
    workgroups: () => {},
  };
}
