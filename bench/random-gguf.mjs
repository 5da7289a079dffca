// A Llama with random weights as a GGUF file, for speed alone: metadata and tokenizer are those of another llama file.
//
//   node bench/random-gguf.mjs SOURCE.gguf OUT.gguf Q4_K_M|Q8_0|MXFP4 [--layers 28]
import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { args, option } from './options.mjs';

const [source, out, kind] = args;
const layers = Number(option('--layers', '28'));
const [WIDTH, INNER, HEADS, KV_HEADS] = [1024, 3072, 16, 8];
/** Id, values and bytes of a block, and its scales: f16 at a byte, but for MXFP4's exponent. */
const TYPES = {
  F32: [0, 1, 4],
  Q8_0: [8, 32, 34, { 0: 0x0690 }],
  Q4_K: [12, 256, 144, { 0: 0x0a8e, 2: 0x15bc }],
  Q6_K: [14, 256, 210, { 208: 0x0150 }],
  MXFP4: [39, 32, 17],
};
const kinds = { Q4_K_M: ['Q4_K', 'Q6_K'], Q8_0: ['Q8_0', 'Q8_0'], MXFP4: ['MXFP4', 'Q8_0'] };
if (kinds[kind] === undefined) throw new Error('SOURCE.gguf OUT.gguf Q4_K_M|Q8_0|MXFP4 are wanted');
const [type, headType] = kinds[kind];
const head = Buffer.alloc(2 ** 24);
const file = openSync(source);
readSync(file, head, 0, head.length, 0);
closeSync(file);

let at = 16;
const took = (bytes) => {
  at += bytes;
  return at - bytes;
};
const int = () => head.readUInt32LE(took(4));
const long = () => Number(head.readBigUInt64LE(took(8)));
const text = () => {
  const length = long();
  return head.toString('utf8', took(length), at);
};
/** A value: 8 is text, 9 a list. */
function skip(kind) {
  if (kind === 8) text();
  else if (kind === 9) {
    const each = int();
    for (let n = long(); n > 0; n--) skip(each);
  } else at += [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8][kind];
}
const own = {
  block_count: layers,
  embedding_length: WIDTH,
  feed_forward_length: INNER,
  'attention.head_count': HEADS,
  'attention.head_count_kv': KV_HEADS,
  'rope.dimension_count': WIDTH / HEADS,
};
let vocab = 0;
const pairs = Array.from({ length: long() }, () => {
  const from = at;
  const key = text();
  const kind = int();
  if (key === 'tokenizer.ggml.tokens') vocab = Number(head.readBigUInt64LE(at + 4));
  skip(kind);
  const pair = Buffer.from(head.subarray(from, at));
  const value = own[key.replace(/^llama\./, '')];
  if (value !== undefined) pair.writeUInt32LE(value, pair.length - 4);
  return pair;
});

const [keys, value] = [
  (WIDTH / HEADS) * KV_HEADS,
  (layer) => (kind === 'Q4_K_M' && layer % 2 ? 'Q6_K' : type),
];
const tensors = [
  ['token_embd', [WIDTH, vocab], headType],
  ['output_norm', [WIDTH], 'F32'],
  ...Array.from({ length: layers }, (_, layer) =>
    [
      ['attn_norm', [WIDTH], 'F32'],
      ['ffn_norm', [WIDTH], 'F32'],
      ['attn_q', [WIDTH, WIDTH], type],
      ['attn_k', [WIDTH, keys], type],
      ['attn_v', [WIDTH, keys], value(layer)],
      ['attn_output', [WIDTH, WIDTH], type],
      ['ffn_gate', [WIDTH, INNER], type],
      ['ffn_up', [WIDTH, INNER], type],
      ['ffn_down', [INNER, WIDTH], value(layer)],
    ].map(([name, ...rest]) => [`blk.${layer}.${name}`, ...rest]),
  ).flat(),
];

const i64 = (n) => new BigUint64Array([BigInt(n)]);
const i32 = (n) => new Uint32Array([n]);
const bytesOf = ([, shape, type]) => (shape.reduce((a, b) => a * b) / TYPES[type][1]) * TYPES[type][2];
const aligned = (n) => Math.ceil(n / 32) * 32;
let offset = 0;
const infos = tensors.flatMap((tensor) => {
  const [name, shape, type] = tensor;
  const full = `${name}.weight`;
  const info = [i64(full.length), Buffer.from(full), i32(shape.length), ...shape.map(i64)];
  info.push(i32(TYPES[type][0]), i64(offset));
  offset += aligned(bytesOf(tensor));
  return info;
});
const start = [Buffer.from('GGUF'), i32(3), i64(tensors.length), i64(pairs.length), ...pairs, ...infos];
const header = Buffer.concat(
  start.map((part) => new Uint8Array(part.buffer, part.byteOffset, part.byteLength)),
);

let state = 1;
const random = Buffer.alloc(2 ** 20 + 1);
for (let i = 0; i < random.length; i++) {
  state = (state * 69069 + 1) >>> 0;
  random[i] = state >>> 24;
}
const to = openSync(out, 'w');
writeSync(to, Buffer.concat([header], aligned(header.length)));
for (const tensor of tensors) {
  const [, , type] = tensor;
  const [, , size, scales = {}] = TYPES[type];
  const bytes = Buffer.alloc(aligned(bytesOf(tensor)));
  for (let from = 0; from < bytes.length; from += random.length) random.copy(bytes, from);
  for (let block = 0; block < bytesOf(tensor); block += size) {
    if (type === 'F32') bytes.writeFloatLE(1, block);
    else if (type === 'MXFP4') bytes[block] = 119;
    else for (const [place, half] of Object.entries(scales)) bytes.writeUInt16LE(half, block + Number(place));
  }
  writeSync(to, bytes);
}
closeSync(to);
console.log(`${out}: ${layers} layers, ${Math.round((header.length + offset) / 1e6)} MB of ${kind}`);
