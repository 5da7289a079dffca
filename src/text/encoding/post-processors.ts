/** The `post_processor` of a tokenizer definition: what is put around a text of its own. */
import { isJsonObject, type JsonObject } from '../json-file.js';

/** The ids before and after those of a text. `undefined` stands for a token that the vocabulary lacks. */
export interface Surroundings {
  readonly before: readonly (number | undefined)[];
  readonly after: readonly (number | undefined)[];
}

const NOTHING: Surroundings = { before: [], after: [] };

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
    case 'RobertaProcessing':
      return { before: [pairId(definition.cls, idOf)], after: [pairId(definition.sep, idOf)] };
    case 'TemplateProcessing':
      return template(definition, idOf);
    case 'Sequence': {
      const steps = Array.isArray(definition.processors) ? definition.processors : [];
      return steps.reduce<Surroundings>((inner, step: unknown) => {
        if (!isJsonObject(step)) throw new Error('a post-processor is not an object');
        const outer = readPostProcessor(step, idOf);
        return { before: [...outer.before, ...inner.before], after: [...inner.after, ...outer.after] };
      }, NOTHING);
    }
    default:
      throw new Error(`the post-processor ${JSON.stringify(definition.type)} is not known`);
  }
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
  const before: (number | undefined)[] = [];
  const after: (number | undefined)[] = [];
  let side = before;
  for (const part of single as unknown[]) {
    if (!isJsonObject(part)) throw new Error('a part of the template is not an object');
    if (isJsonObject(part.SpecialToken)) {
      const name = String(part.SpecialToken.id);
      const entry = special[name];
      const ids = isJsonObject(entry) && Array.isArray(entry.ids) ? (entry.ids as unknown[]) : [idOf(name)];
      side.push(...ids.map((id) => (typeof id === 'number' ? id : undefined)));
    } else if (isJsonObject(part.Sequence)) {
      if (part.Sequence.id !== 'A' || side === after) {
        throw new Error('the template for a single text must hold the text once');
      }
      side = after;
    }
  }
  return { before, after };
}
