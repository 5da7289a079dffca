/** How much there is of a value that came from a client: its characters, and something for each of its parts. */

/** A part of a list or an object counts as so many characters. */
const PART = 16;
/** Of a value of more parts than this no more are counted. */
const MOST_PARTS = 100_000;

/** @param enough the count may end when it has come to this */
export function weigh(value: unknown, enough = Number.POSITIVE_INFINITY): number {
  let weight = 0;
  let parts = 0;
  const rest: unknown[] = [value];
  while (rest.length > 0 && weight < enough && parts++ < MOST_PARTS) {
    const next = rest.pop();
    weight += PART;
    if (typeof next === 'string') weight += next.length;
    else if (ArrayBuffer.isView(next)) weight += next.byteLength;
    else if (Array.isArray(next)) for (const entry of next) rest.push(entry);
    else if (typeof next === 'object' && next !== null)
      for (const [key, entry] of Object.entries(next)) {
        weight += key.length;
        rest.push(entry);
      }
  }
  return weight + PART * rest.length;
}
