/**
 * Merges of a SentencePiece vocabulary that has scores alone: whatever two pieces make a third, the third of the best score first.
 * As transformers turns such models into tokenizer.json (its convert_slow_tokenizer.py), where ids must be the same.
 */

interface Merge {
  readonly left: string;
  readonly right: string;
  readonly score: number;
  readonly leftLength: number;
  readonly rightLength: number;
}

/**
 * @param isPiece whether an id is an ordinary piece: no control token, byte and the like
 * @example mergesOfScores(['a', 'b', 'ab'], [0, 0, -1], () => true) // [['a', 'b']]
 */
export function mergesOfScores(
  tokens: readonly string[],
  scores: readonly number[],
  isPiece: (id: number) => boolean,
): [string, string][] {
  const ids = new Map<string, number>();
  tokens.forEach((token, id) => {
    if (isPiece(id)) ids.set(token, id);
  });
  const merges: Merge[] = [];
  for (const [token, id] of ids) {
    const characters = [...token];
    const found: { readonly merge: Merge; readonly left: number; readonly right: number }[] = [];
    let at = 0;
    for (let i = 1; i < characters.length; i++) {
      at += characters[i - 1]!.length;
      const left = token.slice(0, at);
      const leftId = ids.get(left);
      if (leftId === undefined) continue;
      const right = token.slice(at);
      const rightId = ids.get(right);
      if (rightId === undefined) continue;
      const lengths = { leftLength: i, rightLength: characters.length - i };
      found.push({ merge: { left, right, score: scores[id]!, ...lengths }, left: leftId, right: rightId });
    }
    found.sort((a, b) => a.left - b.left || a.right - b.right);
    for (const { merge } of found) merges.push(merge);
  }
  merges.sort((a, b) => b.score - a.score || b.leftLength - a.leftLength || b.rightLength - a.rightLength);
  return merges.map(({ left, right }) => [left, right]);
}
