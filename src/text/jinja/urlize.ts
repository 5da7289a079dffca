import { PythonError } from './errors.js';
import { escapeHtml } from './markup.js';
import { repr } from './repr.js';
import { lengthOf } from './text.js';
import type { Value } from './values.js';

export interface UrlizeOptions {
  /** Longer addresses are shown cut. */
  readonly limit: number | undefined;
  readonly rel: string;
  readonly target: string | undefined;
  /** Further beginnings of addresses: `ftp:`. */
  readonly schemes: readonly string[];
}

const ADDRESS = new RegExp(
  '^(?:(?:https?://|www\\.)(?:(?:[\\w%-]+\\.)+)?(?:[a-z]{2,63}|xn--[\\w%]{2,59})' +
    '|(?:[\\w%-]{2,63}\\.)+(?:com|net|int|edu|gov|org|info|mil)' +
    '|https?://(?:\\d{1,3}(?:\\.\\d{1,3}){3}|\\[(?:[\\da-f]{0,4}:){2}(?:[\\da-f]{0,4}:?){1,6}\\]))' +
    '(?::\\d{1,5})?(?:[/?#]\\S*)?$',
  'i',
);
const MAIL = /^\S+@\w[\w.-]*\.\w+$/;
const BRACKETS = [
  ['(', ')'],
  ['<', '>'],
  ['&lt;', '&gt;'],
] as const;

/** Makes links of the addresses in a text. */
export function urlize(value: Value, options: UrlizeOptions): string {
  for (const scheme of options.schemes) {
    if (/^[\w.+-]{2,}:\/{0,2}$/.test(scheme)) continue;
    throw new PythonError('FilterArgumentError', `${repr(scheme)} is not a valid URI scheme prefix.`);
  }
  return escapeHtml(value)
    .split(/(\s+)/)
    .map((word) => linked(word, options))
    .join('');
}

function linked(word: string, options: UrlizeOptions): string {
  const head = /^(?:[(<]|&lt;)+/.exec(word)?.[0] ?? '';
  let middle = word.slice(head.length);
  let tail = /(?:[)>.,\n]|&gt;)+$/.exec(middle)?.[0] ?? '';
  middle = middle.slice(0, middle.length - tail.length);
  // A bracket that is opened inside of the address is closed inside of it.
  for (const [open, close] of BRACKETS) {
    const times = (text: string, part: string): number => text.split(part).length - 1;
    const opened = times(middle, open);
    if (opened <= times(middle, close)) continue;
    for (let left = Math.min(opened, times(tail, close)); left > 0; left--) {
      const end = tail.indexOf(close) + close.length;
      middle += tail.slice(0, end);
      tail = tail.slice(end);
    }
  }
  return head + link(middle, options) + tail;
}

function link(text: string, { limit, rel, target, schemes }: UrlizeOptions): string {
  const attributes =
    (rel === '' ? '' : ` rel="${escapeHtml(rel)}"`) + (target ? ` target="${escapeHtml(target)}"` : '');
  const shown =
    limit !== undefined && lengthOf(text) > limit ? `${[...text].slice(0, limit).join('')}...` : text;
  if (ADDRESS.test(text)) {
    const address = /^https?:\/\//.test(text) ? text : `https://${text}`;
    return `<a href="${address}"${attributes}>${shown}</a>`;
  }
  if (text.startsWith('mailto:') && MAIL.test(text.slice(7))) return `<a href="${text}">${text.slice(7)}</a>`;
  if (text.includes('@') && !/^(?:www\.|@)/.test(text) && !text.includes(':') && MAIL.test(text)) {
    return `<a href="mailto:${text}">${text}</a>`;
  }
  const scheme = schemes.find((beginning) => text !== beginning && text.startsWith(beginning));
  return scheme === undefined ? text : `<a href="${text}"${attributes}>${text}</a>`;
}
