/**
 * How the decode kernel goes through the positions of a split, K and V alike: many loads on their way at once, and little
 * text that uses them.
 *
 * A turn of the loop takes some of the pieces that were loaded together; between loads the others move down into the
 * registers that the turn reads. What is loaded moves only when it is there, so this waits for nothing that would not be
 * waited for. Pieces written out one after the other would be as many copies of the longest texts of the kernel, and code
 * has to come from memory where other kernels ran in between.
 */

import { count } from './attend-words.js';

export interface DecodeWalk {
  /** Variables of a piece are `PREFIXu` with these endings, of these types. */
  readonly prefix: string;
  readonly parts: readonly (readonly [ending: string, type: string])[];
  /** Pieces loaded at once, pieces of a turn, and positions of a piece. */
  readonly unroll: number;
  readonly body: number;
  readonly atOnce: number;
  /** Loads run one turn of loads ahead of their use. */
  readonly ahead: boolean;
  /** Statements that load piece u, from position `base` on, into variables of that prefix. */
  readonly load: (prefix: string, u: number, base: string) => string[];
}

/** Positions of a turn. */
export const turnOf = ({ body, atOnce }: DecodeWalk): number => body * atOnce;

/** The loop. `first`: statements of the first turn, behind its loads; `use`: of piece u, its first position being `base`. */
export function walkText(
  walk: DecodeWalk,
  first: readonly string[],
  use: (u: number, base: string) => string[],
): string[] {
  const { prefix, parts, unroll, body, atOnce, ahead, load } = walk;
  const all = count(unroll);
  const declare = (name: string): string[] =>
    all.flatMap((u) => parts.map(([ending, type]) => `  var ${name}${u}${ending}: ${type};`));
  const copy = (to: string, from: string, step: number): string[] =>
    all
      .filter((u) => u + step < unroll)
      .flatMap((u) => parts.map(([ending]) => `    ${to}${u}${ending} = ${from}${u + step}${ending};`));
  const loads = (name: string, base: string): string[] => all.flatMap((u) => load(name, u, base));
  const next = `next${prefix}`;
  const stride = unroll * atOnce;
  const fetch = ahead
    ? [...copy(prefix, next, 0), ...loads(next, `base + ${stride}u`)]
    : loads(prefix, 'base');
  return [
    ...declare(prefix),
    ...(ahead ? [...declare(next), ...loads(next, '0u')] : []),
    `  for (var base = 0u; base <= reach; base += ${turnOf(walk)}u) {`,
    ...(body === unroll
      ? fetch
      : [
          `    if (base % ${stride}u == 0u) {`,
          ...fetch,
          '    } else {',
          ...copy(prefix, prefix, body),
          '    }',
        ]),
    ...(first.length === 0 ? [] : ['    if (base == 0u) {', ...first, '    }']),
    ...count(body).flatMap((u) => ['    {', ...use(u, `base + ${u * atOnce}u`), '    }']),
    '  }',
  ];
}
