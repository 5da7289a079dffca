/** Tensors as `--fuse-qkv` and `--fuse-gate-up-exps` of llama.cpp's converter write them: q, k and v as one, gate and up of experts as one. */
import type { Named } from './published-tensors.js';

/** Rows of all behind one another, of each matrix of a stack. */
function joined(name: string, parts: readonly Named[]): Named {
  const { shape } = parts[0]!;
  const outer = shape.length === 3 ? shape[0]! : 1;
  const inner = shape.length === 3 ? shape.slice(1) : shape;
  const values = Array.from({ length: outer }, (_, one) =>
    parts.flatMap((part) => {
      const size = part.values.length / outer;
      return [...part.values.subarray(one * size, (one + 1) * size)];
    }),
  ).flat();
  const rows = parts.reduce((sum, part) => sum + part.shape[shape.length === 3 ? 1 : 0]!, 0);
  const own = [rows, ...inner.slice(1)];
  return { name, shape: shape.length === 3 ? [outer, ...own] : own, values: Float32Array.from(values) };
}

/** The same tensors, with those that have all of their kind in their layer in one. */
export function fused(tensors: readonly Named[], experts: boolean): Named[] {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  for (const name of [...byName.keys()]) {
    const [, at, kind] = /^(blk\.\d+\.)attn_q\.(weight|bias)$/.exec(name) ?? [];
    if (at !== undefined)
      fuse(
        byName,
        ['q', 'k', 'v'].map((one) => `${at}attn_${one}.${kind}`),
        `${at}attn_qkv.${kind}`,
      );
    const [, layer] = /^(blk\.\d+\.)ffn_gate_exps\.weight$/.exec(name) ?? [];
    if (experts && layer !== undefined)
      fuse(
        byName,
        ['gate', 'up'].map((one) => `${layer}ffn_${one}_exps.weight`),
        `${layer}ffn_gate_up_exps.weight`,
      );
  }
  return [...byName.values()];
}

function fuse(byName: Map<string, Named>, names: readonly string[], to: string): void {
  const parts = names.map((name) => byName.get(name));
  if (parts.some((part) => part === undefined)) return;
  byName.set(to, joined(to, parts as Named[]));
  for (const name of names) byName.delete(name);
}
