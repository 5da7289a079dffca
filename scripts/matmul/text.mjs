// The text of matmul-tiles.ts in the making, and what all of its functions are written with.

export const range = (n) => Array.from({ length: n }, (_, i) => i);
export const lines = [];
export const emit = (depth, ...text) => {
  for (const t of text) lines.push(`${'  '.repeat(depth)}${t}`);
};

export const each = (m, b, name) =>
  range(m).flatMap((r) => range(b).flatMap((k) => range(2).map((h) => `${name}${r}${k}${h}`)));
export const declare = (depth, names) =>
  emit(depth, `let ${names.map((n) => `${n} = i32x4.splat(0)`).join(', ')};`);
export const parameters = (m) =>
  range(m)
    .map((r) => `x${r}: usize`)
    .join(', ');

export function storeSums(m, b) {
  for (const r of range(m))
    for (const k of range(b)) for (const h of range(2)) emit(1, `s${(r * b + k) * 2 + h} = f${r}${k}${h};`);
}
