/** Jinja's filters on texts. */
import { bind, needText, type Parameter, positional, REQUIRED, textOrNone } from './arguments.js';
import { capitalize } from './characters.js';
import { PythonError, typeError, valueError } from './errors.js';
import { floatBody } from './format-spec.js';
import { escapeHtml, markupOf, stripTags } from './markup.js';
import { toIndex, toReal } from './numbers.js';
import { isIterable, iterate, listOf, size, truth } from './operators.js';
import { repr, str } from './repr.js';
import { stringMethod } from './string-methods.js';
import { charactersOf, lengthOf, replaceText, splitLines, strip, WHITESPACE_CLASS } from './text.js';
import { wrapText } from './text-wrap.js';
import { urlize } from './urlize.js';
import { type Arguments, Dict, textOf, Undefined, type Value } from './values.js';

type TextFilter = readonly [string, (value: Value, args: Arguments) => Value];

function filter(
  name: string,
  parameters: readonly Parameter[],
  run: (value: Value, ...args: Value[]) => Value,
): TextFilter {
  return [name, (value, args) => run(value, ...bind(name, parameters, args))];
}

/** A filter that is a change of a text; Markup stays Markup. */
function change(name: string, run: (text: string) => string): TextFilter {
  return filter(name, [], (value) => markupOf(value, run(str(value))));
}

export const TEXT_FILTERS: readonly TextFilter[] = [
  change('upper', (text) => text.toUpperCase()),
  change('lower', (text) => text.toLowerCase()),
  change('capitalize', capitalize),
  filter('title', [], (value) => title(str(value))),
  filter('trim', [['chars', null]], (value, chars) =>
    markupOf(value, strip(str(value), textOrNone(chars!, 'strip arg'))),
  ),
  filter('striptags', [], (value) => stripTags(str(value))),
  filter('wordcount', [], (value) => BigInt((str(value).match(/[\p{L}\p{N}_]+/gu) ?? []).length)),
  filter('center', [['width', 80n]], (value, width) => {
    return stringMethod(textOf(value) === undefined ? str(value) : value, 'center')!.call(positional(width!));
  }),
  filter(
    'replace',
    [
      ['old', REQUIRED],
      ['new', REQUIRED],
      ['count', null],
    ],
    (value, old, put, most) =>
      replaceText(str(value), str(old!), str(put!), most === null ? -1 : toIndex(most!)),
  ),
  filter(
    'indent',
    [
      ['width', 4n],
      ['first', false],
      ['blank', false],
    ],
    indent,
  ),
  filter(
    'truncate',
    [
      ['length', 255n],
      ['killwords', false],
      ['end', '...'],
      ['leeway', null],
    ],
    truncate,
  ),
  filter(
    'wordwrap',
    [
      ['width', 79n],
      ['break_long_words', true],
      ['wrapstring', null],
      ['break_on_hyphens', true],
    ],
    (value, width, breakWords, joint, onHyphens) => {
      const between = joint === null ? '\n' : needText(joint!, 'wrapstring');
      return splitLines(needText(value, 'the text to wrap'))
        .map((line) => wrapText(line, toIndex(width!), truth(breakWords!), truth(onHyphens!)).join(between))
        .join(between);
    },
  ),
  filter('filesizeformat', [['binary', false]], fileSize),
  filter('urlencode', [], urlEncode),
  filter(
    'urlize',
    [
      ['trim_url_limit', null],
      ['nofollow', false],
      ['target', null],
      ['rel', null],
      ['extra_schemes', null],
    ],
    (value, limit, nofollow, target, rel, schemes) => {
      const words = new Set((rel === null ? '' : str(rel!)).split(/\s+/).filter((word) => word !== ''));
      if (truth(nofollow!)) words.add('nofollow');
      words.add('noopener');
      return urlize(value, {
        limit: limit === null ? undefined : toIndex(limit!),
        rel: [...words].sort().join(' '),
        target: target === null ? undefined : str(target!),
        schemes: schemes === null ? [] : listOf(schemes!).map(str),
      });
    },
  ),
  filter('xmlattr', [['autospace', true]], xmlAttributes),
];

/** Words begin after spaces, hyphens and opening brackets here, unlike in `str.title`. */
function title(text: string): string {
  return text
    .split(new RegExp(`([-${WHITESPACE_CLASS}({\\[<]+)`))
    .map((part) => {
      const [first = ''] = part;
      return first.toUpperCase() + part.slice(first.length).toLowerCase();
    })
    .join('');
}

function indent(value: Value, width?: Value, first?: Value, blank?: Value): Value {
  const text = textOf(value);
  if (text === undefined) {
    if (value instanceof Undefined) value.fail();
    throw typeError('indent wants a str');
  }
  const indention = textOf(width!) ?? ' '.repeat(Math.max(0, toIndex(width!)));
  const lines = splitLines(`${text}\n`);
  const all = truth(blank!);
  const rest = lines.slice(1).map((line) => (line === '' && !all ? '' : indention + line));
  const indented = [lines[0] ?? '', ...rest].join('\n');
  return markupOf(value, truth(first!) ? indention + indented : indented);
}

function truncate(value: Value, length?: Value, killWords?: Value, end?: Value, leeway?: Value): Value {
  const ellipsis = needText(end!, 'end');
  const most = toIndex(length!);
  const spare = leeway === null ? 5 : toIndex(leeway!);
  if (most < lengthOf(ellipsis)) {
    throw new PythonError('AssertionError', `expected length >= ${lengthOf(ellipsis)}, got ${most}`);
  }
  if (spare < 0) throw new PythonError('AssertionError', `expected leeway >= 0, got ${spare}`);
  if (size(value) <= most + spare) return value;
  const text = needText(value, 'what is to be cut');
  const points = charactersOf(text);
  const kept = Array.prototype.slice.call(points, 0, most - lengthOf(ellipsis)).join('');
  if (truth(killWords!)) return kept + ellipsis;
  const space = kept.lastIndexOf(' ');
  return (space < 0 ? kept : kept.slice(0, space)) + ellipsis;
}

function fileSize(value: Value, binary?: Value): Value {
  const bytes = toReal(value);
  const base = truth(binary!) ? 1024 : 1000;
  if (bytes === 1) return '1 Byte';
  if (bytes < base) return `${Math.trunc(bytes)} Bytes`;
  const prefixes = 'kMGTPEZY';
  for (let i = 0; ; i++) {
    const unit = base ** (i + 2);
    if (!(bytes < unit) && i < prefixes.length - 1) continue;
    const prefix = base === 1024 ? `${prefixes[i]!.toUpperCase()}iB` : `${prefixes[i]!}B`;
    return `${floatBody((base * bytes) / unit, 'f', 1, false)} ${prefix}`;
  }
}

function quoteUrl(value: Value, query: boolean): string {
  let out = '';
  for (const byte of new TextEncoder().encode(str(value))) {
    const character = String.fromCharCode(byte);
    if (/[\w.~-]/.test(character) || (character === '/' && !query)) out += character;
    else if (character === ' ' && query) out += '+';
    else out += `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return out;
}

function urlEncode(value: Value): Value {
  if (textOf(value) !== undefined || !isIterable(value)) return quoteUrl(value, false);
  const pairs = value instanceof Dict ? value.entries() : listOf(value).map(pairOf);
  return pairs.map(([key, item]) => `${quoteUrl(key, true)}=${quoteUrl(item, true)}`).join('&');
}

function pairOf(value: Value): readonly [Value, Value] {
  const items = [...iterate(value)];
  if (items.length !== 2) throw valueError(`expected 2 values, got ${items.length}`);
  return [items[0]!, items[1]!];
}

function xmlAttributes(value: Value, autospace?: Value): Value {
  if (!(value instanceof Dict)) {
    if (value instanceof Undefined) value.fail();
    throw typeError('xmlattr wants a mapping');
  }
  const parts: string[] = [];
  for (const [key, item] of value.entries()) {
    if (item === null || item instanceof Undefined) continue;
    if (/[\s/>=]/.test(needText(key, 'an attribute name'))) {
      throw valueError(`Invalid character in attribute name: ${repr(key)}`);
    }
    parts.push(`${escapeHtml(key)}="${escapeHtml(item)}"`);
  }
  return (truth(autospace!) && parts.length > 0 ? ' ' : '') + parts.join(' ');
}
