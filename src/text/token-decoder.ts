/** The `decoder` of a tokenizer definition, as what it makes of each token by itself. */
import { KvantError } from '../errors.js';
import { byteAlphabet } from './encoding/byte-alphabet.js';
import { compilePattern, replaceAll } from './encoding/expression.js';
import { prependScheme } from './encoding/pre-tokenizers.js';
import { isJsonObject, type JsonObject } from './json-file.js';

/** What a token adds to a text, and one rule about the text as a whole. */
export interface TokenDecoder {
  /** @param first the token is the first of its text */
  bytesOf(token: string, first: boolean): Uint8Array;
  /** Whether a token may have other bytes where it is the first. */
  readonly firstDiffers: boolean;
  /** How many bytes equal to {@link leadingByte} are dropped at the start of a text. */
  readonly leadingCount: number;
  readonly leadingByte: number;
}

type Step = (token: string, first: boolean) => string;

const BYTE_TOKEN = /^<0x([0-9A-Fa-f]{2})>$/;

/** @throws KvantError `tokenizer-unsupported` for a decoder that does not come down to bytes per token */
export function readTokenDecoder(decoder: JsonObject | null, where: string): TokenDecoder {
  if (decoder === null) throw unsupported(where, 'tokenizer.json has no decoder');
  try {
    return readChain(flatten(decoder));
  } catch (cause) {
    throw unsupported(where, (cause as Error).message);
  }
}

function unsupported(where: string, what: string): KvantError {
  return new KvantError('tokenizer-unsupported', `Cannot decode with this tokenizer: ${what}`, {
    kind: 'unsupported',
    where,
    fix: 'kvant decodes byte-level BPE (Qwen, Llama 3), sentencepiece style (Llama 2, Mistral, Gemma) and WordPiece.',
  });
}

/** The decoders in order; sequences may be nested. */
function flatten(decoder: JsonObject): JsonObject[] {
  if (decoder.type !== 'Sequence') return [decoder];
  const inner = decoder.decoders;
  if (!Array.isArray(inner)) throw new Error('the decoder sequence has no list of decoders');
  return inner.flatMap((step: unknown) => {
    if (!isJsonObject(step)) throw new Error('a decoder is not an object');
    return flatten(step);
  });
}

/** Steps on each token, then rules on the joined text, of which only dropping leading characters is known. */
function readChain(decoders: readonly JsonObject[]): TokenDecoder {
  const steps: Step[] = [];
  /** How many steps come before byte tokens are read. */
  let byteFallbackAfter = -1;
  let alphabet: ReadonlyMap<string, number> | undefined;
  let joined = false;
  let firstDiffers = false;
  let leadingCount = 0;
  let leadingByte = 0;

  for (const decoder of decoders) {
    const type = decoder.type;
    if (joined && type !== 'Strip' && type !== 'Fuse') {
      throw new Error(`the decoder ${String(type)} works on the joined text`);
    }
    switch (type) {
      case 'Replace': {
        const pattern = compilePattern(decoder.pattern);
        const content = typeof decoder.content === 'string' ? decoder.content : '';
        steps.push((token) => replaceAll(pattern, token, content));
        break;
      }
      case 'Metaspace': {
        const mark = typeof decoder.replacement === 'string' ? decoder.replacement : '\u2581';
        // The first token loses all its marks, not the one in front alone.
        const drops = prependScheme(decoder) !== 'never';
        steps.push((token, first) => token.replaceAll(mark, drops && first ? '' : ' '));
        firstDiffers ||= drops;
        break;
      }
      case 'WordPiece':
        steps.push(wordPiece(String(decoder.prefix ?? '##'), decoder.cleanup !== false));
        firstDiffers = true;
        break;
      case 'ByteFallback':
        if (byteFallbackAfter < 0) byteFallbackAfter = steps.length;
        break;
      case 'ByteLevel':
        alphabet = byteAlphabet();
        joined = true;
        break;
      case 'Fuse':
        joined = true;
        break;
      case 'Strip': {
        const start = count(decoder.start);
        const stop = count(decoder.stop);
        if (!joined) {
          steps.push(strip(String(decoder.content ?? ''), start, stop));
          break;
        }
        if (stop > 0) throw new Error('the Strip decoder drops characters at the end of the text');
        if (start === 0) break;
        const content = decoder.content;
        const code = typeof content === 'string' && content.length === 1 ? content.charCodeAt(0) : 0x80;
        if (code >= 0x80) throw new Error('the Strip decoder drops something else than an ASCII character');
        if (leadingCount > 0 || firstDiffers) throw new Error('two decoders drop leading characters');
        leadingCount = start;
        leadingByte = code;
        break;
      }
      default:
        throw new Error(`the decoder ${JSON.stringify(type)} is not known`);
    }
  }

  const encoder = new TextEncoder();
  const bytesOf = (token: string, first: boolean): Uint8Array => {
    let text = token;
    for (let i = 0; i <= steps.length; i++) {
      const byte = i === byteFallbackAfter ? BYTE_TOKEN.exec(text) : null;
      if (byte !== null) return Uint8Array.of(Number.parseInt(byte[1]!, 16));
      if (i < steps.length) text = steps[i]!(text, first);
    }
    return (alphabet && fromAlphabet(text, alphabet)) ?? encoder.encode(text);
  };
  return { bytesOf, firstDiffers, leadingCount, leadingByte };
}

/** The bytes that a token's characters stand for; undefined if one of them stands for none: it is plain text then. */
function fromAlphabet(token: string, alphabet: ReadonlyMap<string, number>): Uint8Array | undefined {
  const bytes: number[] = [];
  for (const character of token) {
    const byte = alphabet.get(character);
    if (byte === undefined) return undefined;
    bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}

function count(value: unknown): number {
  return typeof value === 'number' && value > 0 ? Math.floor(value) : 0;
}

function strip(content: string, start: number, stop: number): Step {
  return (token) => {
    let from = 0;
    let to = token.length;
    while (from < start && token[from] === content) from++;
    while (token.length - to < stop && to > from && token[to - 1] === content) to--;
    return token.slice(from, to);
  };
}

/** In this order; each works on one token, as the reference has it, so most of them find only what a token holds itself. */
const CLEAN_UP: readonly (readonly [string, string])[] = [
  [' .', '.'],
  [' ?', '?'],
  [' !', '!'],
  [' ,', ','],
  [" ' ", "'"],
  [" n't", "n't"],
  [" 'm", "'m"],
  [' do not', " don't"],
  [" 's", "'s"],
  [" 've", "'ve"],
  [" 're", "'re"],
];

function wordPiece(prefix: string, cleanUp: boolean): Step {
  return (token, first) => {
    let text = token;
    if (!first) text = token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
    if (cleanUp) for (const [from, to] of CLEAN_UP) text = text.replaceAll(from, () => to);
    return text;
  };
}
