/**
 * WGSL that sums several values of each lane over a subgroup at once. One after the other takes a shuffle a value and level;
 * here lanes share the values out: at each level a lane keeps half of what it has and gives the other half to its
 * partner, so that four values of 32 lanes take six shuffles in place of twenty. Every sum is taken in one order, however
 * many there are: of lanes `lanes / 2` apart, then `lanes / 4`, down to neighbours.
 */

export interface SubgroupSums {
  /** Statements; `lane` is the index in the subgroup. */
  readonly text: string;
  /** Names of the sums that a lane has then: the first lanes of each `every` have sums `lane / every · totals.length …`. */
  readonly totals: readonly string[];
  readonly every: number;
}

/** `values`: names of variables, a power of two of them; `lanes`: a power of two. */
export function subgroupSums(values: readonly string[], lanes: number): SubgroupSums {
  const lines: string[] = [];
  let left = values;
  for (let mask = lanes / 2; mask >= 1; mask /= 2) {
    const half = left.length / 2;
    const level = `sum${mask}`;
    if (half < 1) {
      lines.push(`let ${level}_0 = ${left[0]!} + subgroupShuffleXor(${left[0]!}, ${mask}u);`);
      left = [`${level}_0`];
      continue;
    }
    lines.push(`let up${mask} = (lane & ${mask}u) != 0u;`);
    left = left.slice(0, half).map((low, i) => {
      const high = left[i + half]!;
      const given = `select(${high}, ${low}, up${mask})`;
      lines.push(
        `let ${level}_${i} = select(${low}, ${high}, up${mask}) + subgroupShuffleXor(${given}, ${mask}u);`,
      );
      return `${level}_${i}`;
    });
  }
  return { text: lines.join('\n'), totals: left, every: Math.max(1, lanes / values.length) };
}

/**
 * Statements that leave in variable `name` of every lane what all lanes have there, combined; in the order above. A
 * subgroup's own functions ask which lanes run, which here all do.
 */
export function acrossLanes(name: string, lanes: number, combine: (a: string, b: string) => string): string {
  const lines: string[] = [];
  for (let mask = lanes / 2; mask >= 1; mask /= 2)
    lines.push(`${name} = ${combine(name, `subgroupShuffleXor(${name}, ${mask}u)`)};`);
  return lines.join('\n');
}
