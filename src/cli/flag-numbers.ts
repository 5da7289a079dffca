/** Numbers, sizes and lists as flags take them. */
import { InvalidArgumentError } from 'commander';

/** `--max-context 4096` → 4096. */
export function integer(from: number, to = Number.MAX_SAFE_INTEGER): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!Number.isSafeInteger(value) || text.trim() === '' || value < from || value > to) {
      throw new InvalidArgumentError(
        to === Number.MAX_SAFE_INTEGER
          ? `An integer from ${from} is needed.`
          : `An integer from ${from} to ${to} is needed.`,
      );
    }
    return value;
  };
}

export function number(from: number, to: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (!Number.isFinite(value) || text.trim() === '' || value < from || value > to) {
      throw new InvalidArgumentError(`A number from ${from} to ${to} is needed.`);
    }
    return value;
  };
}

const UNITS: Readonly<Record<string, number>> = {
  '': 1,
  k: 1e3,
  m: 1e6,
  g: 1e9,
  ki: 2 ** 10,
  mi: 2 ** 20,
  gi: 2 ** 30,
};

/** `8GiB`, `500M`, `1073741824` → bytes. */
export function bytes(text: string): number {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([kmg]i?)?b?\s*$/i.exec(text);
  const unit = UNITS[(match?.[2] ?? '').toLowerCase()];
  if (match === null || unit === undefined)
    throw new InvalidArgumentError('A size is needed, such as 8GiB, 500M or 1073741824.');
  return Math.floor(Number(match[1]) * unit);
}

/** `1,8,32` → [1, 8, 32]. */
export function integers(from: number): (text: string) => number[] {
  const one = integer(from);
  return (text) => text.split(',').map(one);
}
