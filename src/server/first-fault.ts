/**
 * Schemas that stop at the first fault. zod goes on to the last and makes an object of each: a list of 300,000 wrong entries,
 * which is a body of 900 KB, takes it seconds and hundreds of megabytes.
 */
import { z } from 'zod';

/** A list, each entry as `entry` takes it; refused at the first that is wrong. */
export function listOf<T extends z.ZodType>(entry: T): z.ZodType<z.output<T>[]> {
  return z.array(z.unknown(), 'takes a list').transform((list, context) => {
    const read: z.output<T>[] = [];
    for (let i = 0; i < list.length; i++) {
      const result = entry.safeParse(list[i]);
      if (!result.success) {
        const [issue] = result.error.issues;
        context.addIssue({ code: 'custom', message: issue!.message, path: [i, ...issue!.path] });
        return z.NEVER;
      }
      read.push(result.data);
    }
    return read;
  });
}

/** An object of any fields, as it is. */
export const anyObject = z.custom<Record<string, unknown>>(
  (value) =>
    typeof value === 'object' &&
    value !== null &&
    !Array.isArray(value) &&
    // `1.0`, read losslessly.
    !(value instanceof Number),
  'takes an object',
);

const isId = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= 0;
const isText = (value: unknown): value is string => typeof value === 'string';
const areIds = (value: unknown): value is number[] =>
  Array.isArray(value) && value.length > 0 && value.every(isId);

const MOST_PROMPTS = 128;

/** Prompts of the completions route: a text or ids, or up to 128 of either. */
export const prompts = z.custom<string | number[] | string[] | number[][]>((value) => {
  if (isText(value) || areIds(value)) return true;
  if (!Array.isArray(value) || value.length === 0 || value.length > MOST_PROMPTS) return false;
  return isText(value[0]) ? value.every(isText) : value.every(areIds);
}, `takes a string, token ids, or a list of up to ${MOST_PROMPTS} of either`);
