/** Arrows between source files: they point down only, and there are no circles but those named here. */
import { describe, expect, it } from 'vitest';
import { circles, sourceImports, upwardImports } from './imports.js';

/**
 * Circles that are left, all of them of types or of halves of one idea. A circle that is mended goes from this list; none is added.
 */
const KNOWN: Readonly<Record<string, readonly string[]>> = {
  'the kernel floor: three types of tuned choices in `Capabilities`': [
    'device/webgpu/kernel.ts',
    'device/webgpu/kernels/attend-decode-plan.ts',
    'device/webgpu/kernels/attend-merged.ts',
    'device/webgpu/kernels/attend-out.ts',
    'device/webgpu/kernels/attend-reduce.ts',
    'device/webgpu/kernels/attend.ts',
    'device/webgpu/kernels/kv-format.ts',
    'device/webgpu/kernels/linear-bytes.ts',
    'device/webgpu/kernels/linear-choice.ts',
    'device/webgpu/kernels/linear-dp4a-plan.ts',
    'device/webgpu/kernels/linear-dp4a-x.ts',
    'device/webgpu/kernels/linear-dp4a.ts',
    'device/webgpu/kernels/linear-gemv-append.ts',
    'device/webgpu/kernels/linear-gemv-plan.ts',
    'device/webgpu/kernels/linear-gemv-step.ts',
    'device/webgpu/kernels/linear-gemv.ts',
    'device/webgpu/kernels/linear-halves.ts',
    'device/webgpu/kernels/linear-matrix-end.ts',
    'device/webgpu/kernels/linear-matrix-plan.ts',
    'device/webgpu/kernels/linear-matrix.ts',
    'device/webgpu/kernels/linear-skinny.ts',
    'device/webgpu/kernels/linear-split-k.ts',
    'device/webgpu/step-buffer.ts',
  ],
  'the kernel floor: a cache and those who convert and move its blocks': [
    'device/webgpu/kv-converter.ts',
    'device/webgpu/kv-mover.ts',
    'device/webgpu/kv-pool.ts',
  ],
  'the kernel floor: prefill attention by its way of reading values': [
    'device/webgpu/kernels/attend-prefill-codes.ts',
    'device/webgpu/kernels/attend-prefill-tiles.ts',
    'device/webgpu/kernels/attend-prefill-transposed.ts',
  ],
  "a CPU's cache and the program that copies its blocks": [
    'device/cpu/block-program.ts',
    'device/cpu/kv-bytes.ts',
    'device/cpu/kv-pool.ts',
  ],
  'methods of strings that format, format text that subscripts': [
    'text/jinja/format.ts',
    'text/jinja/string-methods.ts',
    'text/jinja/subscript.ts',
  ],
};

describe('how arrows are judged', () => {
  it('finds imports of a floor above and of a neighbour', () => {
    const imports = new Map([
      ['engine/a.ts', ['kv/b.ts', 'errors.ts', 'server/c.ts']],
      ['kv/b.ts', ['device/d.ts', 'text/e.ts', 'kv/f.ts']],
      ['errors.ts', ['engine/a.ts', 'notice.ts']],
      ['server/c.ts', ['index.ts']],
      ['index.ts', ['engine/a.ts', 'server/c.ts']],
    ]);
    expect(upwardImports(imports)).toEqual([
      'engine/a.ts -> server/c.ts',
      'kv/b.ts -> text/e.ts',
      'errors.ts -> engine/a.ts',
      'index.ts -> server/c.ts',
    ]);
    expect(() => upwardImports(new Map([['new/a.ts', ['kv/b.ts']]]))).toThrow('FLOORS');
  });

  it('finds circles, and files that import themselves', () => {
    const imports = new Map([
      ['a', ['b', 'x']],
      ['b', ['c']],
      ['c', ['a']],
      ['x', ['y']],
      ['y', ['y']],
      ['z', ['a', 'y']],
    ]);
    expect(circles(imports)).toEqual([['a', 'b', 'c'], ['y']]);
  });
});

describe('the sources', () => {
  const imports = sourceImports();

  it('are read', () => {
    expect(imports.size).toBeGreaterThan(400);
    expect(imports.get('cli/main.ts')).toContain('cli/program.ts');
    // A type alone.
    expect(imports.get('server/engine-port.ts')).toContain('engine/types.ts');
    expect(imports.get('device/cpu/assembly/index.ts')?.length).toBeGreaterThan(5);
  });

  it('import downwards only', () => {
    expect(upwardImports(imports)).toEqual([]);
  });

  it('have no circles but those that are named', () => {
    const known = Object.values(KNOWN).map((files) => [...files].sort());
    expect(circles(imports)).toEqual(known.sort((a, b) => (a[0]! < b[0]! ? -1 : 1)));
  });
});
