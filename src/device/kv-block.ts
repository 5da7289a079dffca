/**
 * A block as bytes: what `KvPool.read` gives and `write` takes, the same on every device. Layer after layer: the codes
 * (or floats) of K of all heads, what goes with them (scales and biases, norms), then those of V, unless it is a view of K. How vectors lie within
 * such a plane is the device's own, and `KvPool.storage` names it. A recurrent layer has one plane, its state, in the place of
 * the codes of K.
 */

import { KvantError } from '../errors.js';
import { type KvFormat, type KvPoolSpec, kvCodeBytes, kvMetaBytes, kvSides } from './kv.js';
import { stateBytes } from './state.js';

export interface KvPlane {
  readonly layer: number;
  readonly side: 'key' | 'value';
  readonly part: 'codes' | 'meta';
  /** Where it begins in the block, in bytes. */
  readonly at: number;
  readonly bytes: number;
}

/** What a block of the pool consists of, or a float-start one. Planes of no bytes are left out. */
export function kvPlanes(spec: KvPoolSpec, floatStart: boolean): readonly KvPlane[] {
  const planes: KvPlane[] = [];
  let at = 0;
  spec.layers.forEach((own, layer) => {
    const { headDim, kvHeads, state } = own;
    if (state !== undefined) {
      const bytes = stateBytes(state);
      planes.push({ layer, side: 'key', part: 'codes', at, bytes });
      at += bytes;
      return;
    }
    for (const side of kvSides(own)) {
      const format: KvFormat =
        floatStart && spec.floatStart ? { kind: 'float', dtype: spec.floatStart.dtype } : own[side];
      const sizes = {
        codes: kvCodeBytes(format, headDim) * kvHeads * spec.blockTokens,
        meta: kvMetaBytes(format, headDim, kvHeads) * spec.blockTokens,
      };
      for (const part of ['codes', 'meta'] as const) {
        const bytes = sizes[part];
        if (bytes === 0) continue;
        planes.push({ layer, side, part, at, bytes });
        at += bytes;
      }
    }
  });
  return planes;
}

/** Bytes of a block, or of a float-start one. */
export function kvStoredBytes(spec: KvPoolSpec, floatStart: boolean): number {
  return kvPlanes(spec, floatStart).reduce((sum, { bytes }) => sum + bytes, 0);
}

export function isFloatStartBlock(spec: KvPoolSpec, block: number): boolean {
  return block >= spec.blocks;
}

/** Errors: `kv-block-invalid`, unless `from` may be copied to `to`. */
export function checkCopy(spec: KvPoolSpec, from: Uint32Array, to: Uint32Array): void {
  if (from.length !== to.length) throw invalid('copy', `${from.length} blocks to ${to.length}`);
  checkBlocks(spec, 'copy', from);
  checkBlocks(spec, 'copy', to);
  const written = new Set(to);
  if (written.size !== to.length) throw invalid('copy', 'two blocks to the same one');
  from.forEach((block, i) => {
    if (written.has(block)) throw invalid('copy', `block ${block}, which is written as well`);
    if (isFloatStartBlock(spec, block) !== isFloatStartBlock(spec, to[i]!))
      throw invalid('copy', `block ${block} to block ${to[i]}: one of them is floatStart`);
  });
}

/** Errors: `kv-block-invalid`, unless all of them are blocks of the pool. */
export function checkBlocks(spec: KvPoolSpec, call: 'copy' | 'read' | 'write', blocks: Uint32Array): void {
  const count = spec.blocks + (spec.floatStart?.blocks ?? 0);
  for (const block of blocks)
    if (!(block < count)) throw invalid(call, `block ${block}, which is not one of ${count}`);
}

/** Errors: `kv-block-invalid`, unless `bytes` may be written to the blocks. */
export function checkWrite(spec: KvPoolSpec, blocks: Uint32Array, bytes: readonly Uint8Array[]): void {
  checkBlocks(spec, 'write', blocks);
  if (bytes.length !== blocks.length) throw invalid('write', `${blocks.length} blocks from ${bytes.length}`);
  if (new Set(blocks).size !== blocks.length) throw invalid('write', 'one block twice');
  const sizes = { old: kvStoredBytes(spec, false), floatStart: kvStoredBytes(spec, true) };
  blocks.forEach((block, i) => {
    const wanted = isFloatStartBlock(spec, block) ? sizes.floatStart : sizes.old;
    if (bytes[i]!.length !== wanted)
      throw invalid('write', `block ${block} of ${wanted} bytes from ${bytes[i]!.length}`);
  });
}

function invalid(call: 'copy' | 'read' | 'write', what: string): KvantError {
  return new KvantError('kv-block-invalid', `${call}: cannot ${call} ${what}.`, {
    where: 'KV pool',
    fix: 'Take blocks from the pool that is asked, and bytes from one of the same formats and block size.',
  });
}
