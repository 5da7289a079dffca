/** Blocks of GGUF taken apart in WebAssembly: they are copied in, and arrays out. Nothing is rounded. */
import { readFileSync } from 'node:fs';
import type { MatrixRows } from '../device/weights.js';
import { workerUrl } from '../worker-url.js';
import type { GgufTypeName } from './gguf-types.js';

type Unpacker = (...numbers: number[]) => void;

interface UnpackModule {
  readonly memory: WebAssembly.Memory;
  readonly nibbles: Unpacker;
  readonly fives: Unpacker;
  readonly bytes: Unpacker;
  readonly k2: Unpacker;
  readonly k3: Unpacker;
  readonly k4: Unpacker;
  readonly k5: Unpacker;
  readonly k6: Unpacker;
  readonly iq4xs: Unpacker;
  readonly mxfp4: Unpacker;
  readonly nvfp4: Unpacker;
}

/** Where blocks and arrays lie in the module's memory. */
interface Places {
  readonly blocks: number;
  readonly data: number;
  readonly scales: number;
  readonly biases: number;
  readonly subscales: number;
}

const UNPACKERS: Partial<Record<GgufTypeName, (module: UnpackModule, count: number, at: Places) => void>> = {
  Q4_0: (m, n, at) => m.nibbles(n, at.blocks, 18, 2, at.data, at.scales, 0),
  Q4_1: (m, n, at) => m.nibbles(n, at.blocks, 20, 4, at.data, at.scales, at.biases),
  Q5_0: (m, n, at) => m.fives(n, at.blocks, 22, 6, at.data, at.scales, 0),
  Q5_1: (m, n, at) => m.fives(n, at.blocks, 24, 8, at.data, at.scales, at.biases),
  Q8_0: (m, n, at) => m.bytes(n, at.blocks, at.data, at.scales),
  Q2_K: (m, n, at) => m.k2(n, at.blocks, at.data, at.scales, at.biases, at.subscales),
  Q3_K: (m, n, at) => m.k3(n, at.blocks, at.data, at.scales, at.subscales),
  Q4_K: (m, n, at) => m.k4(n, at.blocks, at.data, at.scales, at.biases, at.subscales),
  Q5_K: (m, n, at) => m.k5(n, at.blocks, at.data, at.scales, at.biases, at.subscales),
  Q6_K: (m, n, at) => m.k6(n, at.blocks, at.data, at.scales, at.subscales),
  IQ4_NL: (m, n, at) => m.nibbles(n, at.blocks, 18, 2, at.data, at.scales, 0),
  IQ4_XS: (m, n, at) => m.iq4xs(n, at.blocks, at.data, at.scales, at.subscales),
  MXFP4: (m, n, at) => m.mxfp4(n, at.blocks, at.data, at.scales),
  NVFP4: (m, n, at) => m.nvfp4(n, at.blocks, at.data, at.subscales),
};

const PAGE = 65_536;
/** What is read and written behind a buffer at most. */
const SPARE = 16;
/** Blocks that are taken apart at once: they stay in the caches of a core. */
const BATCH_BYTES = 65_536;

let shared: UnpackModule | undefined;

/**
 * Takes blocks apart.
 *
 * @param blocks `count` blocks of the type
 * @param rows arrays for them, as {@link MatrixRows} of the type's format says; the number of a row of NVFP4 is not written
 */
export function unpackBlocks(type: GgufTypeName, blocks: Uint8Array, count: number, rows: MatrixRows): void {
  if (count === 0) return;
  const unpack = UNPACKERS[type]!;
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
