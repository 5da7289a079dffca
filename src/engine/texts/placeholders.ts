/**
 * Where pictures go in the tokens of a conversation. The chat template writes one placeholder token for each; it becomes as many as the
 * picture has. A placeholder that somebody typed is text: it is cut in two before the template sees it, so that the tokenizer
 * finds none there.
 */

import { randomBytes } from 'node:crypto';
import { KvantError } from '../../errors.js';
import type { EngineChatMessage } from '../types.js';

/** The pictures of a conversation, as its tokens are made. */
export interface PictureTokens {
  /** The id of the placeholder. */
  readonly token: number;
  /** Tokens of each picture, in order. */
  readonly counts: readonly number[];
}

export interface GuardedMessages {
  readonly messages: readonly EngineChatMessage[];
  /** What cuts typed placeholders in two; null where there are none. */
  readonly cut: string | null;
}

/** Cuts every placeholder in the texts of messages. */
export function guardMessages(messages: readonly EngineChatMessage[], placeholder: string): GuardedMessages {
  // Private characters, and no text can foresee them.
  const cut = `\u{e0f1}${randomBytes(8).toString('hex')}\u{e0f2}`;
  let found = false;
  const guard = (value: unknown): unknown => {
    if (typeof value === 'string') {
      if (!value.includes(placeholder)) return value;
      found = true;
      return value.replaceAll(placeholder, placeholder.slice(0, 1) + cut + placeholder.slice(1));
    }
    if (Array.isArray(value)) return value.map(guard);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, guard(one)]));
  };
  const guarded = messages.map((message) => guard(message) as EngineChatMessage);
  return found ? { messages: guarded, cut } : { messages, cut: null };
}

/**
 * Each placeholder as many times as its picture has tokens, and the first of each.
 *
 * @throws KvantError `image-placeholders` where the template shows more pictures than there are, or fewer
 */
export function expandPictures(
  ids: Int32Array,
  { token, counts }: PictureTokens,
): { readonly ids: Int32Array; readonly firsts: readonly number[] } {
  const places = [...ids.keys()].filter((at) => ids[at] === token);
  if (places.length !== counts.length)
    throw new KvantError(
      'image-placeholders',
      `The model's chat template shows ${places.length} of the ${counts.length} pictures.`,
      {
        kind: 'invalid-request',
        where: 'messages',
        fix: 'Send pictures in messages of the user.',
      },
    );
  const all = counts.reduce((sum, count) => sum + count, 0);
  const out = new Int32Array(ids.length - places.length + all);
  const firsts: number[] = [];
  let from = 0;
  let to = 0;
  places.forEach((place, i) => {
    out.set(ids.subarray(from, place), to);
    to += place - from;
    firsts.push(to);
    out.fill(token, to, to + counts[i]!);
    to += counts[i]!;
    from = place + 1;
  });
  out.set(ids.subarray(from), to);
  return { ids: out, firsts };
}
