export function ascending(values: readonly number[]): number[] {
  return [...values].sort((a, b) => a - b);
}

/** Of ascending values: between the two beside it, in proportion. NaN of nothing. */
export function percentile(values: readonly number[], part: number): number {
  const at = part * (values.length - 1);
  const below = values[Math.floor(at)] ?? Number.NaN;
  return below + (at - Math.floor(at)) * ((values[Math.ceil(at)] ?? below) - below);
}

/** What a ratio was in several rounds. */
export interface Spread {
  readonly median: number;
  readonly lowest: number;
  readonly highest: number;
}

export function spread(values: readonly number[]): Spread {
  const sorted = ascending(values);
  return {
    median: percentile(sorted, 0.5),
    lowest: percentile(sorted, 0),
    highest: percentile(sorted, 1),
  };
}

export function spreadText({ median, lowest, highest }: Spread): string {
  return `${median.toFixed(3)} (${lowest.toFixed(3)}–${highest.toFixed(3)})`;
}
