/** A tokenizer.json of a file of SentencePiece, with the ids that SentencePiece itself gives a text. */

import { mergesOfScores } from '../gguf/score-merges.js';
import type { JsonObject } from '../json-file.js';
import { PIECE, type SentencePieceModel } from './sentence-piece-model.js';

const MARK = '\u2581';
const ORDINARY: readonly number[] = [PIECE.normal, PIECE.unused];
const ADDED: readonly number[] = [PIECE.unknown, PIECE.control, PIECE.userDefined];

export interface SentencePieceOptions {
  /** Whether a text begins with a space: what stands behind a special token too, or its beginning alone. Default: as the file says, each. */
  readonly prefix: 'each' | 'first' | 'none';
}

export function sentencePieceTokenizer(
  model: SentencePieceModel,
  { prefix }: SentencePieceOptions,
): JsonObject {
  const unknown = model.types.indexOf(PIECE.unknown);
  const bytes = model.byteFallback && model.types.includes(PIECE.byte);
  const { pieces, scores, types } = model;
  return {
    version: '1.0',
    added_tokens: pieces.flatMap((content, id) =>
      ADDED.includes(types[id]!)
        ? [{ id, content, normalized: false, special: types[id] !== PIECE.userDefined }]
        : [],
    ),
    normalizer: normalizerOf(model, prefix === 'each'),
    pre_tokenizer:
      prefix === 'first'
        ? { type: 'Metaspace', replacement: MARK, prepend_scheme: 'first', split: false }
        : null,
    post_processor: null,
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: MARK }, content: ' ' },
        ...(bytes ? [{ type: 'ByteFallback' }] : []),
        { type: 'Fuse' },
        ...(prefix === 'none' ? [] : [{ type: 'Strip', content: ' ', start: 1, stop: 0 }]),
      ],
    },
    model:
      model.kind === 'bpe'
        ? {
            type: 'BPE',
            unk_token: unknown < 0 ? null : pieces[unknown]!,
            byte_fallback: bytes,
            fuse_unk: true,
            ignore_merges: false,
            vocab: Object.fromEntries(pieces.map((piece, id) => [piece, id])),
            merges: mergesOfScores(pieces, scores, (id) => ORDINARY.includes(types[id]!)),
          }
        : {
            type: 'Unigram',
            unk_id: unknown < 0 ? null : unknown,
            byte_fallback: bytes,
            vocab: unigramPieces(model),
          },
  };
}

/** No text may come to what is no ordinary piece: its text cannot be written. Bytes are known by theirs. */
function unigramPieces({ pieces, scores, types }: SentencePieceModel): [string, number][] {
  const worst = scores.reduce(
    (least, score, id) => (types[id] === PIECE.normal ? Math.min(least, score) : least),
    0,
  );
  return pieces.map((piece, id) => {
    if (types[id] === PIECE.normal) return [piece, scores[id]!];
    return [types[id] === PIECE.byte ? piece : `\0${piece}`, worst];
  });
}

function normalizerOf({ charsmap, trims }: SentencePieceModel, prefix: boolean): JsonObject | null {
  const steps: JsonObject[] = [];
  if (charsmap !== null)
    steps.push({ type: 'Precompiled', precompiled_charsmap: Buffer.from(charsmap).toString('base64') });
  if (trims)
    steps.push(
      { type: 'Replace', pattern: { Regex: '^ +| +$' }, content: '' },
      { type: 'Replace', pattern: { Regex: ' {2,}' }, content: ' ' },
    );
  if (prefix) steps.push({ type: 'Prepend', prepend: MARK });
  steps.push({ type: 'Replace', pattern: { String: ' ' }, content: MARK });
  return { type: 'Sequence', normalizers: steps };
}
