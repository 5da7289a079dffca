/**
 * Subgroup matrices for devices that have none: the text of a kernel made for subgroups of ONE thread and f32
 * components is rewritten so that matrices are arrays and every matrix op is a loop. Slow, and exact enough to test
 * the index arithmetic of such a kernel anywhere.
 */

/** A kernel of halves as one of f32: eight halves to a vector stay so in memory, everything else is f32. */
function widenHalves(wgsl: string): string {
  return wgsl
    .replace('enable f16;', '')
    .replace(/bitcast<vec2<u32>>\(/g, 'pack_four_halves(')
    .replace(/bitcast<u32>\(/g, 'pack2x16float(')
    .replace(/bitcast<vec2<f16>>\(/g, 'unpack2x16float(')
    .replace(/<f16>/g, '<f32>')
    .replace(/\bf16\(/g, 'f32(')
    .replace(/(\d)h\b/g, '$1')
    .concat(
      '\nfn pack_four_halves(v: vec4<f32>) -> vec2<u32> { return vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw)); }',
    );
}

/**
 * Runs of blocks of products that differ only in numbers, each by the same step from one to the next, as loops: what they
 * compute stays the same, and what is compiled is one block of each run. Compiling is what takes the time of these tests.
 */
function rollProducts(text: string): string {
  const number = /\b\d+u\b/g;
  const numbers = (block: string): number[] => (block.match(number) ?? []).map((n) => Number.parseInt(n, 10));
  const out: string[] = [];
  let run: string[] = [];
  const flush = (): void => {
    while (run.length > 0) {
      const first = run[0]!;
      const skeleton = first.replace(number, '#');
      const from = numbers(first);
      const steps = run.length < 2 ? [] : numbers(run[1]!).map((n, i) => n - from[i]!);
      let count = 1;
      while (
        count < run.length &&
        first.includes('mma(') &&
        run[count]!.replace(number, '#') === skeleton &&
        numbers(run[count]!).every((n, i) => steps[i]! >= 0 && n === from[i]! + count * steps[i]!)
      )
        count++;
      let at = 0;
      const step = (n: string): string => {
        const by = steps[at++]!;
        return by === 0 ? n : `(${n} + turn * ${by}u)`;
      };
      out.push(
        count === 1
          ? first
          : `for (var turn = 0u; turn < ${count}u; turn++) ${first.trimStart().replace(number, step)}`,
      );
      run = run.slice(count);
    }
  };
  const lines = text.split('\n');
  for (let i = 0; i < lines.length; i++) {
    const indent = /^( *)\{$/.exec(lines[i]!)?.[1];
    const end = indent === undefined ? -1 : lines.indexOf(`${indent}}`, i);
    if (end < 0) {
      flush();
      out.push(lines[i]!);
      continue;
    }
    run.push(lines.slice(i, end + 1).join('\n'));
    i = end;
  }
  flush();
  return out.join('\n');
}

/** The rewritten WGSL. Matrices are `size × size`; tile arrays hold scalars or vec4s of f32, or eight halves, where results are four floats. */
export function emulateMatrices(wgsl: string, size: number): string {
  let text = (wgsl.includes('enable f16;') ? widenHalves(wgsl) : wgsl)
    .replace('enable chromium_experimental_subgroup_matrix;', '')
    .replace('diagnostic(off, chromium.subgroup_matrix_uniformity);', '')
    .replace('enable subgroups;', '')
    .replace(/, @builtin\(subgroup_id\) (\w+): u32/, '');
  text = text.replace(/(fn main\([\s\S]*?\{\n)/, '$1  let sub = lid;\n');
  const floats = size * size;
  text = text.replace(/alias (\w+) = subgroup_matrix_\w+<[^>]*>;/g, `alias $1 = array<f32, ${floats}>;`);
  const arrays = new Map<string, string>();
  for (const m of text.matchAll(/var<(workgroup|storage, \w+)> (\w+): array<(f32|vec4<f32>|vec4<u32>)/g))
    arrays.set(m[2]!, m[3]!);
  const helpers = new Map<string, string>();
  text = text.replace(
    /subgroupMatrixLoad<(\w+), (row|col)_major>\(&(\w+), /g,
    (_, type: string, major: string, name: string) => {
      const kind = arrays.get(name);
      const wide = kind === 'vec4<u32>' ? ' * 8u' : kind === 'vec4<f32>' ? ' * 4u' : '';
      const at = major === 'row' ? `i * stride${wide} + j` : `j * stride${wide} + i`;
      const e = `(offset${wide} + ${at})`;
      const value =
        kind === 'vec4<u32>'
          ? `unpack2x16float(${name}[${e} / 8u][${e} % 8u / 2u])[${e} % 2u]`
          : kind === 'vec4<f32>'
            ? `${name}[${e} / 4u][${e} % 4u]`
            : `${name}[${e}]`;
      const fn = `load_${type}_${major}_${name}`;
      helpers.set(
        fn,
        `fn ${fn}(offset: u32, stride: u32) -> ${type} { var m: ${type}; for (var i = 0u; i < ${size}u; i++) { for (var j = 0u; j < ${size}u; j++) { m[i * ${size}u + j] = ${value}; } } return m; }`,
      );
      return `${fn}(`;
    },
  );
  text = text.replace(
    /subgroupMatrixStore<row_major>\(&(\w+), (.*), ([\w[\]]+), ([^,]+)\);/g,
    (_, name: string, offset: string, m: string, stride: string) => {
      const fn = `store_${name}`;
      const kind = arrays.get(name);
      const wide = kind === 'vec4<f32>' || kind === 'vec4<u32>';
      const e = `(offset${wide ? ' * 4u' : ''} + i * stride${wide ? ' * 4u' : ''} + j)`;
      const to = wide ? `${name}[${e} / 4u][${e} % 4u]` : `${name}[${e}]`;
      helpers.set(
        fn,
        `fn ${fn}(offset: u32, m: Sum, stride: u32) { for (var i = 0u; i < ${size}u; i++) { for (var j = 0u; j < ${size}u; j++) { ${to} = ${kind === 'vec4<u32>' ? 'bitcast<u32>' : ''}(m[i * ${size}u + j]); } } }`,
      );
      return `${fn}(${offset}, ${m}, ${stride});`;
    },
  );
  // Right matrices are [k, n] here whatever their layout in memory was.
  helpers.set(
    'mma',
    `fn mma(a: Left, b: Right, c: Sum) -> Sum { var m = c; for (var i = 0u; i < ${size}u; i++) { for (var j = 0u; j < ${size}u; j++) { var s = m[i * ${size}u + j]; for (var k = 0u; k < ${size}u; k++) { s = fma(a[i * ${size}u + k], b[k * ${size}u + j], s); } m[i * ${size}u + j] = s; } } return m; }`,
  );
  text = rollProducts(text.replace(/subgroupMatrixMultiplyAccumulate/g, 'mma'));
  return `${text}\n${[...helpers.values()].join('\n')}\n`;
}
