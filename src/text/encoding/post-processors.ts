/** The `post_processor` of a tokenizer definition: what is put around a text of its own, and around a pair of texts. */
import { isJsonObject, type JsonObject } from '../json-file.js';

/** The ids before and after those of a text. `undefined` stands for a token that the vocabulary lacks. */
export interface Surroundings {
  readonly before: readonly (number | undefined)[];
  readonly after: readonly (number | undefined)[];
  /** Of two texts that are read as a pair; null where the definition says nothing of pairs. */
  readonly pair: PairSurroundings | null;
}

export interface PairSurroundings {
  readonly before: readonly (number | undefined)[];
  readonly between: readonly (number | undefined)[];
  readonly after: readonly (number | undefined)[];
}

const NOTHING: Surroundings = { before: [], after: [], pair: { before: [], between: [], after: [] } };

/**
 * @param definition `null` where there is none
 * @param idOf the id of a token by its text
 * @throws Error for a step that is not known
 */
export function readPostProcessor(
  definition: JsonObject | null,
  idOf: (token: string) => number | undefined,
): Surroundings {
  if (definition === null) return NOTHING;
  switch (definition.type) {
    case 'ByteLevel':
      // It moves offsets alone.
      return NOTHING;
    case 'BertProcessing':
    case 'RobertaProcessing': {
      const [before, after] = [[pairId(definition.cls, idOf)], [pairId(definition.sep, idOf)]];
      const between = definition.type === 'RobertaProcessing' ? [...after, ...after] : after;
      return { before, after, pair: { before, between, after } };
    }
    case 'TemplateProcessing':
      return template(definition, idOf);
    case 'Sequence': {
      const steps = Array.isArray(definition.processors) ? definition.processors : [];
      return steps.reduce<Surroundings>((inner, step: unknown) => {
        if (!isJsonObject(step)) throw new Error('a post-processor is not an object');
        const outer = readPostProcessor(step, idOf);
        return { ...around(outer, inner), pair: pairAround(outer.pair, inner.pair) };
      }, NOTHING);
    }
    default:
      throw new Error(`the post-processor ${JSON.stringify(definition.type)} is not known`);
  }
}

function around(
  outer: Pick<Surroundings, 'before' | 'after'>,
  inner: Pick<Surroundings, 'before' | 'after'>,
): Pick<Surroundings, 'before' | 'after'> {
  return { before: [...outer.before, ...inner.before], after: [...inner.after, ...outer.after] };
}

function pairAround(outer: PairSurroundings | null, inner: PairSurroundings | null): PairSurroundings | null {
  if (outer === null || inner === null) return null;
  return { ...around(outer, inner), between: [...inner.between, ...outer.between] };
}

/** `[token, id]` */
function pairId(pair: unknown, idOf: (token: string) => number | undefined): number | undefined {
  if (!Array.isArray(pair)) throw new Error('a post-processor names no token');
  const [token, id] = pair as [unknown, unknown];
  return typeof id === 'number' ? id : idOf(String(token));
}

function template(definition: JsonObject, idOf: (token: string) => number | undefined): Surroundings {
  const single = definition.single;
  if (!Array.isArray(single)) throw new Error('the TemplateProcessing has no template for a single text');
  const special = isJsonObject(definition.special_tokens) ? definition.special_tokens : {};
  const idsOf = (name: string): readonly (number | undefined)[] => {
    const entry = special[name];
    const ids = isJsonObject(entry) && Array.isArray(entry.ids) ? (entry.ids as unknown[]) : [idOf(name)];
    return ids.map((id) => (typeof id === 'number' ? id : undefined));
  };
  const [before, after] = sidesOf(single, ['A'], idsOf) as [Ids, Ids];
  const { pair } = definition;
  if (!Array.isArray(pair)) return { before, after, pair: null };
  const [first, between, last] = sidesOf(pair, ['A', 'B'], idsOf) as [Ids, Ids, Ids];
  return { before, after, pair: { before: first, between, after: last } };
}

type Ids = (number | undefined)[];

/** The ids before each of the texts, which come in this order, and those behind the last. */
function sidesOf(
  parts: readonly unknown[],
  texts: readonly string[],
  idsOf: (name: string) => readonly (number | undefined)[],
): Ids[] {
  const sides: Ids[] = [[]];
  for (const part of parts) {
    if (!isJsonObject(part)) throw new Error('a part of the template is not an object');
    if (isJsonObject(part.SpecialToken)) sides.at(-1)!.push(...idsOf(String(part.SpecialToken.id)));
    else if (isJsonObject(part.Sequence)) {
      if (part.Sequence.id !== texts[sides.length - 1])
        throw new Error(`a template must hold each text once, in order: ${texts.join(', ')}`);
      sides.push([]);
    }
  }
  while (sides.length <= texts.length) sides.push([]);
  return sides;
}
