/**
 * A block of the KV cache as a file. Little-endian:
 *
 *      0  magic, 8 bytes
 *      8  u32 version
 *     12  u32 CRC-32 of all that follows up to the data
 *     16  signature, 16 bytes: what the data can be used with (see DiskTier)
 *     32  key, 16 bytes: which tokens it holds, after which others (see ChainKeys)
 *     48  u32 tokens, u32 bytes of data, u32 bytes of a chunk, u32 0
 *     64  the tokens, u32 each
 *         the CRC-32 of each chunk of the data, seeded with its index
 *         zeros up to a multiple of 64 bytes
 *         the data
 *
 * Nothing of a file is used unless all of it is as it was written.
 */

import { crc32 } from 'node:zlib';

export const MAGIC = new TextEncoder().encode('kvantblk');
const VERSION = 1;
const CHUNK = 2 ** 18;
const HEAD = 64;

export interface BlockIdentity {
  /** 32 hexadecimal digits each. */
  readonly signature: string;
  readonly key: string;
  readonly tokens: Uint32Array;
}

/** Bytes of the file of a block. */
export function blockFileBytes(tokens: number, dataBytes: number): number {
  return dataAt(tokens, dataBytes) + dataBytes;
}

/** What stands in the file before the data. */
export function encodeHead(block: BlockIdentity, data: Uint8Array): Uint8Array {
  const { signature, key, tokens } = block;
  const head = new Uint8Array(dataAt(tokens.length, data.length));
  const view = new DataView(head.buffer);
  head.set(MAGIC);
  view.setUint32(8, VERSION, true);
  head.set(Buffer.from(signature, 'hex'), 16);
  head.set(Buffer.from(key, 'hex'), 32);
  view.setUint32(48, tokens.length, true);
  view.setUint32(52, data.length, true);
  view.setUint32(56, CHUNK, true);
  tokens.forEach((token, i) => {
    view.setUint32(HEAD + 4 * i, token, true);
  });
  const sums = HEAD + 4 * tokens.length;
  for (let i = 0; i * CHUNK < data.length; i++) view.setUint32(sums + 4 * i, sum(data, i), true);
  view.setUint32(12, crc32(head.subarray(16)), true);
  return head;
}

/**
 * `foreign`: not a file of kvant. `other`: one of another version, signature, key or length, or of other tokens that have the same
 * key. `corrupt`: not as it was written.
 */
export type BlockFault = 'foreign' | 'other' | 'corrupt';

/** The data of a file, a view of it, or why it must not be used. */
export function decodeBlock(
  file: Uint8Array,
  wanted: BlockIdentity,
  dataBytes: number,
): Uint8Array | BlockFault {
  if (!hasMagic(file)) return 'foreign';
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  if (file.length < HEAD) return 'corrupt';
  if (view.getUint32(8, true) !== VERSION) return 'other';
  const tokens = view.getUint32(48, true);
  const bytes = view.getUint32(52, true);
  const start = dataAt(tokens, bytes);
  if (view.getUint32(56, true) !== CHUNK || file.length !== start + bytes) return 'corrupt';
  if (view.getUint32(12, true) !== crc32(file.subarray(16, start))) return 'corrupt';
  const hex = (at: number): string => Buffer.from(file.subarray(at, at + 16)).toString('hex');
  if (hex(16) !== wanted.signature || hex(32) !== wanted.key) return 'other';
  if (tokens !== wanted.tokens.length || bytes !== dataBytes) return 'other';
  for (let i = 0; i < tokens; i++)
    if (view.getUint32(HEAD + 4 * i, true) !== wanted.tokens[i]) return 'other';
  const data = file.subarray(start);
  for (let i = 0; i * CHUNK < bytes; i++)
    if (view.getUint32(HEAD + 4 * (tokens + i), true) !== sum(data, i)) return 'corrupt';
  return data;
}

export function hasMagic(file: Uint8Array): boolean {
  return file.length >= MAGIC.length && MAGIC.every((byte, i) => file[i] === byte);
}

function dataAt(tokens: number, dataBytes: number): number {
  return Math.ceil((HEAD + 4 * (tokens + Math.ceil(dataBytes / CHUNK))) / 64) * 64;
}

function sum(data: Uint8Array, chunk: number): number {
  return crc32(data.subarray(chunk * CHUNK, (chunk + 1) * CHUNK), chunk);
}
