/** Reads the arguments of a call that stand in tags, each by its name, without quotes: JSON is made of them as they come. */
import { type ArgumentTypes, valueJson } from './argument-types.js';
import { type CallInput, isArgumentName, type Reading } from './call-input.js';
import { jsonCharacters } from './json-text.js';
import type { CallSink } from './marked-parser.js';
import type { TagStyle } from './tag-style.js';

/**
 * The arguments of a call whose name was read. Those that are cut off end as the model left them.
 *
 * @param taken the tag behind the name, where that was taken with it
 */
export function* taggedCall(
  input: CallInput,
  sink: CallSink,
  name: string,
  style: TagStyle,
  types: ArgumentTypes,
  taken: string | null = null,
): Reading<void> {
  const emit = (text: string): void => sink.args(text);
  sink.call(name);
  emit('{');
  const { between } = marksOf(style);
  let mark = taken ?? (yield* input.until(between, () => {}));
  for (let first = true; mark === style.open; first = false) {
    const argument = yield* input.name(style.named, isArgumentName);
    if (argument === null) break;
    if (style.value !== undefined) {
      yield* input.gap();
      if (!(yield* input.literal(style.value))) break;
    }
    emit(`${first ? '' : ', '}"${jsonCharacters(argument.name)}": `);
    const said = style.isText?.(argument.mark) ?? null;
    const of = said === true ? TEXT : types.of(name, argument.name);
    mark = yield* value(input, emit, style, of, said === false);
    if (mark === style.close) mark = yield* input.until(between, () => {});
    // A model that forgets the closing tag goes on with the next.
    else if (mark !== null) mark = mark.trimStart();
  }
  if (mark !== null) emit('}');
}

interface Marks {
  /** What may stand between arguments. */
  readonly between: readonly string[];
  /** What ends a value. */
  readonly ends: readonly string[];
}

const marks = new WeakMap<TagStyle, Marks>();

function marksOf(style: TagStyle): Marks {
  let found = marks.get(style);
  if (found === undefined) {
    const { open, close, end } = style;
    found = { between: [open, end], ends: [close, `\n${open}`, `\n${end}`] };
    marks.set(style, found);
  }
  return found;
}

const TEXT: ReadonlySet<string> = new Set(['string']);

/** One value; returns the mark that ended it, null where the answer ends within. */
function* value(
  input: CallInput,
  emit: (text: string) => void,
  style: TagStyle,
  types: ReadonlySet<string> | null,
  isJson: boolean,
): Reading<string | null> {
  const { ends } = marksOf(style);
  const streamed = !isJson && types?.size === 1 && types.has('string');
  let raw = '';
  if (!streamed) {
    const mark = yield* input.until(ends, (text) => {
      raw += text;
    });
    const text = style.lines ? raw.replace(/^\n/, '').replace(/\n$/, '') : raw;
    emit(mark === null ? text : valueJson(text, isJson ? null : types));
    return mark;
  }
  emit('"');
  let begun = !style.lines;
  let held = '';
  const mark = yield* input.until(ends, (piece) => {
    let text = held + piece;
    held = '';
    if (!begun && text !== '') {
      text = text.replace(/^\n/, '');
      begun = true;
    }
    if (style.lines && text.endsWith('\n')) {
      held = '\n';
      text = text.slice(0, -1);
    }
    emit(jsonCharacters(text));
  });
  if (mark === null) emit(jsonCharacters(held));
  else emit('"');
  return mark;
}
