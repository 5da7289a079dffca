/** Blocks of GGUF taken apart in WebAssembly: they are copied in, and arrays out. Nothing is rounded. */
import { readFileSync } from 'node:fs';
import { workerUrl } from '../../worker-url.js';
import type { MatrixRows } from '../weights.js';
import { type BlockType, SPARE, UNPACKERS, type UnpackExports } from './unpackers.js';

interface UnpackModule extends UnpackExports {
  readonly memory: WebAssembly.Memory;
}

const PAGE = 65_536;
/** Blocks that are taken apart at once: they stay in the caches of a core. */
const BATCH_BYTES = 65_536;

let shared: UnpackModule | undefined;

/**
 * Takes blocks apart.
 *
 * @param blocks `count` blocks of the type
 * @param rows arrays for them, as {@link MatrixRows} of the type's format says; the number of a row of NVFP4 is not written
 */
export function unpackBlocks(type: BlockType, blocks: Uint8Array, count: number, rows: MatrixRows): void {
  if (count === 0) return;
  const unpack = UNPACKERS[type];
  const arrays = { scales: rows.scales, biases: rows.biases, subscales: rows.subscales };
  // Factors of rows are no part of the blocks.
  if (type === 'NVFP4') arrays.scales = undefined;
  const size = blocks.length / count;
  const of = (array: Uint8Array | undefined): number => (array === undefined ? 0 : array.length / count);
  const each = {
    data: rows.data.length / count,
    scales: of(arrays.scales),
    biases: of(arrays.biases),
    subscales: of(arrays.subscales),
  };
  const most = Math.min(count, Math.ceil(BATCH_BYTES / size));
  let end = PAGE;
  const take = (one: number): number => {
    const at = end;
    end += Math.ceil((most * one + SPARE) / SPARE) * SPARE;
    return at;
  };
  const at = {
    blocks: take(size),
    data: take(each.data),
    scales: take(each.scales),
    biases: take(each.biases),
    subscales: take(each.subscales),
  };
  const module = unpackModule(end);
  const memory = new Uint8Array(module.memory.buffer);
  for (let first = 0; first < count; first += most) {
    const some = Math.min(most, count - first);
    const copyOut = (from: number, one: number, to: Uint8Array | undefined): void =>
      to?.set(memory.subarray(from, from + some * one), first * one);
    memory.set(blocks.subarray(first * size, (first + some) * size), at.blocks);
    unpack(module, some, at);
    copyOut(at.data, each.data, rows.data);
    copyOut(at.scales, each.scales, arrays.scales);
    copyOut(at.biases, each.biases, arrays.biases);
    copyOut(at.subscales, each.subscales, arrays.subscales);
  }
}

/** The module, whose memory has so many bytes: nothing stays in it between two calls. */
function unpackModule(bytes: number): UnpackModule {
  shared ??= new WebAssembly.Instance(
    new WebAssembly.Module(readFileSync(workerUrl('./wasm/unpack.wasm', import.meta.url))),
    {},
  ).exports as unknown as UnpackModule;
  const missing = bytes - shared.memory.buffer.byteLength;
  if (missing > 0) shared.memory.grow(Math.ceil(missing / PAGE));
  return shared;
}
