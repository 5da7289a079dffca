/** The module that packs rows (pack-assembly), over each memory that weights lie in. */
import { readFileSync } from 'node:fs';
import { workerUrl } from '../../worker-url.js';
import type { UnpackExports } from '../blocks/unpackers.js';

export interface PackModule extends UnpackExports {
  packCodes(
    ...numbers: [
      ...[blocks: number, cols: number, bits: number, head: number, tail: number, unit: number],
      ...[relaxed: number, shifted: number, data: number, scales: number, scaleRow: number],
      ...[biases: number, biasRow: number, subscales: number, subRow: number],
      ...[room: number, to: number, factors: number],
    ]
  ): void;
  packFloats(
    ...numbers: [
      ...[blocks: number, cols: number, bytes: number, shifted: number],
      ...[data: number, to: number, factors: number],
    ]
  ): void;
  packStored(
    ...numbers: [
      ...[blocks: number, type: number, rowBytes: number, relaxed: number],
      ...[from: number, to: number, factors: number, room: number],
    ]
  ): void;
  copy(from: number, rowBytes: number, rows: number, to: number): void;
  gather(from: number, rowBytes: number, rows: number, to: number, order: number, within: number): void;
}

let compiled: WebAssembly.Module | undefined;
const instances = new WeakMap<WebAssembly.Memory, PackModule>();

/** Compiled once; a memory has one instance. */
export function packModule(memory: WebAssembly.Memory): PackModule {
  let instance = instances.get(memory);
  if (instance === undefined) {
    compiled ??= new WebAssembly.Module(readFileSync(workerUrl('./pack-wasm/pack.wasm', import.meta.url)));
    instance = new WebAssembly.Instance(compiled, { env: { memory } }).exports as unknown as PackModule;
    instances.set(memory, instance);
  }
  return instance;
}
