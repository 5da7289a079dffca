import { str } from './repr.js';
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
