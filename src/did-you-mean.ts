/** Names that may have been meant, for errors about unknown ones. */

/**
 * The known name that `name` most likely stands for: the same but for upper case, `_` and `-`, or a few letters away.
 * Undefined where none is close.
 *
 * @example
 * closestName('maxTokens', ['max_tokens', 'n']); // 'max_tokens'
 * closestName('maxRow', ['maxRows', 'maxQueue']); // 'maxRows'
 */
export function closestName(name: string, known: Iterable<string>): string | undefined {
  // Nobody means a name of ours by one far longer, and comparing it would take its time.
  if (name.length > LONGEST) return undefined;
  const wanted = plain(name);
  let best: string | undefined;
  let least = Math.floor(wanted.length / 4) + 1;
  for (const candidate of known) {
    const letters = plain(candidate);
    if (letters === wanted) return candidate;
    if (Math.abs(letters.length - wanted.length) >= least) continue;
    const distance = editDistance(letters, wanted);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

/** ` Did you mean \`max_tokens\`?`, or nothing. */
export function didYouMean(name: string, known: Iterable<string>): string {
  const meant = closestName(name, known);
  return meant === undefined ? '' : ` Did you mean \`${meant}\`?`;
}

const LONGEST = 64;

const plain = (name: string): string => name.toLowerCase().replaceAll(/[_\s.-]/g, '');

/** Letters to insert, drop, change or swap with their neighbour (optimal string alignment). */
export function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = a[i - 1] === b[j - 1] ? 0 : 1;
      let least = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + change);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        least = Math.min(least, beforeLast[j - 2]! + 1);
      row.push(least);
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length]!;
}
