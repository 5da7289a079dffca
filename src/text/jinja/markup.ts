/** HTML: escaped, unescaped, and without its tags. */
import { str } from './repr.js';
import { splitWhitespace } from './text.js';
import { Markup, type Value } from './values.js';

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&#34;',
  "'": '&#39;',
};

/** The HTML of a value: what is Markup is HTML already. */
export function escapeHtml(value: Value): string {
  return value instanceof Markup
    ? value.text
    : str(value).replace(/[&<>"']/g, (character) => ENTITIES[character]!);
}

/** A text made of another: Markup stays Markup. */
export function markupOf(origin: Value, text: string): string | Markup {
  return origin instanceof Markup ? new Markup(text) : text;
}

/** `Markup.striptags()`: without tags and comments, white space as single spaces. */
export function stripTags(html: string): string {
  let text = html;
  for (const [open, close] of [
    ['<!--', '-->'],
    ['<', '>'],
  ] as const) {
    for (let start = text.indexOf(open); start >= 0; start = text.indexOf(open)) {
      const end = text.indexOf(close, start);
      if (end < 0) break;
      text = text.slice(0, start) + text.slice(end + close.length);
    }
  }
  return unescapeHtml(splitWhitespace(text).join(' '));
}

const NAMED: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: '\u00a0',
};

/** Entities as characters; of names the usual ones. */
export function unescapeHtml(html: string): string {
  return html.replace(
    /&(?:#(\d+)|#[xX]([0-9a-fA-F]+)|(\w+));/g,
    (whole, decimal?: string, hex?: string, name?: string) => {
      if (name !== undefined) return NAMED[name] ?? whole;
      const code = decimal === undefined ? Number.parseInt(hex!, 16) : Number(decimal);
      return code <= 0x10ffff ? String.fromCodePoint(code) : '\ufffd';
    },
  );
}
