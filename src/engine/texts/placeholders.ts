/**
 * Where pictures go in the tokens of a conversation. The chat template writes one placeholder for each. It becomes what stands for the
 * picture: text, and one image token for each run of them, which becomes as many as the run has once all is tokenized. A placeholder that
 * somebody typed is text: it is cut in two before the template sees it, so that none is found there.
 */

import { randomBytes } from 'node:crypto';
import { KvantError } from '../../errors.js';
import type { PromptPiece } from '../../models/vision/tower.js';
import type { EngineChatMessage } from '../types.js';
import type { TokenRun } from '../vision/pictures.js';

/** The pictures or the videos of a conversation, as its tokens are made. */
export interface PictureTokens {
  /** The id of the image token, or of that of videos. */
  readonly token: number;
  /** What stands for each row in the end. Default: `token`. */
  readonly rowToken?: number;
  /** What the template writes for a picture; null: the image token. */
  readonly placeholder: string | null;
  /** What the template is given for a picture, where it is given texts alone. Null or absent: parts that are pictures. */
  readonly asText?: string | null;
  /** Tokens that the template may write around it, which what stands for it has where they belong. Default: they stay. */
  readonly marks?: readonly [begin: number, end: number] | null;
  /** What becomes of each, in order. */
  readonly pieces: readonly (readonly PromptPiece[])[];
}

export interface GuardedMessages {
  readonly messages: readonly EngineChatMessage[];
  /** What cuts typed placeholders in two; null where there are none. */
  readonly cut: string | null;
}

/** Cuts every placeholder in the texts of messages. */
export function guardMessages(
  messages: readonly EngineChatMessage[],
  placeholders: readonly string[],
): GuardedMessages {
  // Private characters, and no text can foresee them.
  const cut = `\u{e0f1}${randomBytes(8).toString('hex')}\u{e0f2}`;
  let found = false;
  const guard = (value: unknown): unknown => {
    if (typeof value === 'string') {
      return placeholders.reduce((text, placeholder) => {
        if (!text.includes(placeholder)) return text;
        found = true;
        return text.replaceAll(placeholder, placeholder.slice(0, 1) + cut + placeholder.slice(1));
      }, value);
    }
    if (Array.isArray(value)) return value.map(guard);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, guard(one)]));
  };
  const guarded = messages.map((message) => guard(message) as EngineChatMessage);
  return found ? { messages: guarded, cut } : { messages, cut: null };
}

/** Messages whose pictures are text: `asText` for each, texts that follow each other on lines of their own. */
export function writePictures(messages: readonly EngineChatMessage[], asText: string): EngineChatMessage[] {
  return messages.map((message) => {
    const { content } = message as { readonly content?: unknown };
    if (!Array.isArray(content) || !content.some((part) => part?.type === 'image')) return message;
    let text = '';
    content.forEach((part: { readonly type?: unknown; readonly text?: unknown }, i) => {
      if (part?.type === 'image') text += asText;
      else text += `${i > 0 && content[i - 1]?.type !== 'image' ? '\n' : ''}${part?.text ?? ''}`;
    });
    return { ...message, content: text };
  });
}

/**
 * A rendered conversation with what stands for its pictures in place of the placeholders, the image token once for each run of them.
 * `spellingOf` gives a token's text.
 *
 * @throws KvantError `image-placeholders` where the template shows more pictures than there are, or fewer
 */
export function showPictures(
  rendered: string,
  { token, placeholder, pieces, marks = null }: PictureTokens,
  spellingOf: (token: number) => string,
): string {
  const spelling = spellingOf(token);
  const shown = placeholder ?? spelling;
  const around = marks === null ? shown : `${spellingOf(marks[0])}${shown}${spellingOf(marks[1])}`;
  const [before, ...rest] = rendered.replaceAll(around, shown).split(shown);
  checkShown(rest.length, pieces.length);
  const textOf = (piece: PromptPiece): string => {
    if (typeof piece === 'string') return piece;
    return typeof piece === 'number' ? spelling : spellingOf(piece.token);
  };
  const texts = pieces.map((of) => of.map(textOf).join(''));
  return rest.reduce((text, next, i) => text + texts[i]! + next, before!);
}

/**
 * Each image token as many times as its run has, and the runs of each picture; of videos as well. Kind by kind.
 *
 * @throws KvantError `image-placeholders` where there are more of them than runs, or fewer
 */
export function expandPictures(
  ids: Int32Array,
  kinds: readonly Pick<PictureTokens, 'token' | 'rowToken' | 'pieces'>[],
): { readonly ids: Int32Array; readonly runs: readonly (readonly (readonly TokenRun[])[])[] } {
  const runs: TokenRun[][][] = kinds.map(({ pieces }) => pieces.map(() => []));
  const waiting = kinds.map(({ token, rowToken = token, pieces }, kind) => {
    const counts = pieces.flatMap((of, picture) =>
      of.flatMap((piece) =>
        typeof piece === 'number' ? [{ tokens: piece, runs: runs[kind]![picture]! }] : [],
      ),
    );
    checkShown(
      ids.reduce((sum, id) => sum + (id === token ? 1 : 0), 0),
      counts.length,
    );
    return { token, rowToken, counts, next: 0 };
  });
  const all = waiting.reduce(
    (sum, { counts }) => sum + counts.reduce((own, { tokens }) => own + tokens - 1, 0),
    0,
  );
  const out = new Int32Array(ids.length + all);
  let to = 0;
  for (const id of ids) {
    const kind = waiting.find(({ token }) => token === id);
    if (kind === undefined) {
      out[to++] = id;
      continue;
    }
    const { tokens, runs: own } = kind.counts[kind.next++]!;
    own.push({ first: to, tokens });
    out.fill(kind.rowToken, to, to + tokens);
    to += tokens;
  }
  return { ids: out, runs };
}

function checkShown(shown: number, wanted: number): void {
  if (shown === wanted) return;
  throw new KvantError(
    'image-placeholders',
    `The model's chat template shows ${shown} of the ${wanted} pictures.`,
    { kind: 'invalid-request', where: 'messages', fix: 'Send pictures in messages of the user.' },
  );
}
